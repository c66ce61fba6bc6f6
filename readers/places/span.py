"""A span of another place: a member of a tar, a record of a TFRecord or RecordIO file."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Self

from readers.places.contract import Place, too_short


class SpanPlace:
    """A range of the bytes of another place. Both are opened and closed together.

    Parameters
    ----------
    whole : Place
        The container.
    offset : int
        First byte of the span in the container.
    nbytes : int
        Length of the span.
    """

    __slots__ = ("_offset", "_whole", "name", "nbytes")

    def __init__(self, whole: Place, offset: int, nbytes: int) -> None:
        self._whole, self._offset = whole, offset
        self.name, self.nbytes = f"{whole.name}[{offset}:{offset + nbytes}]", nbytes

    def __enter__(self) -> Self:
        self._whole.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._whole.__exit__(*error)

    @property
    def stamp(self) -> Hashable | None:
        """Stamp of the container with the position of the span; None if the container has none."""
        stamp = self._whole.stamp
        return None if stamp is None else (stamp, self._offset, self.nbytes)

    @property
    def etag(self) -> str | None:
        """ETag of the container."""
        return self._whole.etag

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Let the container prepare to read ranges, clipped at the end of the span."""
        at, end = self._offset, self._offset + self.nbytes
        self._whole.fetch([(at + start, min(at + stop, end)) for start, stop in ranges])

    def read(self, start: int, stop: int) -> bytes:
        """Read the bytes from `start` up to `stop`; fewer only at the end of the span.

        Raises
        ------
        ValueError
            If the container ends before the span.
        """
        stop = min(stop, self.nbytes)
        if start >= stop:
            return b""
        found = self._whole.read(self._offset + start, self._offset + stop)
        if len(found) < stop - start:
            raise too_short(self._offset + start + len(found), stop - start, self._offset + start)
        return found

    def read_many(self, pieces: Sequence[tuple[int, memoryview]]) -> None:
        """Fill buffers, each from its own position. ValueError if the span is too short."""
        for start, buffer in pieces:
            if start + len(buffer) > self.nbytes:
                raise too_short(self.nbytes, len(buffer), start)
        self._whole.read_many([(self._offset + start, buffer) for start, buffer in pieces])
