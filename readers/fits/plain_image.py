"""Uncompressed images: read the bytes of the rows that a window needs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from readers.buffers import buffer
from readers.byte_ranges import bytes_between, merged, read_ranges
from readers.fits.payload import OVERHEAD, PADDING, PER_TILE, make_plan
from readers.fits.planes import ImageShape
from readers.places.contract import Place
from readers.window import Window

_GAP = 4096
"""Gap of `readers.byte_ranges.read_ranges` between two rows, in bytes: one page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredImage:
    """An uncompressed image, described by its header."""

    bitpix: int
    shape: ImageShape
    start: int
    """First byte of the pixels in the file."""

    def span(self, window: Window | None, planes: Sequence[int]) -> tuple[int, int]:
        """Return the first byte and the end of the rows of a window in some planes."""
        y, _, height, _ = self.shape.region(window)
        row_bytes = self.shape.width * abs(self.bitpix) // 8
        first = min(planes) * self.shape.height + y
        last = max(planes) * self.shape.height + y + height
        return self.start + first * row_bytes, self.start + last * row_bytes

    def payload_bytes(self, window: Window | None, planes: Sequence[int]) -> int:
        """Return the approximate number of bytes of payload and plan."""
        *_, height, width = self.shape.region(window)
        item, whole = abs(self.bitpix) // 8, self.shape.width
        pitch = item * (whole if (whole - width) * item <= _GAP else width)
        plane_bytes = item * whole * self.shape.height
        between = bytes_between(planes, plane_bytes, height * item * whole, gap=_GAP)
        return len(planes) * (height * (pitch + 8 * PER_TILE) + OVERHEAD) + between

    def read(
        self, place: Place, window: Window | None, planes: Sequence[int]
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.float64], int]:
        """Read the rows of a window. The plan has the window as image, and each row as a tile.

        Returns the same as `readers.fits.tiles.image.TiledImage.read`.
        """
        offsets, lengths = self._rows(window, planes)
        payload, starts, input_bytes = read_ranges(
            place, offsets, lengths, gap=_GAP, room=PADDING, allocate=buffer
        )
        width = self.shape.region(window)[-1]
        plans = _plans(starts.reshape(len(planes), -1), width, self.bitpix)
        return payload, plans, np.zeros((len(planes), 0)), input_bytes

    def values(self, place: Place, window: Window | None, plane: int) -> tuple[NDArray[Any], int]:
        """Read the stored values of a window of a plane; also return the number of bytes read.

        The values are big-endian, of the type for BITPIX; uint8 for 8.
        """
        offsets, lengths = self._rows(window, [plane])
        payload, starts, input_bytes = read_ranges(place, offsets, lengths, gap=_GAP, room=PADDING)
        *_, height, width = self.shape.region(window)
        item = abs(self.bitpix) // 8
        kind = "f" if self.bitpix < 0 else "u" if self.bitpix == 8 else "i"
        pitch = int(starts[1] - starts[0]) if height > 1 else width * item
        form = np.dtype(f">{kind}{item}")
        values = np.ndarray((height, width), form, payload.data, int(starts[0]), (pitch, item))
        return values, input_bytes

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


def is_of_other_sign(keywords: Mapping[str, Any]) -> bool | None:
    """Return whether BZERO makes signed integers unsigned, or unsigned bytes signed.

    FITS Standard 4.0, section 5.2.5. None for any other scaling, which is left to astropy.
    """
    bitpix, bzero = keywords["BITPIX"], keywords.get("BZERO", 0)
    bscale = keywords.get("BSCALE", 1)
    if "BLANK" in keywords or bscale != 1 or isinstance(bscale, bool) or isinstance(bzero, bool):
        return None
    if bzero == 0:
        return False
    return True if bitpix > 0 and bzero == (-128 if bitpix == 8 else 1 << (bitpix - 1)) else None


def of_other_sign(values: NDArray[Any]) -> NDArray[Any]:
    """Convert between signed and unsigned integers by adding half of the range of their type.

    The result has native byte order.
    """
    item = values.dtype.itemsize
    other = np.dtype(f"{'i' if values.dtype.kind == 'u' else 'u'}{item}")
    return (values.astype(f"u{item}") ^ np.array(1 << (8 * item - 1), f"u{item}")).view(other)


def plan_of_pixels(pixels: NDArray[Any]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the payload and the plans of decoded pixels, shape (planes, height, width)."""
    payload, plans, copy = plan_of_shape(pixels.shape, pixels.dtype)
    copy[:] = pixels
    return payload, plans


def plan_of_shape(
    shape: tuple[int, ...], dtype: np.dtype[Any]
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[Any]]:
    """Return an empty payload, its plans, and its pixels as an array, to be written.

    The shape of the pixels is (planes, height, width). `dtype` may have any byte order.
    """
    planes, height, width = shape
    item, nbytes = dtype.itemsize, math.prod(shape) * dtype.itemsize
    payload = buffer(nbytes, PADDING)
    bitpix = 8 * item if dtype.kind in "iu" else -8 * item
    starts = np.arange(planes * height).reshape(planes, height) * (width * item)
    pixels = payload[:nbytes].view(dtype.newbyteorder(">")).reshape(shape)
    return payload, _plans(starts, width, bitpix), pixels


def _plans(starts: NDArray[np.int64], width: int, bitpix: int) -> NDArray[np.int64]:
    planes, height = starts.shape
    tiles = np.empty((planes, height, PER_TILE), np.int64)
    tiles[..., 0], tiles[..., 1], tiles[..., 2] = starts, width * abs(bitpix) // 8, bitpix
    extent = {"height": height, "width": width, "tile_height": 1, "tile_width": width}
    return np.stack([make_plan(plane, bitpix=bitpix, **extent) for plane in tiles])
