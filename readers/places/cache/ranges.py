"""Arithmetic of byte ranges: blocks, cells, and what segments cover."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

BLOCK = 4 << 10
"""Missing bytes are widened to whole blocks: five rows of tiles of a window of 450 kB grow by 4 %,
where blocks of 64 KiB would make it 70 %."""
CELL = 4 << 20
"""Segments end where a cell ends, so that none is large, and those of a large object, e.g. a tar,
are spread over all folders."""


@dataclass(frozen=True, slots=True)
class CachedObject:
    """An object whose bytes never change.

    Parameters
    ----------
    key : str
        What distinguishes it from all others, e.g. URL and ETag.
    size : int
        Length, in bytes.
    """

    key: str
    size: int

    def cell_name(self, cell: int) -> str:
        """Return folder and first part of the names of the segments of a cell: a hash."""
        text = f"{self.key}\0{self.size}\0{cell}".encode("utf-8", "surrogatepass")
        name = hashlib.blake2b(text, digest_size=12).hexdigest()
        return f"{name[:3]}/{name[3:]}"

    def lock_base(self) -> int:
        """Return a number below 2**62 from which on its bytes have locks, seldom another's too."""
        text = self.key.encode("utf-8", "surrogatepass")
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()) >> 2

    def runs(self, gaps: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return the runs of whole blocks that hold the gaps: in order, apart from each other."""
        runs: list[tuple[int, int]] = []
        for start, stop in sorted(gaps):
            first, end = start // BLOCK * BLOCK, min(-(-stop // BLOCK) * BLOCK, self.size)
            if runs and first <= runs[-1][1]:
                runs[-1] = (runs[-1][0], max(end, runs[-1][1]))
            else:
                runs.append((first, end))
        return runs


class _Extent(Protocol):
    @property
    def start(self) -> int: ...
    @property
    def stop(self) -> int: ...


ExtentT = TypeVar("ExtentT", bound=_Extent)


def by_cell(start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Cut a range where cells end. Yields the number of the cell, start and stop."""
    while start < stop:
        cell = start // CELL
        end = min(stop, (cell + 1) * CELL)
        yield cell, start, end
        start = end


def covered(
    segments: Iterable[ExtentT], start: int, stop: int
) -> Iterator[tuple[ExtentT | None, int, int]]:
    """Cut a range into what segments, sorted by start, cover, and what none does.

    Yields the segment or None, start and stop.
    """
    for segment in segments:
        if start >= stop or segment.start >= stop:
            break
        if segment.stop <= start:
            continue
        if segment.start > start:
            yield None, start, segment.start
            start = segment.start
        end = min(stop, segment.stop)
        yield segment, start, end
        start = end
    if start < stop:
        yield None, start, stop
