"""Columns from a table by time: for each row of an Index those of the nearest row of the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from readers.index.catalogue.tables import Objects
from readers.index.grouping.nearest import Channel
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
    kept = objects.kept(columns, [object_time])
    if twice := sorted({*kept.column_names} & {*table.column_names, "hdu", "plane"}):
        raise ValueError(
            f"the Index has columns {', '.join(twice)}, too, or would read other images by them: "
            "leave them out, or give columns={'name in the table': 'new name'}"
        )
    times, timed = times_of(table, time)
    others, exist = objects.times(object_time)
    numbers = np.flatnonzero(exist)
    different, first = np.unique(others[numbers], return_index=True)  # of equal times the first row
    rows = np.full(len(times), -1)
    if len(numbers):
        channel = Channel(different, numbers[first])
        rows = np.where(timed, channel.nearest(times, tolerance, once=False), rows)
    chosen = pa.array(rows, mask=rows < 0)
    for name in kept.column_names:
        table = table.append_column(name, kept[name].combine_chunks().take(chosen))
    return table, int((rows < 0).sum())
