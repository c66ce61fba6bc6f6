"""Tables of some rows of an Index, by number, and of the planes of each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from readers.index.schema import part_names
from readers.values import is_integer

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import ArrayLike


def selected(table: pa.Table, rows: ArrayLike) -> pa.Table:
    """Return rows by their numbers, or a mask, see `readers.index.table.Index.select`."""
    import pyarrow as pa

    chosen, count = np.asarray(rows), table.num_rows
    if chosen.dtype == bool and chosen.ndim > 0:
        if chosen.shape != (count,):
            raise ValueError(f"a mask must have shape ({count},), got {chosen.shape}")
        chosen = np.flatnonzero(chosen)
    if chosen.ndim != 1 or (len(chosen) and not np.issubdtype(chosen.dtype, np.integer)):
        what = rows if chosen.ndim == 0 else f"{chosen.dtype} of shape {chosen.shape}"
        raise TypeError(
            "select takes row numbers, integers of shape (k,), or a mask, bools of shape "
            f"({count},); got {what!s}"
        )
    for place in np.flatnonzero((chosen < 0) | (chosen >= count))[:1]:
        raise IndexError(f"row numbers must lie in [0, {count}), got {chosen[place]}")
    return table.take(pa.array(chosen, pa.int64()))


def plane_rows(table: pa.Table, planes: Iterable[int]) -> pa.Table:
    """Return a row for each plane of each row, see `readers.index.table.Index.each_plane`."""
    import pyarrow as pa

    numbers = [*planes] if isinstance(planes, Iterable) else []
    if not numbers or not all(is_integer(number, 0) for number in numbers):
        raise ValueError(
            f"planes must be one or more integers from 0 on, in a list, got {planes!r}"
        )
    if "plane" in table.column_names or part_names(table):
        raise ValueError("the rows must be single files without a column 'plane'")
    count = table.num_rows
    rows = table.take(pa.array(np.repeat(np.arange(count), len(numbers))))
    return rows.append_column("plane", pa.array(np.tile(np.array(numbers, np.int64), count)))
