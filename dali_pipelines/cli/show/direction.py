"""Direction of the rows of arrays in a picture: by their coordinate, as on a map."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from readers.chunks.array import NOTE, ChunkedArray, unpacked

if TYPE_CHECKING:
    import pyarrow as pa

    from readers.contract import Row
    from readers.places.opener import Places


def is_first_on_top(file: Row) -> bool:
    """Return whether the coordinate of the rows of an array decreases, as from north to south.

    Then xarray's plot has the first row on top. `file` needs the column that describes its arrays.
    The result is False if there is no readable coordinate, or if the file has no arrays.
    """
    note = file.notes.get(NOTE)
    return bool(note) and _is_decreasing(file.path, note, file.places)


@cache
def _is_decreasing(path: str, note: bytes, places: Places) -> bool:
    array = next(iter(unpacked(note).values()))
    try:
        found = _coordinate(path, array, places)
    except (ImportError, OSError, ValueError):  # the Reader says why it cannot be read
        return False
    if found is None or found.null_count == len(found):
        return False
    values = found.drop_null().to_numpy(zero_copy_only=False)
    return bool(np.issubdtype(values.dtype, np.number) and values[0] > values[-1])


def _coordinate(path: str, array: ChunkedArray, places: Places) -> pa.Array | None:
    """Return the coordinate of the rows of the images, or None."""
    from readers.chunks.hdf5 import open_hdf5
    from readers.chunks.zarr import ZarrStore

    if array.image_dimensions is None:
        return None
    if array.file_bytes:
        with open_hdf5(path, places) as opened:
            return _of_store(opened, array)
    return _of_store(ZarrStore(path, places), array)


def _of_store(store: Any, array: ChunkedArray) -> pa.Array | None:
    from readers.index.chunk_rows import column_of

    assert array.image_dimensions is not None
    name = array.image_dimensions[0]
    variable = store.array is None and store.get(array.variable)
    coordinate = store.coordinate(variable, name) if variable else None
    if coordinate is None or len(coordinate.shape) != 1:
        return None
    return column_of(store, name, coordinate)
