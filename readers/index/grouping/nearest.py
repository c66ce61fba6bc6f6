"""Search for the file nearest to a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class ChannelFiles:
    """Files of one channel, in order of time."""

    times: NDArray[np.int64]
    """Shape (n,), nanoseconds since 1970, ascending, without duplicates."""
    rows: NDArray[np.int64]
    """Shape (n,), rows of the table."""

    def nearest(
        self, times: NDArray[np.int64], tolerance: int, shift: int = 0, *, once: bool = True
    ) -> NDArray[np.int64]:
        """Return the row nearest to each time plus `shift`; -1 for none within the tolerance.

        The earlier of two equally near rows is taken. With `once`, each row is returned at most
        once, and the times must be ascending.
        """
        wanted, exists = shifted(times, shift)
        files, distance = self._nearest(wanted)
        chosen = np.flatnonzero(exists & (distance <= np.uint64(tolerance)))
        if once:
            chosen = chosen[_last_of_nearest(files[chosen], distance[chosen])]
        rows = np.full(len(wanted), -1)
        rows[chosen] = self.rows[files[chosen]]
        return rows

    def least_distance(self, times: NDArray[np.int64], shift: int = 0) -> int:
        """Return the smallest distance between a file and one of these times, in nanoseconds."""
        wanted, exists = shifted(times, shift)
        limit = np.iinfo(np.uint64).max
        return int(self._nearest(wanted)[1][exists].min(initial=limit))

    def _nearest(self, wanted: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.uint64]]:
        """Return the number of the file nearest to each time, and its distance."""
        right = np.searchsorted(self.times, wanted)
        left = right - 1
        # Unsigned, because the difference of two times may exceed int64.
        limit = np.iinfo(np.uint64).max
        before = (wanted - self.times[left]).view(np.uint64)
        before[right == 0] = limit
        after = (self.times[np.minimum(right, len(self.times) - 1)] - wanted).view(np.uint64)
        after[right == len(self.times)] = limit
        return np.where(before <= after, left, right), np.minimum(before, after)


def shifted(times: NDArray[np.int64], shift: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return times plus `shift`, and a mask of the sums that fit into 64 bits."""
    limits = np.iinfo(np.int64)
    exists = times <= limits.max - shift if shift > 0 else times >= limits.min - shift
    return times + shift, exists


def each_once(ascending: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return ascending numbers without repeats."""
    # np.unique uses a hash table, which takes ten times as long here.
    is_new = np.ones(len(ascending), bool)
    is_new[1:] = ascending[1:] != ascending[:-1]
    return ascending[is_new]


def _last_of_nearest(files: NDArray[np.int64], distance: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the index of the last smallest distance in each run of equal files."""
    if not len(files):
        return files
    starts = np.flatnonzero(np.diff(files, prepend=-1))
    least = np.minimum.reduceat(distance, starts)
    nearest = np.flatnonzero(distance == np.repeat(least, np.diff(starts, append=len(files))))
    return nearest[np.diff(files[nearest], append=-1) != 0]
