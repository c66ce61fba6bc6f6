"""Decode the payload of a FITS image to pixels, normalised and flipped, in one pass.

`load_stored` and `physical` compute one pixel on any device; `decode_image` goes through the tiles
on a CPU core, `dali_pipelines.kernels.fits.image_cuda` on a GPU.

Notes
-----
FITS Standard 4.0, section 4.4.2.5. As in astropy, 8- and 16-bit integers are scaled in float32 and
32-bit integers in float64.
"""

from __future__ import annotations

import math

import numpy as np

from dali_pipelines.kernels.bits import (
    bits_of_float32,
    float32_of_bits,
    float64_of_bits,
    load_big_endian,
    product32,
    product64,
)
from dali_pipelines.kernels.compiled import compiled
from dali_pipelines.kernels.fits.dither import RANDOM, dequantized, random_row
from dali_pipelines.kernels.fits.rice import CHUNK, PITCH, decode_chunk, ends_well, first_pixel
from dali_pipelines.kernels.fits.rice_avx512 import LANES
from dali_pipelines.kernels.fits.tile_geometry import (
    image_tile,
    num_tiles,
    number,
    tile_bounds,
    tile_number,
)
from readers.fits.payload import (
    BITPIX,
    BLANK,
    BLOCKSIZE,
    BSCALE,
    BYTEPIX,
    BZERO,
    DITHER,
    HEAD,
    HEIGHT,
    LENGTH,
    OFFSET,
    PADDING,
    PER_SCALING,
    PER_TILE,
    RICE,
    SEED,
    STORED,
    UNQUANTIZED,
    WIDTH,
    ZBLANK,
    ZSCALE,
    ZZERO,
)

DAMAGED = 1
"""Status of an image whose bytes are damaged."""


@compiled
def decode_image(out, payload, plan, scaling, flip, finish):  # type: ignore[no-untyped-def]
    """Decode one image or window.

    Parameters
    ----------
    out : ndarray, shape (height, width, 1), float32, uint8, int16 or int32
        Written in full. Physical values if float32, else the integers as stored.
    payload : ndarray, shape (bytes,), uint8
        RICE_1 tiles, or big-endian values, then `readers.fits.payload.PADDING` bytes.
    plan : ndarray, shape (numbers,), int64
        See `readers.fits.payload`. Without tiles the image is zero.
    scaling : ndarray, shape (numbers,), float64
        BSCALE, BZERO, BLANK (NaN for none); ZSCALE, ZZERO and ZBLANK of each tile if quantised.
    flip : ndarray, shape (2,), int32
        Whether to flip left-right and up-down.
    finish : ndarray, shape (2,), float32
        Mean and 1/std: ``(value - mean) * (1 / std)`` is written. Shape (0,) for integers.

    Returns
    -------
    int
        0, or `DAMAGED`: then the pixels are invalid.
    """
    plan_at = np.int64(plan.ctypes.data)
    image = out.reshape(out.shape[0], out.shape[1])
    rows, columns = out.shape[0], out.shape[1]
    count = (plan.size - HEAD) // PER_TILE
    if count == 0:
        out[:] = 0
        return 0
    dither = number(plan_at, DITHER)
    tile_scalings = count if dither != UNQUANTIZED else 0
    if (
        count != num_tiles(plan_at, rows, columns)
        or scaling.size != (1 + tile_scalings) * PER_SCALING
    ):
        return DAMAGED
    bytepix, blocksize = number(plan_at, BYTEPIX), number(plan_at, BLOCKSIZE)
    pixels_of_image = number(plan_at, HEIGHT) * number(plan_at, WIDTH)
    pixels = np.empty(LANES * PITCH, np.int32)
    state = np.zeros((3, LANES), np.int64)
    at, last = state[0], state[1]
    end = np.zeros(LANES, np.int64)
    needed = np.zeros(LANES, np.int64)
    sizes = np.zeros(LANES, np.int64)
    counts = np.zeros(LANES, np.int64)
    for first in range(0, count, LANES):
        lanes = min(LANES, count - first)
        needed[:] = 0
        unwanted = pixels_of_image
        for lane in range(lanes):
            tile = first + lane
            place, length = tile_number(plan_at, tile, OFFSET), tile_number(plan_at, tile, LENGTH)
            stored = tile_number(plan_at, tile, STORED)
            y, x, height, width, bottom, right = tile_bounds(plan_at, tile, rows, columns)
            sizes[lane], needed[lane] = height * width, (bottom - 1) * width + right
            unwanted = min(unwanted, max(-y, 0) * width + max(-x, 0))
            if not is_inside(place, length, stored, sizes[lane], payload.size):
                return DAMAGED
            at[lane] = np.int64(payload.ctypes.data) + place
            if stored == RICE:
                if length < bytepix:
                    return DAMAGED
                end[lane] = 8 * (at[lane] + length)
                last[lane] = first_pixel(at[lane], bytepix)
                at[lane] = 8 * (at[lane] + bytepix)
        for begin in range(0, needed.max(), CHUNK):
            counts[:] = 0
            for lane in range(lanes):
                stored = tile_number(plan_at, first + lane, STORED)
                size = max(min(CHUNK, needed[lane] - begin), 0)
                if stored == RICE:
                    counts[lane] = size
                else:
                    at[lane] += _load(pixels[lane * PITCH : lane * PITCH + size], at[lane], stored)
            ahead = unwanted - begin
            if not decode_chunk(pixels, state, end, counts, ahead, bytepix, blocksize):
                return DAMAGED
            for lane in range(lanes):
                size = max(min(CHUNK, needed[lane] - begin), 0)
                if counts[lane] > 0 and begin + size == needed[lane]:
                    whole = needed[lane] == sizes[lane]
                    if not ends_well(at[lane], end[lane], whole):
                        return DAMAGED
                part = pixels[lane * PITCH : lane * PITCH + size]
                _write(image, part, begin, plan_at, first + lane, scaling, flip, finish)
    return 0


