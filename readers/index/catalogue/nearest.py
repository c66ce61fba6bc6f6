"""Join of a table by time: each row of an Index gets the values of the nearest row of a table."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from readers.index.arrow import pa
from readers.index.catalogue.tables import Objects
from readers.index.grouping.nearest import ChannelFiles
from readers.index.schema import check_column
from readers.index.times import nanoseconds, times_of

if TYPE_CHECKING:
    from astropy.units import Quantity

logger = logging.getLogger(__name__)


def with_nearest(
    table: pa.Table,
    objects: Objects,
    tolerance: float | str | Quantity,
    *,
    time: str,
    object_time: str,
    columns: Sequence[str] | Mapping[str, str] | None,
) -> pa.Table:
    """Return the table with columns of the objects nearest in time to each row.

    See `readers.index.table.Index.with_nearest`.
    """
    limit = nanoseconds("tolerance", tolerance)
    check_column(table, time)
    objects.check([object_time])
    kept = objects.kept(columns, [object_time])
    if twice := sorted({*kept.column_names} & {*table.column_names, "hdu", "plane"}):
        raise ValueError(
            f"columns {', '.join(twice)} exist in the Index, or have a meaning for it: leave them "
            "out, or set columns={'name in the table': 'new name'}"
        )
    times, timed = times_of(table, time)
    others, exist = objects.times(object_time)
    numbers = np.flatnonzero(exist)
    different, first = np.unique(others[numbers], return_index=True)  # first row of each time
    rows = np.full(len(times), -1)
    if len(numbers):
        channel = ChannelFiles(different, numbers[first])
        rows = np.where(timed, channel.nearest(times, limit, once=False), rows)
    chosen = pa.array(rows, mask=rows < 0)
    for name in kept.column_names:
        table = table.append_column(name, kept[name].combine_chunks().take(chosen))
    if without := int((rows < 0).sum()):
        logger.warning(
            "%d of %d rows are null in the new columns, as the catalogue has no time within %s",
            *(without, len(table), tolerance),
        )
    return table
