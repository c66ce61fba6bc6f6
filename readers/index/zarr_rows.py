"""Rows of Zarr stores: one for each position on an axis, with columns of coordinates."""

from __future__ import annotations

import itertools
import logging
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from readers.chunks.array import NOTE, ROW, ChunkedArray, packed
from readers.chunks.reader import joined
from readers.chunks.values import check_dtype
from readers.chunks.zarr import ZarrStore, difference_of
from readers.index.arrow import pa
from readers.index.chunk_rows import (
    Positions,
    check_arguments,
    check_lengths,
    chosen,
    chunked_arrays,
    columns_of,
    with_rows,
)
from readers.index.chunk_rows import joined as joined_tables
from readers.index.paths import whole
from readers.messages import printable
from readers.places.opener import Places
from readers.places.urls import is_url

logger = logging.getLogger(__name__)

_LOOKED_FOR = 10_000
"""Maximum number of chunks of an array to look for, spread evenly."""


def zarr_table(
    root: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    variables: Sequence[str] | None,
    dim: str | None,
    isel: Mapping[str, Positions] | None,
    columns: Mapping[str, str] | None,
    places: Places,
) -> pa.Table:
    """Return the table of `readers.index.table.Index.from_zarr`."""
    check_arguments(variables, dim, isel, columns)
    roots = [root] if isinstance(root, str | os.PathLike) else list(root)
    if not roots:
        raise ValueError("expected the root of a Zarr store, or several, got none")
    tables = [
        _table_of(whole(os.fspath(one)), variables, dim, isel or {}, columns, places)
        for one in roots
    ]
    return joined_tables(tables)


def _table_of(
    root: str,
    variables: Sequence[str] | None,
    dim: str | None,
    isel: Mapping[str, Positions],
    columns: Mapping[str, str] | None,
    places: Places,
) -> pa.Table:
    try:
        store = ZarrStore(root, places)
        arrays = chosen(store, variables, dim, isel)
        for name, array in arrays.items():
            check_dtype(array.shown, np.dtype(array.chunked(name, ()).dtype))
        chunked = chunked_arrays(store, arrays, variables, dim, isel)
        if store.is_consolidated:
            _check_consolidated(store, chunked)
        if not is_url(root):
            for variable in arrays.values():
                _count_missing(root, [one for one in chunked if one.variable == variable.name])
        num_rows = check_lengths(chunked, dim)
        table: dict[str, Any] = {
            "path": pa.repeat(pa.scalar(root, pa.large_string()), num_rows),
            NOTE: pa.repeat(pa.scalar(packed(chunked), pa.large_binary()), num_rows),
        }
        if dim is not None:
            table["plane"] = pa.array(np.arange(num_rows, dtype=np.int32))
            table |= columns_of(store, with_rows(arrays, dim), dim, columns, num_rows)
        elif columns:
            raise ValueError("columns= also needs dim=, the name of the axis of the rows")
    except ValueError as error:
        raise ValueError(f"{printable(root)}: {error}") from error
    names = ["path", *(name for name in table if name not in ("path", NOTE)), NOTE]
    return pa.table({name: table[name] for name in names})


def _check_consolidated(store: ZarrStore, arrays: Sequence[ChunkedArray]) -> None:
    """Raise ValueError if the consolidated metadata differ from the metadata of the arrays."""
    for one in {one.variable: one for one in arrays}.values():
        if difference := difference_of(store.places, store.root, one):
            raise ValueError(
                f"the consolidated metadata of {one.name!r} are out of date ({difference}): "
                "consolidate them again"
            )


def _count_missing(root: str, levels: Sequence[ChunkedArray]) -> None:
    """Log how many chunks that rows need have no file, of the levels of one variable."""
    array = levels[0]
    grid: list[Sequence[int]] = []
    for axis, (length, chunk) in enumerate(zip(array.shape, array.chunks, strict=True)):
        positions = {one.select[axis] for one in levels}
        if positions <= {None, ROW}:
            grid.append(range(-(-length // chunk)))
        else:
            grid.append(sorted({one // chunk for one in positions if one is not None}))
    count = math.prod(map(len, grid))
    step = -(-count // _LOOKED_FOR)
    looked, missing = 0, 0
    for at in itertools.islice(itertools.product(*grid), 0, None, step):
        stored = array.places.find(at)
        looked += 1
        missing += stored is None or not os.path.exists(joined(root, stored.key))
    if missing:
        logger.warning(
            "%s: %d of %d examined chunks of %r have no file, and are read as the fill value %s; "
            "if the store was only copied in part, copy it again",
            *(printable(root), missing, looked, array.variable or array.name, array.fill_value),
        )