@compiled
def is_inside(place, length, stored, size, payload_size):  # type: ignore[no-untyped-def]
    """Return whether a tile of `size` pixels is inside the payload and has the right length."""
    if place < 0 or length < 0 or place > payload_size - PADDING - length:
        return False
    return stored == RICE or length == size * (abs(stored) // 8)


@compiled
def load_stored(address, stored):  # type: ignore[no-untyped-def]
    """Load a big-endian value of BITPIX `stored`: an int32, or the bits of a float32."""
    word = load_big_endian(address)
    if stored == 8:
        return np.int32(word >> np.uint64(56))
    if stored == 16:
        return np.int32(np.int64(word) >> 48)
    if stored == -64:
        return bits_of_float32(np.float32(float64_of_bits(word)))
    return np.int32(np.int64(word) >> 32)


@compiled
def _load(pixels, address, stored):  # type: ignore[no-untyped-def]
    """Load values that are not compressed; return the bytes that they take."""
    item = abs(stored) // 8
    for i in range(pixels.size):
        pixels[i] = load_stored(address + i * item, stored)
    return pixels.size * item


@compiled
def stored_kind(stored, bitpix, bytepix, dither):  # type: ignore[no-untyped-def]
    """Return the type in the 32 bits of a decoded pixel: an integer of 8, 16 or 32 bits, or -32."""
    if stored != RICE:
        return max(stored, -32)
    return 8 * bytepix if dither != UNQUANTIZED else min(8 * bytepix, bitpix)


@compiled
def integer(pixel, kind):  # type: ignore[no-untyped-def]
    """Return the integer in the low bits of a decoded pixel."""
    if kind == 16:
        return np.int32(np.int16(pixel))
    if kind == 8:
        return np.int32(np.uint8(pixel))
    return np.int32(pixel)


@compiled
def physical(pixel, kind, bitpix, scale, zero, blank):  # type: ignore[no-untyped-def]
    """Return the physical value of a decoded pixel that is not quantised.

    Parameters
    ----------
    pixel : int32
        Decoded pixel.
    kind : int
        Its type, see `stored_kind`.
    bitpix : int
        BITPIX of the image.
    scale, zero, blank : float64
        BSCALE, BZERO, and BLANK, NaN for none.

    Returns
    -------
    float32
        NaN if it is blank.
    """
    if kind == -32:
        return float32_of_bits(np.int32(pixel))
    stored = integer(pixel, kind)
    if bitpix == 32:
        wide = np.float64(stored)
        return np.float32(math.nan) if wide == blank else np.float32(product64(wide, scale) + zero)
    value = np.float32(stored)
    if value == np.float32(blank):
        return np.float32(math.nan)
    return product32(value, np.float32(scale)) + np.float32(zero)


@compiled
def _write(image, pixels, begin, plan, tile, scaling, flip, finish):  # type: ignore[no-untyped-def]
    """Write those of some pixels of a tile, from number `begin` on, that are in the window."""
    rows, columns = image.shape
    y, x, _, width, _, right = tile_bounds(plan, tile, rows, columns)
    left = max(-x, 0)
    stored = tile_number(plan, tile, STORED)
    bitpix, dither = number(plan, BITPIX), number(plan, DITHER)
    kind = stored_kind(stored, bitpix, number(plan, BYTEPIX), dither)
    row, column = begin // width, begin % width
    done = 0
    while done < pixels.size:
        run = min(width - column, pixels.size - done)
        start, stop = max(column, left), min(column + run, right)
        if y + row >= 0 and start < stop:
            target = rows - 1 - (y + row) if flip[1] else y + row
            at = columns - x - stop if flip[0] else x + start
            line = image[target, at : at + stop - start]
            part = pixels[done + start - column : done + stop - column]
            if finish.size == 0:
                _copy(line, part, kind, flip[0])
            elif dither != UNQUANTIZED and stored == RICE:
                numbers = scaling[PER_SCALING * (1 + tile) : PER_SCALING * (2 + tile)]
                random = random_row(image_tile(plan, tile, columns), number(plan, SEED))
                first = row * width + start
                _dequantize(line, part, kind, numbers, dither, random, first, flip[0], finish)
            else:
                _convert(line, part, kind, bitpix, scaling, flip[0], finish)
        done += run
        row, column = row + 1, 0


@compiled
def _copy(line, pixels, kind, backwards):  # type: ignore[no-untyped-def]
    last = np.uint64(pixels.size - 1)  # unsigned, as in `_convert`
    if backwards:
        for i in range(np.uint64(pixels.size)):
            line[last - i] = integer(pixels[i], kind)
    else:
        for i in range(pixels.size):
            line[i] = integer(pixels[i], kind)


@compiled
def _dequantize(line, pixels, kind, numbers, dither, random, first, backwards, finish):  # type: ignore[no-untyped-def]
    scale, zero, blank = numbers[ZSCALE], numbers[ZZERO], numbers[ZBLANK]
    table = np.int64(RANDOM.ctypes.data)
    for i in range(pixels.size):
        quantized = integer(pixels[i], kind)
        value = dequantized(quantized, scale, zero, blank, dither, random, first + i, table)
        line[pixels.size - 1 - i if backwards else i] = (value - finish[0]) * finish[1]


@compiled
def _convert(line, pixels, kind, bitpix, scaling, backwards, finish):  # type: ignore[no-untyped-def]
    """Write one line of pixels that are not quantised, in two simple loops that become vectors."""
    scale, zero, blank = scaling[BSCALE], scaling[BZERO], scaling[BLANK]
    mean, factor = finish[0], finish[1]
    last = np.uint64(pixels.size - 1)  # unsigned indices are never counted from the end
    if backwards:
        for i in range(np.uint64(pixels.size)):
            value = physical(pixels[i], kind, bitpix, scale, zero, blank)
            line[last - i] = (value - mean) * factor
    else:
        for i in range(pixels.size):
            value = physical(pixels[i], kind, bitpix, scale, zero, blank)
            line[i] = (value - mean) * factor
