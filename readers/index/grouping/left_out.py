"""Rows of the grouped channels that are in no sample: the log says how many, and why."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from readers.index.grouping.nearest import Channel
from readers.messages import printable

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)


def log_left_out(
    table: pa.Table,
    time: str,
    belonging: Sequence[NDArray[np.bool_]],
    timed: NDArray[np.bool_],
    channels: Sequence[Channel],
    files: NDArray[np.int64],
) -> None:
    """Write a line for each reason for which rows are in no sample.

    Parameters
    ----------
    table : pyarrow.Table
        The rows, n of them.
    time : str
        Name of the column of times.
    belonging : sequence of numpy.ndarray
        For each channel, shape (n,), which rows are of it.
    timed : numpy.ndarray
        Shape (n,), which rows have a time.
    channels : sequence of Channel
        The rows that were searched.
    files : numpy.ndarray
        Rows of the samples, -1 for missing ones; any shape.
    """
    wanted = np.logical_or.reduce(belonging)
    searched = _mask(len(wanted), (channel.rows for channel in channels))
    used = _mask(len(wanted), [files[files >= 0]])
    same = f"they have the {time!r} of another row of their channel"
    for level, why, rows in (
        (logging.WARNING, f"they have no {time!r}", wanted & ~timed),
        (logging.WARNING, same, wanted & timed & ~searched),
        # As many as the tolerance, the cadence and `missing` ask for.
        (logging.INFO, "they are the nearest file of none that is kept", searched & ~used),
    ):
        if count := int(rows.sum()):
            first = printable(table["path"][int(rows.argmax())])
            logger.log(
                level,
                "%d of %d rows are in no sample: %s, the first: %s",
                *(count, wanted.sum(), why, first),
            )


def _mask(count: int, chosen: Iterable[NDArray[np.int64]]) -> NDArray[np.bool_]:
    """Return which of so many rows are chosen."""
    mask = np.zeros(count, bool)
    for rows in chosen:
        mask[rows] = True
    return mask
