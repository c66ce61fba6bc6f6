"""Rows of HDF5 and netCDF4 files: one for each file, or one for each position on an axis."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from readers.chunks.array import NOTE, ChunkedArray, packed
from readers.chunks.hdf5 import Hdf5File, Hdf5Variable, for_plane, open_hdf5
from readers.errors import reason_of
from readers.index.arrow import pa
from readers.index.chunk_rows import (
    Positions,
    check_lengths,
    chosen,
    chunked_arrays,
    column_of,
    columns_of,
    joined,
    with_rows,
    with_times,
)
from readers.index.skipped import Skipped
from readers.messages import did_you_mean, printable
from readers.places.failures import is_of_store
from readers.places.opener import Places


def hdf5_table(
    files: pa.Table,
    variables: Sequence[str] | None,
    dim: str | None,
    isel: Mapping[str, Positions] | None,
    columns: Mapping[str, str] | None,
    places: Places,
    progress: Callable[[Iterable[Any]], Iterable[Any]] = iter,
) -> pa.Table:
    """Return the table of `readers.index.table.Index.scan_arrays` for these files."""
    found = file_tables(files, variables, dim, isel, columns, places)
    tables: list[pa.Table] = []
    skipped, first = Skipped(), None
    for path, each in zip(files["path"].to_pylist(), progress(found), strict=True):
        if isinstance(each, Exception):
            first = first or type(each)(f"{printable(path)}: {each}")
            skipped.reject("files that cannot be read", path, each)
        else:
            tables.append(each)
    if not tables and first is not None:
        raise first
    skipped.log()
    return joined(tables)


def file_tables(
    files: pa.Table,
    variables: Sequence[str] | None,
    dim: str | None,
    isel: Mapping[str, Positions] | None,
    columns: Mapping[str, str] | None,
    places: Places,
) -> Iterator[pa.Table | OSError | ValueError]:
    """Yield the rows of each file, or the reason why it cannot be read; see `hdf5_table`.

    Raises
    ------
    ImportError
        If h5py is not installed.
    OSError
        If remote storage does not answer, because the remaining files would wait as long.
    ValueError
        If a column has the name of a column of `files`.
    """
    needed = variables and [*variables, *(columns or {}).values(), *([dim] if dim else [])]
    for number, path in enumerate(files["path"].to_pylist()):
        try:
            with open_hdf5(path, places, needed) as file:
                found = _table_of(file, variables, dim, isel or {}, columns)
        except (OSError, ValueError) as error:
            if is_of_store(error):
                raise
            yield type(error)(reason_of(error, path))
            continue
        for name in reversed(files.column_names):
            if name in found.column_names:
                raise ValueError(f"columns: the files have a column {name!r}, choose another name")
            found = found.add_column(0, name, pa.repeat(files[name][number], len(found)))
        yield found


def _table_of(
    file: Hdf5File,
    variables: Sequence[str] | None,
    dim: str | None,
    isel: Mapping[str, Positions],
    columns: Mapping[str, str] | None,
) -> pa.Table:
    """Return the rows of a file."""
    try:
        found = chosen(file, variables, dim, isel)
    except ValueError as error:
        if not (links := file.links()) or variables is not None:
            raise
        shown = ", ".join(f"{name} to {path}" for name, path in links.items())
        raise ValueError(f"{error}; links to other files are not followed: {shown}") from error
    arrays = chunked_arrays(file, found, variables, dim, isel)
    num_rows = check_lengths(arrays, dim)
    table: dict[str, Any] = {}
    if dim is not None:
        table["plane"] = pa.array(np.arange(num_rows, dtype=np.int32))
        table |= columns_of(file, with_rows(found, dim), dim, columns, num_rows)
    else:
        first = next(iter(found.values()))
        table |= {name: _scalar(file, first, of) for name, of in (columns or {}).items()}
    table[NOTE] = pa.array(_notes(arrays, num_rows if dim is not None else None), pa.large_binary())
    return pa.table(table)


def _notes(arrays: Sequence[ChunkedArray], num_planes: int | None) -> list[bytes]:
    """Return the note of each row, with the chunks that it can need."""
    if num_planes is None:
        return [packed([for_plane(one, None) for one in arrays])]
    notes: list[bytes] = []
    last: tuple[int, ...] | None = None
    for plane in range(num_planes):
        # Rows in the same chunks have the same note.
        numbers = tuple(
            plane // one.chunks[one.row_axis] for one in arrays if one.num_planes is not None
        )
        if numbers != last:
            note = packed([for_plane(one, plane) for one in arrays])
        notes.append(note)
        last = numbers
    return notes


def _scalar(file: Hdf5File, variable: Hdf5Variable, name: str) -> pa.Array:
    """Return a variable or attribute with one value as a column."""
    one = file.get(name)
    if one is not None:
        if one.shape not in ((), (1,)):
            raise ValueError(
                f"{name!r} has shape {one.shape}, expected one value: name an axis by dim= to make "
                "a row for each of its positions"
            )
        return column_of(file, name, one)
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
