"""Rows of HDF5 and netCDF4 files: one for each file, or for each position of an axis in each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from readers.chunks.array import NOTE, ChunkedArray, packed
from readers.chunks.hdf5 import Hdf5File, Hdf5Variable, for_plane, open_hdf5
from readers.index.chunk_rows import (
    as_column,
    check_axes,
    check_lengths,
    chosen,
    columns_of,
    select_axes,
    with_times,
)
from readers.messages import did_you_mean, printable
from readers.places.opener import Places

if TYPE_CHECKING:
    import pyarrow as pa


def hdf5_table(
    files: pa.Table,
    variables: Sequence[str] | None,
    dim: str | None,
    isel: Mapping[str, int] | None,
    columns: Mapping[str, str] | None,
    places: Places,
) -> pa.Table:
    """Return the table of `readers.index.table.Index.scan_arrays`.

    Parameters
    ----------
    files : Table
        The files, as `Index.scan` finds them.
    variables, dim, isel, columns, places
        See there.
    """
    import pyarrow as pa

    tables = []
    for number, path in enumerate(files["path"].to_pylist()):
        try:
            with open_hdf5(path, places) as file:
                found = _table_of(file, variables, dim, isel or {}, columns)
        except (OSError, ValueError) as error:
            raise type(error)(f"{printable(path)}: {error}") from error
        for name in reversed(files.column_names):
            if name in found.column_names:
                raise ValueError(f"columns: the files have a column {name!r}, choose another name")
            value = files[name][number]
            found = found.add_column(0, name, pa.repeat(value, len(found)))
        tables.append(found)
    return pa.concat_tables(tables, promote_options="default").combine_chunks()


def _table_of(
    file: Hdf5File,
    variables: Sequence[str] | None,
    dim: str | None,
    isel: Mapping[str, int],
    columns: Mapping[str, str] | None,
) -> pa.Table:
    """Return the rows of a file."""
    import pyarrow as pa

    found = chosen(file, variables, dim, isel)
    arrays = [one.chunked(name, select_axes(one, dim, isel)) for name, one in found.items()]
    check_axes(found, isel)
    num_rows = check_lengths(arrays, dim)
    table: dict[str, Any] = {}
    if dim is not None:
        table["plane"] = pa.array(np.arange(num_rows, dtype=np.int32))
        table |= columns_of(file, next(iter(found.values())), dim, columns, num_rows)
    else:
        first = next(iter(found.values()))
        table |= {name: _scalar(file, first, of) for name, of in (columns or {}).items()}
    table[NOTE] = pa.array(_notes(arrays, num_rows if dim is not None else None), pa.large_binary())
    return pa.table(table)


def _notes(arrays: Sequence[ChunkedArray], num_planes: int | None) -> list[bytes]:
    """Return the note of each row: that of the chunks that it can need."""
    if num_planes is None:
        return [packed([for_plane(one, None) for one in arrays])]
    notes: list[bytes] = []
    last: tuple[int, ...] | None = None
    for plane in range(num_planes):
        # Rows in the same chunks have the same note.
        numbers = tuple(plane // one.chunks[one.row_axis] for one in arrays)
        if numbers != last:
            note = packed([for_plane(one, plane) for one in arrays])
        notes.append(note)
        last = numbers
    return notes


def _scalar(file: Hdf5File, variable: Hdf5Variable, name: str) -> pa.Array:
    """Return the one value of a variable or attribute of a file, as a column."""
    import pyarrow as pa

    one = file.get(name)
    if one is not None:
        values = file.line(one)
        if values.shape != (1,):
            raise ValueError(
                f"{name!r} has shape {one.shape}, expected one value: name an axis by dim= for a "
                "row of each of its positions"
            )
        return as_column(name, values, one.attributes)
    for attributes in (variable.attributes, file.attributes):
        if name in attributes:
            value = np.ravel(attributes[name])
            if len(value) != 1:
                raise ValueError(f"attribute {name!r} has {len(value)} values, expected one")
            return with_times(pa.array(value.tolist()))
    known = [*file.names(), *variable.attributes, *file.attributes]
    raise ValueError(
        f"there is no variable or attribute {name!r}, {did_you_mean(name, known)}it has "
        f"{', '.join(sorted(set(known)))}"
    )
