"""Small archives that are quick to read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dali_pipelines import Index


@pytest.fixture(scope="session")
def npy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """23 files; the pixels of each hold its row."""
    folder = tmp_path_factory.mktemp("npy")
    for row in range(23):
        np.save(folder / f"{row:02d}.npy", np.full((6, 8), row, np.float32))
    return folder


@pytest.fixture(scope="session")
def npy_index(npy_folder: Path) -> Index:
    return Index.scan(npy_folder)
