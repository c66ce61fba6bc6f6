"""Uncompressed images: the bytes of the rows that a window needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from readers.byte_ranges import bytes_between, merged, read_ranges
from readers.fits.payload import OVERHEAD, PADDING, PER_TILE, make_plan
from readers.fits.planes import ImageShape
from readers.places.contract import Place
from readers.window import Window

_GAP = 4096
"""Bytes between ranges of two rows, see `readers.byte_ranges.read_ranges`: one page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredImage:
    """An uncompressed image, as its header describes it."""

    bitpix: int
    shape: ImageShape
    start: int
    """First byte of the pixels in the file."""

    def span(self, window: Window | None, planes: Sequence[int]) -> tuple[int, int]:
        """Return the first byte and the end of the rows that some planes of a window need."""
        y, _, height, _ = self.shape.region(window)
        row_bytes = self.shape.width * abs(self.bitpix) // 8
        first = min(planes) * self.shape.height + y
        last = max(planes) * self.shape.height + y + height
        return self.start + first * row_bytes, self.start + last * row_bytes

    def payload_bytes(self, window: Window | None, planes: Sequence[int]) -> int:
        """Return about how many bytes payload and plan take."""
        *_, height, width = self.shape.region(window)
        item, whole = abs(self.bitpix) // 8, self.shape.width
        pitch = item * (whole if (whole - width) * item <= _GAP else width)
        plane_bytes = item * whole * self.shape.height
        between = bytes_between(planes, plane_bytes, height * item * whole, gap=_GAP)
        return len(planes) * (height * (pitch + 8 * PER_TILE) + OVERHEAD) + between

    def read(
        self, place: Place, window: Window | None, planes: Sequence[int]
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.float64], int]:
        """Read the rows of a window; returns are those of `readers.fits.rice_tiles.RiceImage.read`.

        Each row is one tile of an image that has the size of the window.
        """
        offsets, lengths = self._rows(window, planes)
        payload, starts, input_bytes = read_ranges(place, offsets, lengths, gap=_GAP, room=PADDING)
        width = self.shape.region(window)[-1]
        plans = _plans(starts.reshape(len(planes), -1), width, self.bitpix)
        return payload, plans, np.zeros((len(planes), 0)), input_bytes

    def ranges(
        self, window: Window | None, planes: Sequence[int]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first bytes and ends of the ranges that `read` reads."""
        offsets, lengths = self._rows(window, planes)
        return merged(offsets, offsets + lengths, _GAP)

    def _rows(
        self, window: Window | None, planes: Sequence[int]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first byte and the length of each row of pixels."""
        y, x, height, width = self.shape.region(window)
        item = abs(self.bitpix) // 8
        rows = np.add.outer(np.array(planes) * self.shape.height, np.arange(y, y + height))
        offsets = self.start + (rows.reshape(-1) * self.shape.width + x) * item
        return offsets, np.full(len(offsets), width * item)


def plan_of_pixels(pixels: NDArray[Any]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the payload and the plans of decoded pixels, shape (planes, height, width)."""
    planes, height, width = pixels.shape
    item = pixels.dtype.itemsize
    payload = np.empty(pixels.size * item + PADDING, np.uint8)
    payload[pixels.size * item :] = 0
    big_endian = payload[: pixels.size * item].view(pixels.dtype.newbyteorder(">"))
    big_endian.reshape(pixels.shape)[:] = pixels
    bitpix = 8 * item if pixels.dtype.kind in "iu" else -8 * item
    starts = np.arange(planes * height).reshape(planes, height) * (width * item)
    return payload, _plans(starts, width, bitpix)


def _plans(starts: NDArray[np.int64], width: int, bitpix: int) -> NDArray[np.int64]:
    planes, height = starts.shape
    tiles = np.empty((planes, height, PER_TILE), np.int64)
    tiles[..., 0], tiles[..., 1], tiles[..., 2] = starts, width * abs(bitpix) // 8, bitpix
    extent = {"height": height, "width": width, "tile_height": 1, "tile_width": width}
    return np.stack([make_plan(plane, bitpix=bitpix, **extent) for plane in tiles])
