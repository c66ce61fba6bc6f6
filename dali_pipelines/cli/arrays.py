"""Arrays in chunks that a command line names: Zarr stores, and HDF5 and netCDF4 files."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from readers.places.urls import is_url

if TYPE_CHECKING:
    from readers.index.table import Index
    from readers.places.storage import Storage


def array_index(data: str | Sequence[str], storage: Storage) -> Index:
    """Return the Index of a Zarr store, an HDF5 file, a folder of these, a glob, or several.

    Raises
    ------
    FileNotFoundError
        If there is neither a store nor a file.
    ImportError, OSError, ValueError
        As of `Index.from_zarr` and `Index.scan_arrays`.
    """
    from readers.index.table import Index

    found = zarr_index(data, storage)
    if not isinstance(found, str):
        return found
    try:
        return Index.scan_arrays(data, storage=storage)
    except FileNotFoundError as error:
        raise FileNotFoundError(neither(error, found)) from error


def zarr_index(data: str | Sequence[str], storage: Storage, **settings: Any) -> Index | str:
    """Return the Index of Zarr stores, or why there are none; "" if the suffix is that of HDF5.

    `data` are roots or globs, `settings` arguments of `Index.from_zarr`.
    """
    from readers.chunks.hdf5 import SUFFIXES
    from readers.chunks.zarr import NoZarrError
    from readers.index.table import Index

    names = [data] if isinstance(data, str) else list(data)
    if all(name.lower().endswith(SUFFIXES) for name in names):
        return ""
    roots = [root for name in names for root in _expanded(name)]
    try:
        return Index.from_zarr(roots, storage=storage, **settings)
    except NoZarrError as error:
        return str(error)


def _expanded(name: str) -> list[str]:
    """Return the folders that match a glob, sorted; other names as they are."""
    found = [] if is_url(name) or not glob.has_magic(name) else sorted(glob.glob(name))
    return found or [name]


def neither(error: FileNotFoundError, no_zarr: str) -> str:
    """Return the message for data with neither HDF5 files nor, if it was looked for, Zarr."""
    return f"{error}; nor is it Zarr: {no_zarr}" if no_zarr else str(error)
