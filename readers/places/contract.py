"""Place: bytes that are read by ranges, in any storage."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from types import TracebackType
from typing import Protocol, Self


class Place(Protocol):
    """Bytes that are read by ranges: a file, an object of a store, or a span of either.

    One thread opens it in a ``with`` block, to read one row. Positions are counted from its first
    byte.
    """

    @property
    def name(self) -> str:
        """Path or URL for messages; a span also has its first byte and end, ``a.tar[512:2048]``."""
        ...

    @property
    def nbytes(self) -> int:
        """Length. A remote object may need a request to find it."""
        ...

    @property
    def stamp(self) -> Hashable | None:
        """Value that changes when the bytes are written to, and differs between places.

        None if they were written to too recently to rely on it, or if it is unknown.
        """
        ...

    @property
    def etag(self) -> str | None:
        """Version, which an Index stores: the ETag of an object, or length and checksum of a file.

        The checksum only covers pieces of a file. A span has the version of its container. None if
        the version is unknown.
        """
        ...

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Prepare to read ranges (first byte, end). A remote object gets all requests at once.

        They are clipped to the length of the place.
        """
        ...

    def read(self, start: int, stop: int) -> bytes:
        """Read the bytes from `start` up to `stop`, fewer only at the end of the place."""
        ...

    def read_many(self, pieces: Sequence[tuple[int, memoryview]]) -> None:
        """Fill buffers, each from its own position. A remote object gets all requests at once.

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
