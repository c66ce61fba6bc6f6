"""Place: bytes that are read by ranges, wherever they lie."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from types import TracebackType
from typing import Protocol, Self


class Place(Protocol):
    """Bytes that are read by ranges: a file, an object of a store, or a span of either.

    It is opened by ``with``, for one read of one row, and used by one thread. Positions are counted
    from its first byte.
    """

    @property
    def name(self) -> str:
        """Path or URL, for messages; of a span with its first byte and end, ``a.tar[512:2048]``."""
        ...

    @property
    def nbytes(self) -> int:
        """Length. Of a remote object it may take a request."""
        ...

    @property
    def stamp(self) -> Hashable | None:
        """Value that changes when the bytes are written to, and differs between places.

        None if they were written to too recently to rely on it, or if it is unknown.
        """
        ...

    @property
    def etag(self) -> str | None:
        """Version, which an Index notes: an object's ETag; of a file its length and a checksum.

        The checksum is of pieces of it. None if it is unknown. A span has that of its whole.
        """
        ...

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Prepare to read ranges (first byte and end): those of a remote object are read at once.

        They are clipped where the place ends.
        """
        ...

    def read(self, start: int, stop: int) -> bytes:
        """Read the bytes from `start` up to `stop`, fewer only where the place ends."""
        ...

    def read_many(self, pieces: Sequence[tuple[int, memoryview]]) -> None:
        """Fill buffers of bytes, each from its own position; of a remote object at once.

        Raises
        ------
        ValueError
            If the place is too short.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


def too_short(end: int, nbytes: int, start: int) -> ValueError:
    """Return the error of a place that ends at `end`, before the bytes from `start` on."""
    return ValueError(f"the file ends at {end}, expected {nbytes} bytes from {start}")
