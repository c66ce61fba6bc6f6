"""Group the rows of an Index into samples of several files, one per channel, by time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from readers.index.times import nanoseconds, times_of

if TYPE_CHECKING:
    import pyarrow as pa
    from astropy.units import Quantity

Missing = Literal["drop", "keep"]
"""Whether to drop a sample that lacks a channel, or to keep it."""

_LISTED = 20


@dataclass(frozen=True, kw_only=True)
class Grouping:
    """The arguments of `readers.index.table.Index.group`, where they are described.

    Raises
    ------
    ValueError
        If one is out of range, or two contradict each other.
    """

    channels: Sequence[Any]
    by: str = "wavelnth"
    time: str = "t_obs"
    tolerance: float | str | Quantity = 12.0
    missing: Missing = "drop"
    cadence: float | str | Quantity | None = None

    def __post_init__(self) -> None:
        if isinstance(self.channels, str) or not len(self.channels):
            raise ValueError(
                f"channels must be a sequence of at least one value, got {self.channels!r}"
            )
        names = [str(channel) for channel in self.channels]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"channels must be given once each, got {', '.join(twice)} again")
        if self.missing not in get_args(Missing):
            raise ValueError(f"missing must be one of {get_args(Missing)}, got {self.missing!r}")
        tolerance, cadence = self._tolerance_ns, self._cadence_ns
        if cadence is not None and cadence < max(1, 2 * tolerance):
            raise ValueError(
                f"cadence must be at least twice the tolerance of {tolerance / 1e9:g} s, got "
                f"{self.cadence!r}: otherwise a file can be within the tolerance of two samples"
            )

    @property
    def _tolerance_ns(self) -> int:
        return nanoseconds("tolerance", self.tolerance)

    @property
    def _cadence_ns(self) -> int | None:
        return None if self.cadence is None else nanoseconds("cadence", self.cadence)

    def check(self, names: Sequence[str]) -> None:
        """Raise KeyError if `by` or `time` is not among the names of a table's columns."""
        for name in (self.by, self.time):
            if name not in names:
                raise KeyError(
                    f"grouping needs a column {name!r}, the Index has {', '.join(names)}: make the "
                    f"Index with scripts/index.py --keys ...,{name.upper()}, or name another column"
                )

    def apply(self, table: pa.Table) -> pa.Table:
        """Return the table of samples, see `readers.index.table.Index.group`."""
        import pyarrow as pa

        self.check(table.column_names)
        file_times, timed = times_of(table, self.time)
        channels = self._channels(table, file_times, timed)
        times = self._sample_times(channels)
        files = np.stack([channel.nearest(times, self._tolerance_ns) for channel in channels])
        present = files >= 0
        kept = present.all(axis=0) if self.missing == "drop" else present.any(axis=0)
        if not kept.any():
            raise ValueError(self._nothing_left(channels, times, present))
        times, files, present = times[kept], files[:, kept], present[:, kept]
        first = files[present.argmax(axis=0), np.arange(len(times))]
        columns = {**_located(table, first, ""), "time": pa.array(times, pa.timestamp("ns"))}
        for channel, rows in zip(self.channels, files, strict=True):
            columns |= _located(table, rows, f"_{channel}")
            away = (file_times[rows] - times) / 1e9
            columns[f"dt_{channel}"] = pa.array(np.where(rows >= 0, away, math.nan))
        return pa.table(columns)

    def _channels(
        self, table: pa.Table, times: NDArray[np.int64], timed: NDArray[np.bool_]
    ) -> list[_Channel]:
        channels = []
        for channel in self.channels:
            belongs = _equal(table[self.by], channel)
            if not belongs.any():
                raise ValueError(
                    f"column {self.by!r} has no {channel!r}, it has {_values(table[self.by])}"
                )
            rows = np.flatnonzero(belongs & timed)
            if not len(rows):
                raise ValueError(
                    f"column {self.time!r} is empty in all {belongs.sum()} rows of {channel!r}: "
                    "name another column of times"
                )
            # If several files have the same time, this selects the first row.
            unique, first = np.unique(times[rows], return_index=True)
            channels.append(_Channel(unique, rows[first]))
        return channels

    def _sample_times(self, channels: list[_Channel]) -> NDArray[np.int64]:
        cadence = self._cadence_ns
        if cadence is None:
            return channels[0].times
        before = [_each_once(channel.times // cadence) for channel in channels]
        around = np.concatenate([*before, *(number + 1 for number in before)])
        return _each_once(np.sort(around, kind="stable")) * cadence

    def _nothing_left(
        self, channels: list[_Channel], times: NDArray[np.int64], present: NDArray[np.bool_]
    ) -> str:
        counts = []
        for name, channel, count in zip(self.channels, channels, present.sum(axis=1), strict=True):
            counts.append(f"{count} have {name!r}")
            if not count:
                seconds = channel.least_distance(times) / 1e9
                counts[-1] += f" (the nearest is {seconds:.12g} s off)"
        return (
            f"no sample has all channels within {self._tolerance_ns / 1e9:g} s: of "
            f"{present.shape[1]} times, {', '.join(counts)}; use a larger tolerance, fewer "
            "channels, or missing='keep'"
        )


@dataclass(frozen=True)
class _Channel:
    times: NDArray[np.int64]
    """Shape (n,), nanoseconds since 1970, ascending, without duplicates."""
    rows: NDArray[np.int64]
    """Shape (n,), rows of the table."""

    def nearest(self, wanted: NDArray[np.int64], tolerance: int) -> NDArray[np.int64]:
        """Return the row for each of some ascending times, -1 for none; each row once at most."""
        files, distance = self._nearest(wanted)
        chosen = np.flatnonzero(distance <= np.uint64(tolerance))
        chosen = chosen[_last_of_nearest(files[chosen], distance[chosen])]
        rows = np.full(len(wanted), -1)
        rows[chosen] = self.rows[files[chosen]]
        return rows

    def least_distance(self, wanted: NDArray[np.int64]) -> int:
        """Return the smallest distance between a file and one of some times, in nanoseconds."""
        return int(self._nearest(wanted)[1].min())

    def _nearest(self, wanted: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.uint64]]:
        """Return the number of the file nearest to each time, and its distance."""
        right = np.searchsorted(self.times, wanted)
        left = right - 1
        # Unsigned, since the difference of two times may not fit into int64.
        limit = np.iinfo(np.uint64).max
        before = (wanted - self.times[left]).view(np.uint64)
        before[right == 0] = limit
        after = (self.times[np.minimum(right, len(self.times) - 1)] - wanted).view(np.uint64)
        after[right == len(self.times)] = limit
        return np.where(before <= after, left, right), np.minimum(before, after)


def _each_once(ascending: NDArray[np.int64]) -> NDArray[np.int64]:
    # np.unique uses a hash table, which takes ten times as long here.
    return ascending[np.append(True, ascending[1:] != ascending[:-1])]


def _last_of_nearest(files: NDArray[np.int64], distance: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the index of the last smallest distance in each run of equal files."""
    if not len(files):
        return files
    starts = np.flatnonzero(np.diff(files, prepend=-1))
    least = np.minimum.reduceat(distance, starts)
    nearest = np.flatnonzero(distance == np.repeat(least, np.diff(starts, append=len(files))))
    return nearest[np.diff(files[nearest], append=-1) != 0]


def _equal(column: pa.ChunkedArray, channel: Any) -> NDArray[np.bool_]:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
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
    """Return the path, HDU and plane of some rows, null for row -1."""
    import pyarrow as pa

    chosen = pa.array(rows, mask=rows < 0)
    # large_string, since paths may take more than 2 GiB.
    columns = {f"path{suffix}": table["path"].cast(pa.large_string()).take(chosen)}
    for name in ("hdu", "plane"):
        if name in table.column_names:
            columns[f"{name}{suffix}"] = table[name].take(chosen)
    return columns
