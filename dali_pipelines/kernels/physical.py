"""From the bytes of a FITS image to physical values: BSCALE * stored + BZERO, NaN where BLANK.

Compiled by numba and called without the GIL from DALI's threads, one call a sample.
"""

from __future__ import annotations

import numpy as np
from numba import carray, njit

from dali_pipelines.kernels.bits import pointer
from dali_pipelines.kernels.rice import PADDING, decode_four, decode_tile

DAMAGED = 1
"""Status of an image whose compressed bytes do not add up."""

_HEAD = 9
"""Numbers of a plan before its tiles, see `readers.tiles.RiceImage.read`."""


@njit(nogil=True, cache=True)
def physical_values(out, payload, plan, scaling):  # type: ignore[no-untyped-def]
    """Write the physical values of one image.

    Parameters
    ----------
    out : ndarray, shape (height, width, 1), float32
        Written in full; zeros where nothing is stored.
    payload : ndarray, shape (bytes,), uint8
        RICE_1 tiles, or stored values, native byte order, rows from the first.
    plan : ndarray, shape (numbers,), int64
        (0,) for stored values; else 1 and what `readers.tiles.RiceImage.read` says.
    scaling : ndarray, shape (4,), float64
        BITPIX (8, 16, 32, -32, or 0 for nothing stored), BSCALE, BZERO, BLANK (NaN for none).

    Returns
    -------
    int
        0, or `DAMAGED`: then the pixels mean nothing.

    Notes
    -----
    FITS Standard 4.0, section 4.4.2.5. As in astropy, 8- and 16-bit integers are scaled in float32
    and 32-bit integers in float64.
    """
    if plan[0] == 1:
        return _from_tiles(out, payload, plan, scaling)
    bitpix = int(scaling[0])
    flat = out.reshape(-1)
    size = flat.size
    item = abs(bitpix) // 8
    if item == 0:
        flat[:] = 0
        return 0
    if payload.size < size * item:
        flat[:] = 0
        return DAMAGED
    if bitpix == 8:
        _scale(flat, payload, scaling)
    elif bitpix == 16:
        _scale(flat, carray(pointer(payload.ctypes.data), size, np.int16), scaling)
    elif bitpix == 32:
        _scale_wide(flat, carray(pointer(payload.ctypes.data), size, np.int32), scaling)
    else:
        flat[:] = carray(pointer(payload.ctypes.data), size, np.float32)
    return 0


@njit(nogil=True, cache=True)
def _from_tiles(out, payload, plan, scaling):  # type: ignore[no-untyped-def]
    """Decode the tiles that the window touches, four at a time, of each no more than it needs."""
    bytepix, blocksize, tile_height, tile_width = plan[1], plan[2], plan[3], plan[4]
    num_tiles = (plan.size - _HEAD) // 2
    pixels = np.empty((4, tile_height * tile_width), np.int32)
    addresses = np.empty(4, np.uint64)
    lengths = np.empty(4, np.int64)
    needed = np.empty(4, np.int64)
    whole = np.empty(4, np.bool_)
    for first in range(0, num_tiles, 4):
        count = min(4, num_tiles - first)
        for lane in range(count):
            place, length = plan[_HEAD + 2 * (first + lane)], plan[_HEAD + 2 * (first + lane) + 1]
            if place < 0 or length < 0 or place + length > payload.size - PADDING:
                return DAMAGED
            addresses[lane], lengths[lane] = payload.ctypes.data + place, length
            _, _, height, width, rows, columns = _tile(out, plan, first + lane)
            needed[lane] = (rows - 1) * width + columns
            whole[lane] = needed[lane] == height * width
        alike = count == 4
        for lane in range(1, count):
            alike = alike and needed[lane] == needed[0] and whole[lane] == whole[0]
        if alike:
            if not decode_four(pixels, addresses, lengths, needed[0], whole[0], bytepix, blocksize):
                return DAMAGED
        else:
            for lane in range(count):
                if not decode_tile(
                    pixels[lane],
                    addresses[lane],
                    lengths[lane],
                    needed[lane],
                    whole[lane],
                    bytepix,
                    blocksize,
                ):
                    return DAMAGED
        for lane in range(count):
            _write(out, pixels[lane], plan, first + lane, scaling)
    return 0


@njit(nogil=True, cache=True)
def _tile(out, plan, number):  # type: ignore[no-untyped-def]
    """Give y and x of a tile in the image, its height and width, and those that the window needs.

    Tiles at the far edges of the image are cut short; of any tile, what lies below the window or
    right of it in its last row is not needed.
    """
    tile_height, tile_width, image_height, image_width = plan[3], plan[4], plan[5], plan[6]
    top, left = plan[7], plan[8]
    bottom, right = top + out.shape[0], left + out.shape[1]
    across = (right - 1) // tile_width + 1 - left // tile_width
    y = (top // tile_height + number // across) * tile_height
    x = (left // tile_width + number % across) * tile_width
    height, width = min(tile_height, image_height - y), min(tile_width, image_width - x)
    return y, x, height, width, min(bottom - y, height), min(right - x, width)


@njit(nogil=True, cache=True)
def _write(out, pixels, plan, number, scaling):  # type: ignore[no-untyped-def]
    """Write the part of a tile that lies in the window."""
    y, x, _, width, rows, columns = _tile(out, plan, number)
    bytepix, top, left = plan[1], plan[7], plan[8]
    first = max(left - x, 0)
    for row in range(max(top - y, 0), rows):
        line = out[y + row - top, x + first - left : x + columns - left, 0]
        stored = pixels[row * width + first : row * width + columns]
        if bytepix == 4:
            _scale_wide(line, stored, scaling)
        elif bytepix == 2:
            _scale_low16(line, stored, scaling)
        else:
            _scale_low8(line, stored, scaling)


@njit(nogil=True, cache=True)
def _scale(out, values, scaling):  # type: ignore[no-untyped-def]
    scale, zero, blank = np.float32(scaling[1]), np.float32(scaling[2]), np.float32(scaling[3])
    for i in range(out.size):
        value = np.float32(values[i])
        out[i] = np.float32(np.nan) if value == blank else value * scale + zero


@njit(nogil=True, cache=True)
def _scale_low16(out, values, scaling):  # type: ignore[no-untyped-def]
    scale, zero, blank = np.float32(scaling[1]), np.float32(scaling[2]), np.float32(scaling[3])
    for i in range(out.size):
        value = np.float32(np.int16(values[i]))
        out[i] = np.float32(np.nan) if value == blank else value * scale + zero


@njit(nogil=True, cache=True)
def _scale_low8(out, values, scaling):  # type: ignore[no-untyped-def]
    scale, zero, blank = np.float32(scaling[1]), np.float32(scaling[2]), np.float32(scaling[3])
    for i in range(out.size):
        value = np.float32(np.uint8(values[i]))
        out[i] = np.float32(np.nan) if value == blank else value * scale + zero


@njit(nogil=True, cache=True)
def _scale_wide(out, values, scaling):  # type: ignore[no-untyped-def]
    scale, zero, blank = scaling[1], scaling[2], scaling[3]
    for i in range(out.size):
        value = np.float64(values[i])
        out[i] = np.nan if value == blank else np.float32(value * scale + zero)
