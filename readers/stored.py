"""Images that are not compressed: which bytes of their rows a window needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from readers.plan import OVERHEAD, PADDING, PER_TILE, make_plan
from readers.ranges import read_ranges
from readers.window import Window

_GAP = 4096
"""Between the parts of two rows, see `readers.ranges.read_ranges`: a page of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredImage:
    """A plain image, as its header describes it."""

    bitpix: int
    height: int
    width: int
    start: int
    """Of the first pixel, in bytes from the start of the file."""

    @classmethod
    def of(cls, bitpix: int, height: int, width: int, start: int) -> StoredImage | None:
        """Describe an image, or give None if astropy shall read it."""
        if bitpix not in (8, 16, 32, -32, -64):
            return None
        return cls(bitpix=bitpix, height=height, width=width, start=start)

    def place(self, window: Window | None) -> tuple[int, int, int, int]:
        """Give (y, x, height, width) of a window, or of the whole image."""
        if window is None:
            return 0, 0, self.height, self.width
        y, x = window.place(self.height, self.width)
        return y, x, window.height, window.width

    def travelling_bytes(self, window: Window | None) -> int:
        """Give the bytes of payload and plan, about."""
        *_, height, width = self.place(window)
        pitch = self.width if (self.width - width) * abs(self.bitpix) // 8 <= _GAP else width
        return height * (pitch * abs(self.bitpix) // 8 + 8 * PER_TILE) + OVERHEAD

    def read(
        self, file: int, window: Window | None
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.float64], int]:
        """Read the rows of a window; what is given is what `readers.tiles.RiceImage.read` gives.

        Each row is a tile, and the window is all there is of the image.
        """
        y, x, height, width = self.place(window)
        item = abs(self.bitpix) // 8
        offsets = self.start + (np.arange(y, y + height) * self.width + x) * item
        lengths = np.full(height, width * item)
        payload, places, input_bytes = read_ranges(file, offsets, lengths, gap=_GAP)
        return payload, _plan(places, height, width, self.bitpix), np.zeros(0), input_bytes


def planned(pixels: NDArray[Any]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Give the payload and the plan of pixels that were decoded already, shape (height, width)."""
    height, width = pixels.shape
    item = pixels.dtype.itemsize
    payload = np.empty(pixels.size * item + PADDING, np.uint8)
    payload[pixels.size * item :] = 0
    big_endian = payload[: pixels.size * item].view(pixels.dtype.newbyteorder(">"))
    big_endian.reshape(height, width)[:] = pixels
    bitpix = 8 * item if pixels.dtype.kind in "iu" else -8 * item
    return payload, _plan(np.arange(height) * (width * item), height, width, bitpix)


def _plan(places: NDArray[np.int64], height: int, width: int, bitpix: int) -> NDArray[np.int64]:
    tiles = np.empty((height, PER_TILE), np.int64)
    tiles[:, 0], tiles[:, 1], tiles[:, 2] = places, width * abs(bitpix) // 8, bitpix
    return make_plan(
        tiles, bitpix=bitpix, height=height, width=width, tile_height=1, tile_width=width
    )
