"""DiskCache: reads ranges of objects from local disk; fetches and stores missing ranges."""

from __future__ import annotations

import bisect
import functools
import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, TypeAlias

from readers.cache.locks import locked
from readers.places.cache.cells import BLOCK, Piece, boot_id, cells
from readers.places.cache.room import LOCKS, Room, prepare
from readers.places.contract import too_short

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

logger = logging.getLogger(__name__)

Fetch: TypeAlias = "Callable[[list[tuple[int, int]]], Sequence[ReadableBuffer]]"
"""Function that returns the bytes of ranges (start, stop) of an object, in the same order."""

LEAST = 4 << 20
"""Smallest size of a cache, in bytes."""
_PATIENCE_S = 60
"""Seconds to wait for another process or thread that requests the same bytes."""
_PAUSE_S = 60
"""Seconds without storing after the disk was full or failed."""


class DiskCache:
    """Cache of byte ranges in a folder of a local disk, for all processes of a machine.

    It returns exactly the bytes that were fetched. If several threads and processes need the same
    bytes, one of them fetches and the others wait. If the disk is full, not writable or without
    locks, bytes are fetched without the cache, after one warning in the log. A deleted folder is
    made again. Any number of threads may use a cache. A pickle holds only settings, and all
    unpickled copies in a process are one object.

    Parameters
    ----------
    folder : str
        Folder without other files; created with mode 0700 if it is missing.
    nbytes : int
        Maximum number of bytes on disk for all processes, without folders and inodes. A full cache
        removes files in the order of `room.to_evict`.

    Raises
    ------
    ValueError
        If the folder has other files, or `nbytes` is less than 4 MiB.
    """

    def __init__(self, folder: str, nbytes: int) -> None:
        if nbytes < LEAST:
            raise ValueError(f"a cache has at least {LEAST} bytes, got {nbytes}")
        self.folder, self.nbytes = os.path.abspath(folder), nbytes
        self._boot = boot_id()
        self._room = Room(self.folder, nbytes, self._boot)
        self._lock, self._warned = threading.Lock(), False
        self._stores_from_s = 0.0
        try:
            prepare(self.folder)
            self._works = True
        except OSError as error:
            self._works = False
            self._warn(error)

    def __reduce__(self) -> tuple[Callable[[str, int], DiskCache], tuple[str, int]]:
        return _of_this_process, (self.folder, self.nbytes)

    def fill(self, key: str, size: int, pieces: Sequence[Piece], fetch: Fetch) -> None:
        """Fill buffers, each from its own position. One call of `fetch` gets all missing bytes.

        Parameters
        ----------
        key : str
            Identifies the object and its version: URL and ETag.
        size : int
            Length of the object.
        pieces : sequence of tuple
            Positions and buffers.
        fetch : callable
            ``fetch([(start, stop), ...])`` returns the bytes of ranges of the object. The ranges
            consist of whole blocks of 4 KiB, except at the end of the object.

        Raises
        ------
        ValueError
            If the object is too short.
        OSError
            If `fetch` returns fewer or more bytes than requested.
        """
        for start, buffer in pieces:
            if start + len(buffer) > size:
                raise too_short(size, len(buffer), start)
        pieces = [piece for piece in pieces if len(piece[1])]
        if not self._works:
            ranges = [(start, start + len(buffer)) for start, buffer in pieces]
            for (_, buffer), (_, data) in zip(pieces, _fetched(fetch, ranges), strict=True):
                buffer[:] = data
            return
        if gaps := self._take(key, size, pieces):
            with self._alone(key, gaps):
                gaps = self._take(key, size, gaps)  # others may have fetched them
                if gaps:
                    self._fetch(key, size, gaps, fetch)

    def _take(self, key: str, size: int, pieces: Sequence[Piece]) -> list[Piece]:
        """Fill buffers from disk; return the missing parts."""
        gaps = []
        try:
            for start, buffer in pieces:
                for cell, first, end in cells(key, size, start, start + len(buffer)):
                    part = buffer[first - start : end - start]
                    gaps += cell.read(self.folder, self._boot, first, part)
        except OSError as error:
            self._warn(error)
            return list(pieces)
        return gaps

    @contextmanager
    def _alone(self, key: str, gaps: Sequence[Piece]) -> Iterator[None]:
        """Lock the blocks from the first gap to the last, so that others do not fetch them."""
        start = min(first for first, _ in gaps) // BLOCK * BLOCK
        stop = -(-max(first + len(part) for first, part in gaps) // BLOCK) * BLOCK
        text = key.encode("utf-8", "surrogatepass")
        # Each object has its own range of locks. If two hashes collide, one only waits.
        base = 1 + (int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()) >> 2)
        with ExitStack() as stack:
            try:
                path = f"{self.folder}/{LOCKS}"
                stack.enter_context(locked(path, base + start, stop - start, _PATIENCE_S))
            except OSError as error:
                self._warn(error)
            yield

    def _fetch(self, key: str, size: int, gaps: Sequence[Piece], fetch: Fetch) -> None:
        """Fetch the bytes of gaps, and store them."""
        found = _fetched(fetch, _whole_blocks(gaps, size))
        _copy(found, gaps)
        if time.monotonic() < self._stores_from_s:
            return
        try:
            self._room.put(
                (cell, first, data[first - start : end - start])
                for start, data in found
                for cell, first, end in cells(key, size, start, start + len(data))
            )
        except OSError as error:
            self._stores_from_s = time.monotonic() + _PAUSE_S
            self._warn(error)

    def _warn(self, error: OSError) -> None:
        """Warn once. Make a deleted folder again."""
        reason = f"bytes are fetched without the cache {self.folder}: {error}"
        if not os.path.exists(self.folder):
            with suppress(OSError, ValueError):
                prepare(self.folder)
                reason = f"the deleted folder of the cache was made again: {self.folder}"
        with self._lock:
            warned, self._warned = self._warned, True
        if not warned:
            logger.warning("%s", reason)


@functools.cache
def _of_this_process(folder: str, nbytes: int) -> DiskCache:
    """Return the one cache with these settings in this process, for all unpickled copies."""
    return DiskCache(folder, nbytes)


def _whole_blocks(gaps: Iterable[Piece], size: int) -> list[tuple[int, int]]:
    """Return the ranges of whole blocks that contain the gaps, sorted and disjoint."""
    runs: list[tuple[int, int]] = []
    for start, stop in sorted((start, start + len(part)) for start, part in gaps):
        first, end = start // BLOCK * BLOCK, min(-(-stop // BLOCK) * BLOCK, size)
        if runs and first <= runs[-1][1]:
            runs[-1] = (runs[-1][0], max(end, runs[-1][1]))
        else:
            runs.append((first, end))
    return runs


def _fetched(fetch: Fetch, runs: list[tuple[int, int]]) -> list[Piece]:
    """Fetch ranges, and check their lengths."""
    found = [memoryview(data).cast("B") for data in fetch(runs)]
    asked, given = [stop - start for start, stop in runs], [len(data) for data in found]
    if asked != given:
        raise OSError(f"got {sum(given)} bytes in {len(given)} ranges, expected {sum(asked)}")
    return [(start, data) for (start, _), data in zip(runs, found, strict=True)]


def _copy(found: Sequence[Piece], pieces: Sequence[Piece]) -> None:
    """Fill buffers from the sorted ranges that contain them."""
    starts = [start for start, _ in found]
    for start, buffer in pieces:
        first, data = found[bisect.bisect_right(starts, start) - 1]
        buffer[:] = data[start - first : start - first + len(buffer)]
