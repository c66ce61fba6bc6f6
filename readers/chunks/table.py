"""Places of chunks: of a single chunk, and a table of all chunks of one file, as in HDF5."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_MISSING = -1
"""First byte of chunks without bytes."""


class Stored(NamedTuple):
    """Where the bytes of a chunk are."""

    key: str
    """Object below the path of the row; "" for the row's own file."""
    start: int = 0
    nbytes: int | None = None
    """Bytes from `start` on; None for the whole object."""
    skipped: int = 0
    """Filters that this chunk lacks: bit n is set for ``codecs[n]``."""
    content: bytes | None = None
    """The bytes themselves, if they are in the Index."""


@dataclass(frozen=True, eq=False)
class ChunkTable:
    """First byte, bytes and skipped filters of each chunk of a block of chunks.

    Parameters
    ----------
    origin : tuple of int
        Number of the first chunk of the block, along each axis.
    starts : ndarray of int64, one axis for each of the variable
        First byte of each chunk in the file; -1 for those that have no bytes.
    nbytes : ndarray of int64, same shape
    skipped : ndarray of uint32, same shape
        See `Stored`.
    """

    origin: tuple[int, ...]
    starts: NDArray[np.int64]
    nbytes: NDArray[np.int64]
    skipped: NDArray[np.uint32]

    @classmethod
    def of_grid(cls, grid: tuple[int, ...]) -> ChunkTable:
        """Return a table of chunks that all have no bytes; `add` sets them."""
        return cls(
            (0,) * len(grid),
            np.full(grid, _MISSING, np.int64),
            np.zeros(grid, np.int64),
            np.zeros(grid, np.uint32),
        )

    def add(self, at: tuple[int, ...], start: int, nbytes: int, skipped: int) -> None:
        """Record where a chunk is."""
        self.starts[at], self.nbytes[at], self.skipped[at] = start, nbytes, skipped

    def part(self, blocks: tuple[slice, ...]) -> ChunkTable:
        """Return the table of some of the chunks."""
        return ChunkTable(
            tuple(first + block.start for first, block in zip(self.origin, blocks, strict=True)),
            self.starts[blocks],
            self.nbytes[blocks],
            self.skipped[blocks],
        )

    def find(self, at: tuple[int, ...]) -> Stored | None:
        """Return where a chunk is in the file; None if it has no bytes."""
        place = tuple(number - first for number, first in zip(at, self.origin, strict=True))
        if not all(0 <= k < n for k, n in zip(place, self.starts.shape, strict=True)):
            raise ValueError(f"the Index has no chunk {at}: make it again")
        if (start := int(self.starts[place])) == _MISSING:
            return None
        return Stored("", start, int(self.nbytes[place]), int(self.skipped[place]))

    def note(self) -> tuple[dict[str, Any], bytes]:
        """Return its origin and shape, and its numbers, compressed.

        Chunks often follow each other in the file: the gaps between them are noted.
        """
        starts, nbytes = self.starts.ravel(), self.nbytes.ravel()
        gaps = starts - np.append(0, (starts + nbytes)[:-1])
        numbers = np.concatenate([gaps, nbytes, self.skipped.ravel()]).astype("<i8")
        # Bytes of equal significance compress better beside each other.
        planes = numbers.view(np.uint8).reshape(-1, 8).T
        fields = {"origin": self.origin, "shape": self.starts.shape}
        return fields, zlib.compress(planes.tobytes(), 9)

    @classmethod
    def of_note(cls, fields: Mapping[str, Any], content: bytes) -> ChunkTable:
        """Make the object from the result of `note`."""
        planes = np.frombuffer(zlib.decompress(content), np.uint8).reshape(8, -1)
        gaps, nbytes, skipped = planes.T.copy().view("<i8").reshape(3, *fields["shape"])
        # A chunk starts after the previous chunk and a gap.
        moved = gaps.ravel() + np.append(0, nbytes.ravel()[:-1])
        starts = np.cumsum(moved).reshape(fields["shape"])
        return cls(tuple(fields["origin"]), starts, nbytes, skipped.astype(np.uint32))
