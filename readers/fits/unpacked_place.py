"""An unpacked file, with some parts in memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Sequence
from typing import Self

from readers.places.contract import too_short


class UnpackedPlace:
    """The bytes that were kept, at their positions in the file; all others read as zeros."""

    __slots__ = ("_parts", "_starts", "name", "nbytes")
    stamp: Hashable | None = None
    etag: str | None = None

    def __init__(self, name: str) -> None:
        self.name, self.nbytes = name, 0
        self._starts: list[int] = []
        self._parts: list[bytes] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._starts.clear()
        self._parts.clear()

    def keep(self, start: int, part: bytes) -> None:
        """Keep bytes that begin at `start`, behind all that were kept before."""
        self._starts.append(start)
        self._parts.append(part)

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Do nothing: the bytes are in memory."""

    def read(self, start: int, stop: int) -> bytes:
        """Read the bytes from `start` up to `stop`, fewer only where the file ends."""
        found = bytearray(max(0, min(stop, self.nbytes) - start))
        self._copy(start, memoryview(found))
        return bytes(found)

    def read_many(self, pieces: Sequence[tuple[int, memoryview]]) -> None:
        """Fill buffers, each from its own position. Raises ValueError if the file is too short."""
        for start, buffer in pieces:
            if start + len(buffer) > self.nbytes:
                raise too_short(self.nbytes, len(buffer), start)
            self._copy(start, buffer)

    def _copy(self, at: int, buffer: memoryview) -> None:
        stop = at + len(buffer)
        number = max(0, bisect_right(self._starts, at) - 1)
        while at < stop:
            is_part = number < len(self._parts)
            first = self._starts[number] if is_part else stop
            if at < first:  # before a part, or behind the last one
                end = min(first, stop)
                found: bytes | memoryview = bytes(end - at)
            else:
                part = self._parts[number]
                end = min(first + len(part), stop)
                found = memoryview(part)[at - first : max(end, at) - first]
                number += 1
            if at < end:
                buffer[len(buffer) - (stop - at) :][: end - at] = found
                at = end
