"""Contract of a codec: the tiles that it reads, and the part of them that it sends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from readers.buffers import Allocate, private
from readers.byte_ranges import read_ranges
from readers.places.contract import Place

GAP = 64 << 10
"""Bytes between two tiles, see `readers.byte_ranges.read_ranges`."""


class CodedTiles(NamedTuple):
    """Tiles in a file, as they are coded there."""

    place: Place
    """The file."""
    offsets: NDArray[np.int64]
    """First byte of each tile, inside the place."""
    lengths: NDArray[np.int64]
    """In bytes."""
    shapes: Callable[[], NDArray[np.int64]]
    """Returns the rows and columns of each tile, shape (tiles, 2)."""

    def read(
        self, room: int = 0, allocate: Allocate = private
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64], int]:
        """Read their bytes, as `readers.byte_ranges.read_ranges` does."""
        ranges = self.place, self.offsets, self.lengths
        return read_ranges(*ranges, gap=GAP, room=room, allocate=allocate)


class SentTiles(NamedTuple):
    """The bytes that are sent of some tiles."""

    data: NDArray[np.uint8]
    """Shape (bytes,): the tiles, and zero bytes."""
    starts: NDArray[np.int64]
    """First byte of each tile in `data`."""
    lengths: NDArray[np.int64]
    stored: int
    """Value of STORED, see `readers.fits.payload`."""
    input_bytes: int
    """Bytes that were read."""


class Codec(ABC):
    """A tile compression with its settings; without an own `sent_bytes` tiles stay compressed."""

    __slots__ = ()

    BITPIX: ClassVar[tuple[int, ...]] = (8, 16, 32)
    """BITPIX of images that are not quantised."""
    LETTER: ClassVar[str] = "B"
    """Type of the elements of its tiles, as in TFORM."""
    MODULES: ClassVar[tuple[str, ...]] = ()
    """Modules that `read` imports when it first needs them."""

    @abstractmethod
    def least_bytes(self, pixels: Any) -> Any:
        """Return the bytes that so many pixels need at least."""

    def sent_bytes(self, tile_bytes: int, pixels: int) -> int:
        """Estimate the bytes that are sent of tiles of so many bytes in the file, and pixels.

        It allows for images that compress less well.
        """
        del pixels
        return int(1.15 * tile_bytes)

    @abstractmethod
    def read(self, tiles: CodedTiles, room: int) -> SentTiles:
        """Read tiles, and append `room` zero bytes.

        Raises
        ------
        ValueError
            If a tile does not hold its pixels, or the place is too short.
        """
