"""Small archives that are quick to read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from all_readers import MODULES, AnyReader
from ramp_images import SHAPES, Archive, Shape, write_archive

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


@pytest.fixture(scope="session")
def ramps(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Archive]:
    """Return the archive of a kind, with images of some shapes; each is written once."""

    @cache
    def written(kind: str, shapes: Sequence[Shape] = SHAPES) -> Archive:
        return write_archive(tmp_path_factory.mktemp(kind.replace(" ", "_")), kind, shapes)

    return written


@pytest.fixture(params=["torch", "jax", "numpy", "dlpack"])
def framework(request: pytest.FixtureRequest) -> FrameworkName:
    """Name of a framework; CuPy needs a GPU, see tests/on_gpu."""
    return request.param
