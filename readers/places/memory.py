"""Bytes in memory as places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from readers.places.contract import Place, too_short
from readers.places.opener import Places


class MemoryPlace:
    """Bytes in memory; reads return copies.

    Parameters
    ----------
    content : bytes or memoryview of bytes
        Must not change during reads.
    name : str
        Name for messages.
    """

    __slots__ = ("_content", "name")

    stamp = None
    etag = None

    def __init__(self, content: bytes | memoryview, name: str) -> None:
        self._content, self.name = memoryview(content), name

    @property
    def nbytes(self) -> int:
        """Length."""
        return len(self._content)

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Do nothing: all bytes are there."""

    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes from `start` up to `stop`, fewer only at the end."""
        return bytes(self._content[start:stop])

    def read_many(self, pieces: Sequence[tuple[int, memoryview]]) -> None:
        """Fill buffers, each from its own position. ValueError if one needs more bytes."""
        for start, buffer in pieces:
            stop = start + len(buffer)
            if stop > self.nbytes:
                raise too_short(self.nbytes, len(buffer), start)
            buffer[:] = self._content[start:stop]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


@dataclass(frozen=True, slots=True)
class MemoryPlaces(Places):
    """Finds places in memory by their names, and files and objects like `Places`."""

    contents: Mapping[str, bytes | memoryview] = field(default_factory=dict)

    def at(self, path: str, *span: Any, **version: Any) -> Place:
        """Return the place of a name, path or URL; opened by ``with``."""
        if path in self.contents:
            return MemoryPlace(self.contents[path], path)
        return Places.at(self, path, *span, **version)
