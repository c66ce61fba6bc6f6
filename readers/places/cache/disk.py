"""DiskCache: reads ranges of objects from local disk, and fetches what is not there."""

from __future__ import annotations

import bisect
import functools
import io
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from readers.cache.locks import locked
from readers.places.cache.folder import LOCKS, prepare
from readers.places.cache.ranges import CELL, CachedObject, by_cell, covered
from readers.places.cache.room import Room
from readers.places.cache.segments import Listing, Segment, boot_id, segment_name
from readers.places.contract import too_short

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

logger = logging.getLogger(__name__)

Fetch: TypeAlias = "Callable[[list[tuple[int, int]]], Sequence[ReadableBuffer]]"
"""Gets ranges of an object, (start, stop): their bytes, in the same order."""
_Piece: TypeAlias = tuple[int, memoryview]

_PATIENCE_S = 60
"""Seconds to wait for another's request for the same bytes, which is then made twice."""
_PAUSE_S = 60
"""Seconds without storing, after the disk was full or has failed."""


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Counts of what a DiskCache has done in this process."""

    hits: int = 0
    """Reads that needed nothing from elsewhere."""
    misses: int = 0
    """Reads that fetched something."""
    hit_bytes: int = 0
    """Bytes that were read from disk."""
    fetched_bytes: int = 0
    """Bytes that were fetched, whole blocks."""
    stored_bytes: int = 0
    """Of these, bytes that were written to disk."""


class DiskCache:
    """Cache of byte ranges in a folder of a local disk, for all processes of a machine.

    What a read gives is what `fetch` gave, for it or for an earlier read. No byte is fetched twice
    while another thread or process fetches it, and it has room. Where the disk is full, cannot be
    written or has no locks, bytes are fetched without it, after one warning in the log. A folder
    that is deleted is made again. It is used by any number of threads. A pickle holds its settings;
    all its copies in a process are one.

    Parameters
    ----------
    folder : str
        Folder for it alone, made with mode 0700 if it is missing.
    nbytes : int
        Bytes that it may take on disk, over all processes; folders and inodes are not counted.
        Where it is full, segments are removed by the rule of `shelves.to_evict`.

    Raises
    ------
    ValueError
        If the folder holds other files, or `nbytes` is less than 4 MiB.
    """

    def __init__(self, folder: str, nbytes: int) -> None:
        if nbytes < CELL:
            raise ValueError(f"a cache has at least {CELL} bytes, got {nbytes}")
        self.folder, self.nbytes = os.path.abspath(folder), nbytes
        self._boot = boot_id()
        self._room, self._listing = Room(self.folder, nbytes, self._boot), Listing(self.folder)
        self._lock, self._counts, self._warned = threading.Lock(), Counter[str](), False
        self._stores_from_s = 0.0
        try:
            prepare(self.folder)
            self._works = True
        except OSError as error:
            self._works = False
            self._warn(error)

    def __reduce__(self) -> tuple[Callable[[str, int], DiskCache], tuple[str, int]]:
        return _of_this_process, (self.folder, self.nbytes)

    @property
    def stats(self) -> CacheStats:
        """Counts of this process since it has this object."""
        with self._lock:
            return CacheStats(**self._counts)

    def read(self, key: str, size: int, start: int, stop: int, fetch: Fetch) -> bytes:
        """Read the bytes from `start` up to `stop`, fewer only where the object ends.

        Parameters
        ----------
        key : str
            What distinguishes the object, and its version, from all others: URL and ETag.
        size : int
            Length of the object.
        start, stop : int
            Range in it.
        fetch : callable
            ``fetch([(start, stop), ...])`` returns the bytes of ranges of the object; what it
            raises is raised. The ranges are whole blocks of 4 KiB, up to the end of the object.
        """
        stop = min(stop, size)
        if start >= stop:
            return b""
        buffer = io.BytesIO()  # lets its bytes be filled, and gives them without a copy
        buffer.seek(stop - start - 1)
        buffer.write(b"\0")
        with buffer.getbuffer() as view:
            self.fill(key, size, [(start, view)], fetch)
        return buffer.getvalue()

    def fill(self, key: str, size: int, pieces: Sequence[_Piece], fetch: Fetch) -> None:
        """Fill buffers of bytes, each from its own position; what is missing is fetched at once.

        Raises
        ------
        ValueError
            If the object is too short.
        OSError
            If `fetch` gives fewer or more bytes than it is asked for.
        """
        whole = CachedObject(key, size)
        for start, buffer in pieces:
            if start + len(buffer) > size:
                raise too_short(size, len(buffer), start)
        pieces = [piece for piece in pieces if len(piece[1])]
        if not self._works:
            ranges = [(start, start + len(buffer)) for start, buffer in pieces]
            for (_, buffer), (_, data) in zip(pieces, _fetched(fetch, ranges), strict=True):
                buffer[:] = data
            self._count(misses=1, fetched_bytes=_nbytes(pieces))
            return
        gaps = self._take(whole, pieces)
        fetched = 0
        if gaps:
            with self._alone(whole, gaps):
                gaps = self._take(whole, gaps)  # another may have fetched them meanwhile
                fetched = self._fetch(whole, gaps, fetch) if gaps else 0
        hit_bytes = _nbytes(pieces) - _nbytes(gaps)
        self._count(hits=not gaps, misses=bool(gaps), hit_bytes=hit_bytes, fetched_bytes=fetched)

    def _take(self, whole: CachedObject, pieces: Sequence[_Piece]) -> list[_Piece]:
        """Fill buffers from disk; return the parts of them that are missing."""
        gaps = []
        try:
            for start, buffer in pieces:
                stop = start + len(buffer)
                for segment, first, end in _cut(self._listing, whole, start, stop):
                    part = buffer[first - start : end - start]
                    if segment is None or not segment.read_into(self._boot, first, part):
                        gaps.append((first, part))
        except OSError as error:
            self._warn(error)
            return list(pieces)
        return gaps

    @contextmanager
    def _alone(self, whole: CachedObject, gaps: Sequence[_Piece]) -> Iterator[None]:
        """Keep others from fetching what is between the first gap and the last."""
        start = min(first for first, _ in gaps)
        [(start, stop)] = whole.runs([(start, max(first + len(part) for first, part in gaps))])
        at = 1 + whole.lock_base() + start
        with ExitStack() as stack:
            try:
                path = f"{self.folder}/{LOCKS}"
                stack.enter_context(locked(path, at, stop - start, _PATIENCE_S))
            except OSError as error:
                self._warn(error)
            yield

    def _fetch(self, whole: CachedObject, gaps: Sequence[_Piece], fetch: Fetch) -> int:
        """Fill gaps with bytes that are fetched, and store these; return how many."""
        runs = whole.runs((start, start + len(part)) for start, part in gaps)
        found = _fetched(fetch, runs)
        _copy(found, gaps)
        if time.monotonic() >= self._stores_from_s:
            try:
                for start, data in found:
                    self._store(whole, start, data)
            except OSError as error:
                self._stores_from_s = time.monotonic() + _PAUSE_S
                self._warn(error)
        return _nbytes(found)

    def _store(self, whole: CachedObject, start: int, data: memoryview) -> None:
        for cell, first, end in by_cell(start, start + len(data)):
            part = data[first - start : end - start]
            name = segment_name(whole.cell_name(cell), first, part, self._boot)
            if self._room.put(name, part):
                self._count(stored_bytes=len(part))

    def _count(self, **more: int) -> None:
        with self._lock:
            for name, count in more.items():
                self._counts[name] += count

    def _warn(self, error: OSError) -> None:
        """Warn once; a folder that was deleted is made again."""
        reason = f"bytes are fetched without the cache {self.folder}: {error}"
        if not os.path.exists(self.folder):
            with suppress(OSError, ValueError):
                prepare(self.folder)
                reason = f"the folder of the cache was deleted, and is made again: {self.folder}"
        with self._lock:
            warned, self._warned = self._warned, True
        if not warned:
            logger.warning("%s", reason)


@functools.cache
def _of_this_process(folder: str, nbytes: int) -> DiskCache:
    """Return the cache that a process has in place of all copies of one that it was sent."""
    return DiskCache(folder, nbytes)


def _cut(
    listing: Listing, whole: CachedObject, start: int, stop: int
) -> Iterator[tuple[Segment | None, int, int]]:
    """Cut a range into what segments hold, and what none does."""
    for cell, first, end in by_cell(start, stop):
        yield from covered(listing.segments(whole.cell_name(cell), first, end), first, end)


def _fetched(fetch: Fetch, runs: list[tuple[int, int]]) -> list[_Piece]:
    """Fetch runs, and check their lengths."""
    found = [memoryview(data).cast("B") for data in fetch(runs)]
    asked, given = [stop - start for start, stop in runs], [len(data) for data in found]
    if asked != given:
        raise OSError(f"{sum(given)} bytes came in {len(given)} ranges, expected {sum(asked)}")
    return [(start, data) for (start, _), data in zip(runs, found, strict=True)]


def _copy(found: Sequence[_Piece], pieces: Sequence[_Piece]) -> None:
    """Fill buffers from the sorted runs that contain them."""
    starts = [start for start, _ in found]
    for start, buffer in pieces:
        first, data = found[bisect.bisect_right(starts, start) - 1]
        buffer[:] = data[start - first : start - first + len(buffer)]


def _nbytes(pieces: Sequence[_Piece]) -> int:
    return sum(len(buffer) for _, buffer in pieces)
