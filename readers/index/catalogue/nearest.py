"""Columns from a table by time: for each row of an Index those of the nearest row of the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from readers.index.catalogue.tables import ROW, Objects
from readers.index.schema import check_column
from readers.index.times import times_of

if TYPE_CHECKING:
    import pyarrow as pa


def nearest_columns(
    table: pa.Table,
    objects: Objects,
    tolerance: int,
    *,
    time: str,
    object_time: str,
    columns: Sequence[str] | Mapping[str, str] | None,
) -> tuple[pa.Table, int]:
    """Return the table with columns of the objects nearest in time, and how many rows have none.

    The parameters are those of `readers.index.catalogue.methods.IndexCutouts.with_nearest`, the
    tolerance in nanoseconds.
    """
    import pyarrow as pa

    check_column(table, time)
    objects.check([object_time])
    kept = objects.kept(columns, [object_time]).drop_columns([ROW])
    if twice := sorted({*kept.column_names} & {*table.column_names}):
        raise ValueError(
            f"the Index has columns {', '.join(twice)}, too: leave them out, or give columns="
            "{'name in the table': 'new name'}"
        )
    own = times_of(table, time)
    others = times_of(pa.table({object_time: objects.column(object_time)}), object_time)
    rows = _nearest(*own, *others, tolerance)
    chosen = pa.array(rows, mask=rows < 0)
    for name in kept.column_names:
        table = table.append_column(name, kept[name].combine_chunks().take(chosen))
    return table, int((rows < 0).sum())


def _nearest(
    times: NDArray[np.int64],
    valid: NDArray[np.bool_],
    others: NDArray[np.int64],
    others_valid: NDArray[np.bool_],
    tolerance: int,
) -> NDArray[np.int64]:
    """Return for each time the number of the nearest other one, the earlier of two, -1 for none."""
    order = np.flatnonzero(others_valid)
    order = order[np.argsort(others[order], kind="stable")]
    found = np.full(len(times), -1)
    if not len(order):
        return found
    ordered = others[order]
    after = np.searchsorted(ordered, times).clip(max=len(order) - 1)
    before = (after - 1).clip(min=0)
    # Unsigned, as times may be further apart than 292 years.
    distance = np.stack([_apart(ordered[one], times) for one in (before, after)])
    # Of equal times the first row of the table.
    first = np.searchsorted(ordered, ordered[np.where(distance[0] <= distance[1], before, after)])
    is_near = valid & (distance.min(axis=0) <= np.uint64(tolerance))
    return np.where(is_near, order[first], found)


def _apart(first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.uint64]:
    larger, smaller = np.maximum(first, second), np.minimum(first, second)
    return larger.view(np.uint64) - smaller.view(np.uint64)
