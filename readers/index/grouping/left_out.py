"""Samples that grouping leaves out, as they lack a file, and rows that are in no sample."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from readers.index.grouping.nearest import Channel
from readers.messages import printable

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

LISTED = 20
"""Channels, or frames, that a message names."""


@dataclass(frozen=True)
class Dropped:
    """Samples that are left out, as they lack a file."""

    count: int
    """Number of them."""
    of: int
    """Number of all samples, with them."""
    missing: Mapping[str, int]
    """Number of them that lack each part."""

    @classmethod
    def by(
        cls, kept: NDArray[np.bool_], present: NDArray[np.bool_], parts: Sequence[str]
    ) -> Dropped:
        """Count them by which samples are kept, shape (n,), and which parts exist, (parts, n)."""
        dropped = present.any(axis=0) & ~kept  # no sample is where no file is
        lacking = (~present[:, dropped]).sum(axis=1).tolist()
        return cls(
            int(dropped.sum()), int((dropped | kept).sum()), dict(zip(parts, lacking, strict=True))
        )

    def __str__(self) -> str:
        """Describe them in a line."""
        listed = [f"{part} is missing in {count}" for part, count in self.missing.items() if count]
        if (more := len(listed) - LISTED) > 0:
            listed[LISTED:] = [f"and so on for {more} more"]
        return f"{self.count} of {self.of} samples dropped: {', '.join(listed)}"

    def log(self) -> None:
        """Write the line, as a warning if they are more than half."""
        if self.count:
            level = logging.WARNING if 2 * self.count > self.of else logging.INFO
            logger.log(level, "%s; a larger tolerance or missing='keep' keeps more", self)


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
