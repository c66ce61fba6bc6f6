"""Rows of chunked arrays, and their variables as xarray reads them, for `verify`."""

from __future__ import annotations

import functools
import importlib.util
import math
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dali_pipelines.cli.errors import CommandError
from dali_pipelines.cli.paths import scanned
from dali_pipelines.cli.verify.truth import Truth, complaints_to
from readers.chunks.array import NOTE, ROW, SHARD, ChunkedArray, unpacked
from readers.places.urls import is_url, located

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dali_pipelines.cli.verify.config import Area
    from readers.contract import Row
    from readers.fits.headers import HduName
    from readers.index.table import Index
    from readers.places.storage import Storage

_COLUMNS = ("path", "plane", "etag", "file_bytes", NOTE)
"""Columns that locate the data of a row."""
_ZARR_FILES = ("zarr.json", ".zgroup", ".zarray")
_AS_STORED: dict[str, Any] = dict.fromkeys(
    ("decode_times", "decode_timedelta", "decode_coords"), False
)
"""What xarray leaves as numbers, as a pipeline does."""


def array_rows(files: Sequence[str], storage: Storage) -> Index | None:
    """Return the rows of arrays, each once, also of samples; None for files of images.

    Raises
    ------
    CommandError
        If only some of the files are arrays, if they cannot be read, or if xarray is missing.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    are_arrays = list(map(_holds_arrays, files))
    if not any(are_arrays):
        return None
    if not all(are_arrays):
        name = files[are_arrays.index(False)]
        raise CommandError(f"{name} holds no arrays, but other files do: verify it by itself")
    indexes = [scanned(file, (), storage) for file in files]
    tables = []
    for index in indexes:
        for ending in [f"_{part}" for part in index.parts] or [""]:
            names = [name for name in _COLUMNS if name + ending in index]
            table = index.table.select([name + ending for name in names]).rename_columns(names)
            tables.append(table.filter(pc.is_valid(table["path"])))
    joined = pa.concat_tables(tables, promote_options="default")
    # Grouping rows that are equal keeps one of each, in the order of the first.
    number = pa.array(range(len(joined)))
    keys = joined.column_names
    once = joined.append_column("number", number).group_by(keys).aggregate([("number", "min")])
    rows = sorted(once["number_min"].to_pylist())
    found = type(indexes[0])(joined.take(rows))
    _check_libraries(found)
    return found


def _holds_arrays(file: str) -> bool:
    """Return whether this is a Zarr store, an HDF5 file or an Index of such."""
    from readers.chunks.hdf5 import SUFFIXES
    from readers.index.table import INDEX_SUFFIXES, Index

    if file.endswith(INDEX_SUFFIXES) and os.path.isfile(file):
        with suppress(OSError, ValueError):  # who reads it says why
            index = Index.load(file)
            return NOTE in index or any(f"{NOTE}_{part}" in index for part in index.parts)
        return False
    is_store = file.rstrip("/").endswith(".zarr")
    is_store |= any(os.path.isfile(os.path.join(file, name)) for name in _ZARR_FILES)
    return is_store or file.lower().endswith(SUFFIXES)


def _check_libraries(index: Index) -> None:
    """Raise CommandError if a library is missing that reads the arrays for comparison."""
    arrays = [one for note in index[NOTE].unique().to_pylist() for one in unpacked(note).values()]
    names = ["xarray"]
    names += ["h5netcdf", "h5py"] if any(one.file_bytes for one in arrays) else []
    names += ["zarr"] if any(not one.file_bytes for one in arrays) else []
    if missing := [name for name in names if importlib.util.find_spec(name) is None]:
        raise CommandError(
            f"verify compares arrays with xarray, and {' and '.join(missing)} cannot be imported: "
            f"pip install {' '.join(missing)}"
        )


def by_xarray(row: Row, hdu: HduName | None, window: Area | None) -> Truth:
    """Read all variables of a row, or a window of them, by xarray. The HDU is ignored.

    What xarray itself does not open, such as Zarr without names of axes, is read by zarr-python or
    h5py, and decoded by xarray.
    """
    del hdu
    truth = Truth(decoder="xarray")
    with complaints_to(truth):
        _read(truth, row, window)
    return truth


def _read(truth: Truth, row: Row, window: Area | None) -> None:
    import numpy as np
    import psutil

    arrays = unpacked(row.notes[NOTE])
    truth.codec = ",".join(sorted({_codec(one) for one in arrays.values()}))
    size = next(iter(arrays.values())).image_size
    if window is not None:
        window.check(*size)
        size = window.height, window.width
    # As stored, in 64 bits, and in 32.
    if 20 * math.prod(size) * len(arrays) > psutil.virtual_memory().available:
        raise MemoryError(f"{len(arrays)} variables of {size} do not fit into memory")
    values, decoders = zip(*(_values(row, one, window) for one in arrays.values()), strict=True)
    truth.decoder = ",".join(dict.fromkeys(decoders))
    truth.dtype = ",".join(dict.fromkeys(one.dtype.name for one in values))
    with np.errstate(over="ignore"):
        truth.values = np.stack([one.astype(np.float32) for one in values])
    truth.shape = truth.values.shape


def _codec(array: ChunkedArray) -> str:
    """Return the filters of a variable in words."""
    if array.inner is not None:
        return f"sharded {_codec(array.inner)}"
    return "+".join(one["id"] for one in array.codecs if one["id"] != SHARD) or "plain"


def _values(row: Row, array: ChunkedArray, window: Area | None) -> tuple[NDArray[Any], str]:
    """Return the values of a variable in the window, and the name of the library."""
    parts = iter((slice(None), slice(None)) if window is None else window.slices())
    where = tuple(
        next(parts) if selected is None else row.plane if selected == ROW else selected
        for selected in array.select
    )
    with suppress(ImportError):  # the filters of h5py
        import hdf5plugin  # noqa: F401
    try:
        return _by_xarray(row, array, where), "xarray"
    except Exception as error:  # of any kind
        try:
            return _by_its_library(row, array, where)
        except Exception:
            raise error from None


def _by_xarray(row: Row, array: ChunkedArray, where: tuple[Any, ...]) -> NDArray[np.generic]:
    group, _, variable = array.variable.rpartition("/")
    found = _dataset(row.path, group, bool(array.file_bytes), row.places)[variable]
    return found.isel(dict(zip(found.dims, where, strict=True))).values


@functools.lru_cache(maxsize=8)
def _dataset(path: str, group: str, is_hdf5: bool, places: Any) -> Any:
    """Return an open group; a process that compares has a few of them open."""
    import xarray as xr

    how: dict[str, Any] = {**_AS_STORED, "cache": False}
    if is_hdf5:
        how |= {"engine": "h5netcdf", "phony_dims": "access", "group": group or None}
        return xr.open_dataset(_file(path, places), **how)
    store, folder = _store(path, places)
    return xr.open_dataset(store, engine="zarr", group=f"{folder}/{group}".strip("/"), **how)


def _file(path: str, places: Any) -> Any:
    """Return what h5py opens: the path, or a file object of a remote object."""
    if not is_url(path):
        return path
    from readers.places.file_object import BlockFile

    place = places.at(path)
    place.__enter__()
    return BlockFile(place)


def _store(path: str, places: Any) -> tuple[Any, str]:
    """Return what zarr-python opens, and the folder in it."""
    if not is_url(path):
        return path, ""
    from zarr.storage import ObjectStore

    from readers.places.stores import store_of

    root, key = located(path)
    return ObjectStore(store_of(root, places.storage), read_only=True), key.strip("/")


def _by_its_library(
    row: Row, array: ChunkedArray, where: tuple[Any, ...]
) -> tuple[NDArray[np.generic], str]:
    """Return values that h5py or zarr-python reads and xarray decodes."""
    import xarray as xr

    if array.file_bytes:
        import h5py

        with h5py.File(_file(row.path, row.places), "r") as file:
            found = file[array.variable]
            stored, attributes = found[where], dict(found.attrs)
        library = "h5py"
    else:
        import zarr

        store, folder = _store(row.path, row.places)
        folder = f"{folder}/{array.check.rpartition('/')[0]}".strip("/")
        opened = zarr.open_array(store, path=folder, mode="r")
        stored, attributes = opened[where], dict(opened.attrs)
        if "_ARRAY_DIMENSIONS" in attributes and opened.fill_value is not None:
            attributes["_FillValue"] = opened.fill_value  # as xarray reads Zarr 2
        library = "zarr-python"
    dataset = xr.Dataset({"v": (("y", "x"), stored, attributes)})
    return xr.decode_cf(dataset, **_AS_STORED)["v"].values, library
