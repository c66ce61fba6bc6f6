"""Small archives that are quick to read."""

from __future__ import annotations

from pathlib import Path

import gpu_outputs
import numpy as np
import pytest
from all_readers import MODULES, AnyReader

from dali_pipelines import Index
from dali_pipelines.frameworks.choose import FrameworkName
from dali_pipelines.runtime.processes.fork_server import start_fork_server


@pytest.fixture(scope="session", autouse=True)
def _fork_server() -> None:
    """Start it with all Readers imported: those of other modules than the first test's would be
    imported by each of their processes again, astropy for 0.25 s.
    """
    start_fork_server(AnyReader(), MODULES)


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


@pytest.fixture(params=["torch", "jax", "numpy", "dlpack", "cupy"])
def framework(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> FrameworkName:
    """Name of a framework; CuPy by its stand-in."""
    if request.param == "cupy":
        gpu_outputs.install(monkeypatch)
    return request.param
