"""Windows of arrays in chunks by others: zarr-python, tensorstore, h5py and xarray."""

# Worker processes import this file: what is heavy is imported in the functions.
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks.measure.race import Run, Way

if TYPE_CHECKING:
    from numpy.typing import NDArray

Position = tuple[int, int, int]
"""Plane, first row and first column of a window."""


@dataclass
class Windows:
    """The DataLoader's dataset: windows of an array, which each process opens once."""

    path: str
    positions: Sequence[Position]
    size: int
    """Rows and columns of a window."""
    opened: Callable[[str], Any]
    array: Any = field(default=None, init=False)

    def __len__(self) -> int:
        return len(self.positions)

    def read(self, row: int) -> NDArray[Any]:
        """Return the pixels of a row, shape (variables, height, width)."""
        if self.array is None:
            self.array = self.opened(self.path)
        plane, y, x = self.positions[row]
        found: NDArray[Any] = self.array[plane, y : y + self.size, x : x + self.size]
        return found if found.ndim == 3 else found[None]

    def __getitem__(self, row: int) -> tuple[Any, int]:
        import torch

        return torch.from_numpy(self.read(row)), row


def by_zarr(path: str) -> Any:
    """Open an array with zarr-python."""
    import zarr

    return zarr.open_array(path, mode="r")


def by_h5py(path: str) -> Any:
    """Open the only data set of an HDF5 file."""
    import h5py
    import hdf5plugin  # noqa: F401 - adds filters to HDF5

    return next(iter(h5py.File(path, "r").values()))


class by_whole_frames:
    """The same, but read whole frames, and cut windows out of these."""

    def __init__(self, path: str) -> None:
        self._array = by_h5py(path)

    def __getitem__(self, key: Any) -> Any:
        plane, *window = key
        return self._array[plane][tuple(window)]


class by_variables:
    """Open all data sets of an HDF5 file with h5py, which show one window."""

    def __init__(self, path: str) -> None:
        import h5py

        self._arrays = list(h5py.File(path, "r").values())

    def __getitem__(self, key: Any) -> Any:
        import numpy as np

        _, *window = key
        return np.stack([array[tuple(window)] for array in self._arrays])


class by_whole_files:
    """Read all variables of a file with xarray for each window, and cut it out of these."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __getitem__(self, key: Any) -> Any:
        import xarray

        _, *window = key
        with xarray.open_dataset(self._path, engine="h5netcdf", phony_dims="sort") as opened:
            return opened.to_array().load().values[(..., *window)]


class by_tensorstore:
    """Open an array with tensorstore, without its cache, on one core."""

    def __init__(self, path: str) -> None:
        import os

        import tensorstore

        driver = "zarr3" if os.path.exists(f"{path}/zarr.json") else "zarr"
        spec = {"driver": driver, "kvstore": {"driver": "file", "path": path}}
        limits = {"cache_pool": {"total_bytes_limit": 0}, "data_copy_concurrency": {"limit": 1}}
        self._array = tensorstore.open(
            spec, open=True, context=tensorstore.Context(limits)
        ).result()

    def __getitem__(self, key: Any) -> Any:
        return self._array[key].read().result()


def here_way(name: str, read: Callable[[int], Any], count: int, **way: Any) -> Way:
    """Make a way that reads rows in this process, one after the other."""

    @contextmanager
    def start() -> Iterator[Run]:
        yield lambda _: (([row], read(row)[None]) for row in range(count))

    return Way(name=name, start=start, **way)
