"""Place: bytes that are read by ranges, in any storage."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from types import TracebackType
from typing import Protocol, Self


class Place(Protocol):
    """Bytes that are read by ranges: a file, an object of a store, or a span of either.

    A thread opens it in a ``with`` block to read one row. Positions count from its first byte.
    """

    @property
    def name(self) -> str:
        """Path or URL for messages. A span adds its first byte and end: ``a.tar[512:2048]``."""

    @property
    def nbytes(self) -> int:
        """Length in bytes. A remote object may need a request for it."""

    @property
    def stamp(self) -> Hashable | None:
        """Value that identifies the place and its content: a write changes it.

        None if it is unknown, or if the last write is so recent that another may go unnoticed.
        """

    @property
    def etag(self) -> str | None:
        """Version for an Index: the ETag of an object, or length and checksum of a file.

        The checksum covers only pieces of a file. A span has the version of its container. None if
        the version is unknown.
        """

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Prepare to read ranges (first byte, end), clipped to the length of the place.

        A remote object gets all requests at once.
        """

    def read(self, start: int, stop: int) -> bytes:
        """Read the bytes from `start` up to `stop`; fewer only at the end of the place."""

    def read_many(self, pieces: Sequence[tuple[int, memoryview]]) -> None:
        """Fill buffers, each from its own position. A remote object gets all requests at once.

        Raises
        ------
        ValueError
            If the place is too short.
        """

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


def too_short(end: int, nbytes: int, start: int) -> ValueError:
    """Return the error for a place that ends at `end`, too early for `nbytes` from `start` on."""
    return ValueError(f"the file ends at {end}, expected {nbytes} bytes from {start} on")
