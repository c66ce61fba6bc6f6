"""Group the rows of an Index by time into samples, with a file for each channel and offset."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from readers.chunks.array import NOTE
from readers.index.arrow import pa, pc
from readers.index.columns import ETAG, FILE_BYTES, LOCATING
from readers.index.grouping.frames import Frames, Offset, offsets_of, with_frames
from readers.index.grouping.nearest import ChannelFiles, each_once, shifted
from readers.index.image_axes import check_image_axes
from readers.index.schema import decoded, part_names
from readers.index.times import nanoseconds, times_of
from readers.messages import did_you_mean, printable

if TYPE_CHECKING:
    from astropy.units import Quantity

logger = logging.getLogger(__name__)

Missing = Literal["drop", "keep"]
"""Treatment of samples that lack a channel."""
_LISTED = 20
"""Maximum number of channels or frames in a message."""


@dataclass(frozen=True, kw_only=True)
class Grouping:
    """The arguments of `readers.index.table.Index.group`; see there.

    Raises
    ------
    ValueError
        If an argument is out of range, or two contradict each other.
    """

    channels: Sequence[Any] | None
    by: str = "wavelnth"
    time: str = "t_obs"
    tolerance: float | str | Quantity = 12.0
    missing: Missing = "drop"
    cadence: float | str | Quantity | None = None
    offsets: Sequence[Any] | None = None

    def __post_init__(self) -> None:
        if self.channels is None and self.offsets is None:
            raise ValueError("pass channels, or offsets, or both")
        is_several = isinstance(self.channels, Iterable) and not isinstance(self.channels, str)
        names = self._channel_names if is_several else []
        if self.channels is not None and not names:
            raise ValueError(
                f"channels must be a sequence of at least one value, got {self.channels!r}"
            )
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"channels must differ, got {', '.join(twice)} twice")
        if self.missing not in get_args(Missing):
            raise ValueError(f"missing must be one of {get_args(Missing)}, got {self.missing!r}")
        tolerance, cadence = self._tolerance_ns, self._cadence_ns
        if cadence is not None and cadence < max(1, 2 * tolerance):
            raise ValueError(
                f"cadence must be at least twice the tolerance of {tolerance / 1e9:g} s, got "
                f"{self.cadence!r}: otherwise one file can fit two samples"
            )
        _ = self._offsets  # to check them

    @property
    def frames(self) -> Frames:
        """Names of the channels and offsets of the samples."""
        offsets = () if self.offsets is None else tuple(one.name for one in self._offsets)
        return Frames(tuple(self._channel_names), offsets)

    @cached_property
    def _offsets(self) -> tuple[Offset, ...]:
        if self.offsets is None:
            return (Offset("", 0),)
        return offsets_of(self.offsets, 2 * self._tolerance_ns)

    @property
    def _channel_names(self) -> list[str]:
        return [str(channel) for channel in (() if self.channels is None else self.channels)]

    @property
    def _tolerance_ns(self) -> int:
        return nanoseconds("tolerance", self.tolerance)

    @property
    def _cadence_ns(self) -> int | None:
        return None if self.cadence is None else nanoseconds("cadence", self.cadence)

    def check(self, names: Sequence[str]) -> None:
        """Raise KeyError if `by` or `time` is not among the names of a table's columns."""
        for name in (self.by,) * (self.channels is not None) + (self.time,):
            if name not in names:
                meant = did_you_mean(str(name), names)
                raise KeyError(
                    f"grouping needs a column {name!r}: {meant}the Index has {', '.join(names)}; "
                    "add the column of a header keyword by Index.scan(data, keys=[...]), "
                    "with_keys(index, keys) or dali-pipelines index --keys, or name another column"
                )

    def apply(self, table: pa.Table) -> tuple[pa.Table, Dropped]:
        """Return the table of samples, see `Index.group`, and the dropped samples."""
        if parts := part_names(table):
            raise ValueError(
                f"the rows are already samples of several files ({', '.join(parts)}): group an "
                "Index of single files, with channels and offsets in one call"
            )
        self.check(table.column_names)
        check_image_axes(table)
        file_times, timed = times_of(table, self.time)
        belonging = self._belonging(table)
        channels = self._channels(belonging, file_times, timed)
        times = self._sample_times(channels)
        files = np.stack(
            [
                channel.nearest(
                    times, self._tolerance_ns, offset.nanoseconds, once=self.offsets is None
                )
                for offset in self._offsets
                for channel in channels
            ]
        )
        present = files >= 0
        kept = (np.logical_and if self.missing == "drop" else np.logical_or).reduce(present)
        if not kept.any():
            raise ValueError(self._nothing_left(channels, times, present))
        dropped = Dropped.by(kept, present, self.frames.parts)
        times, files, present = times[kept], files[:, kept], present[:, kept]
        _log_skipped(table, self.time, belonging, timed, channels, files)
        first = files[present.argmax(axis=0), np.arange(len(times))]
        columns = {**_located(table, first, ""), "time": pa.array(times, pa.timestamp("ns"))}
        for part, rows in zip(self.frames.parts, files, strict=True):
            columns |= _located(table, rows, f"_{part}")
            away = (file_times[rows] - times) / 1e9
            columns[f"dt_{part}"] = pa.array(np.where(rows >= 0, away, math.nan))
        return with_frames(pa.table(columns), self.frames), dropped

    def _belonging(self, table: pa.Table) -> list[NDArray[np.bool_]]:
        """Return a mask of the rows of each channel."""
        if self.channels is None:
            return [np.ones(table.num_rows, bool)]
        belonging = [_equal(table[self.by], channel) for channel in self.channels]
        for channel, belongs in zip(self.channels, belonging, strict=True):
            if not belongs.any():
                raise ValueError(
                    f"column {self.by!r} has no {channel!r}, it has {_values(table[self.by])}"
                )
        return belonging

    def _channels(
        self,
        belonging: list[NDArray[np.bool_]],
        times: NDArray[np.int64],
        timed: NDArray[np.bool_],
    ) -> list[ChannelFiles]:
        """Return the files of each channel: its rows with times."""
        names = [""] if self.channels is None else [f" of {each!r}" for each in self.channels]
        channels = []
        for belongs, of in zip(belonging, names, strict=True):
            rows = np.flatnonzero(belongs & timed)
            if not len(rows):
                raise ValueError(
                    f"column {self.time!r} is empty in all {belongs.sum()} rows{of}: name another "
                    "column of times"
                )
            unique, first = np.unique(times[rows], return_index=True)  # first row of each time
            channels.append(ChannelFiles(unique, rows[first]))
        return channels

    def _sample_times(self, channels: list[ChannelFiles]) -> NDArray[np.int64]:
        cadence = self._cadence_ns
        if cadence is None:
            return channels[0].times
        before = []
        for offset in self._offsets:
            for channel in channels:
                times, exist = shifted(channel.times, -offset.nanoseconds)
                before.append(each_once(times[exist] // cadence))
        around = np.concatenate([*before, *(number + 1 for number in before)])
        return each_once(np.sort(around, kind="stable")) * cadence

    def _nothing_left(
        self, channels: list[ChannelFiles], times: NDArray[np.int64], present: NDArray[np.bool_]
    ) -> str:
        found = [(offset, channel) for offset in self._offsets for channel in channels]
        names = list(self.channels or ()) if self.offsets is None else list(self.frames.parts)
        counts = []
        for name, (offset, channel), count in zip(names, found, present.sum(axis=1), strict=True):
            counts.append(f"{count} have {name!r}")
            if not count:
                seconds = channel.least_distance(times, offset.nanoseconds) / 1e9
                counts[-1] += f" (the nearest is {seconds:.12g} s away)"
        if (more := len(counts) - _LISTED) > 0:
            counts[_LISTED:] = [f"and so on for {more} more"]
        what = "channels" if self.offsets is None else "frames"
        return (
            f"no sample has all {what} within {self._tolerance_ns / 1e9:g} s: of "
            f"{present.shape[1]} times, {', '.join(counts)}; use a larger tolerance, fewer "
            f"{what}, or missing='keep'"
        )


def _equal(column: pa.ChunkedArray, channel: Any) -> NDArray[np.bool_]:
    column = decoded(column)
    try:
        value = pa.scalar(channel).cast(column.type)
    except pa.ArrowException:  # the column cannot hold this value
        return np.zeros(len(column), bool)
    return pc.fill_null(pc.equal(column, value), False).to_numpy()


def _values(column: pa.ChunkedArray) -> str:
    counts = column.drop_null().value_counts().to_pylist()
    counts.sort(key=lambda count: -count["counts"])
    listed = [f"{count['values']!r} ({count['counts']} rows)" for count in counts[:_LISTED]]
    more = len(counts) - len(listed)
    return ", ".join(listed + [f"{more} more"] * (more > 0)) or "no values"


def _located(table: pa.Table, rows: NDArray[np.int64], suffix: str) -> dict[str, Any]:
    """Return the columns that locate the files of some rows; null for row -1."""
    chosen = pa.array(rows, mask=rows < 0)
    # Not string, because paths may take more than 2 GiB.
    columns = {f"path{suffix}": table["path"].cast(pa.large_string()).take(chosen)}
    for name in (*LOCATING, ETAG, FILE_BYTES, NOTE):
        if name in table.column_names:
            columns[f"{name}{suffix}"] = table[name].take(chosen)
    return columns


@dataclass(frozen=True)
class Dropped:
    """Counts of samples that are dropped because they lack a file."""

    count: int
    """Number of dropped samples."""
    of: int
    """Number of all samples, including the dropped ones."""
    missing: Mapping[str, int]
    """Number of dropped samples that lack each part."""

    @classmethod
    def by(
        cls, kept: NDArray[np.bool_], present: NDArray[np.bool_], parts: Sequence[str]
    ) -> Dropped:
        """Count by masks of kept samples, shape (n,), and of existing parts, shape (parts, n)."""
        dropped = present.any(axis=0) & ~kept  # a time without any file is not a sample
        lacking = (~present[:, dropped]).sum(axis=1).tolist()
        return cls(
            int(dropped.sum()), int((dropped | kept).sum()), dict(zip(parts, lacking, strict=True))
        )

    def __str__(self) -> str:
        """Describe the dropped samples in a line."""
        listed = [f"{part} is missing in {count}" for part, count in self.missing.items() if count]
        if (more := len(listed) - _LISTED) > 0:
            listed[_LISTED:] = [f"and so on for {more} more"]
        return f"{self.count} of {self.of} samples dropped: {', '.join(listed)}"

    def log(self) -> None:
        """Log the line, as a warning if more than half are dropped."""
        if self.count:
            level = logging.WARNING if 2 * self.count > self.of else logging.INFO
            logger.log(level, "%s; a larger tolerance or missing='keep' keeps more", self)


def _log_skipped(
    table: pa.Table,
    time: str,
    belonging: Sequence[NDArray[np.bool_]],
    timed: NDArray[np.bool_],
    channels: Sequence[ChannelFiles],
    files: NDArray[np.int64],
) -> None:
    """Log the number of rows that are in no sample, by reason.

    `belonging` and `timed` are masks of the rows of each channel, and of rows with a time. `files`
    has the rows of the samples, -1 for missing files.
    """
    wanted = np.logical_or.reduce(belonging)
    searched = _mask(len(wanted), (channel.rows for channel in channels))
    used = _mask(len(wanted), [files[files >= 0]])
    same = f"they have the same {time!r} as another row of their channel"
    for level, why, rows in (
        (logging.WARNING, f"they have no {time!r}", wanted & ~timed),
        (logging.WARNING, same, wanted & timed & ~searched),
        # Not a warning: the number depends on the tolerance, the cadence and `missing`.
        (logging.INFO, "they are not the nearest file of any kept sample", searched & ~used),
    ):
        if count := int(rows.sum()):
            first = printable(table["path"][int(rows.argmax())])
            logger.log(
                level,
                "%d of %d rows are in no sample: %s, the first: %s",
                *(count, wanted.sum(), why, first),
            )


def _mask(count: int, chosen: Iterable[NDArray[np.int64]]) -> NDArray[np.bool_]:
    """Return a mask of `count` rows that is True for these rows."""
    mask = np.zeros(count, bool)
    for rows in chosen:
        mask[rows] = True
    return mask
