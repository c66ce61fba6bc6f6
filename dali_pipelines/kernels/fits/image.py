"""Decode the payload of a FITS image to normalised, flipped pixels in one pass on a CPU.

`dali_pipelines.kernels.fits.image_cuda` is the counterpart for GPUs.
"""

from __future__ import annotations

import numpy as np

from dali_pipelines.kernels.arrays import array_at
from dali_pipelines.kernels.bits import store_int64
from dali_pipelines.kernels.fits.dither import RANDOM, dequantized, random_row
from dali_pipelines.kernels.fits.pixel import (
    bitpix_of,
    integer,
    is_inside,
    is_quantized,
    is_shuffled,
    load_stored,
    physical,
    stored_kind,
)
from dali_pipelines.kernels.fits.plio import read_runs
from dali_pipelines.kernels.fits.rice import CHUNK, PITCH, decode_chunk
from dali_pipelines.kernels.fits.rice_stream import ends_well, first_pixel
from dali_pipelines.kernels.fits.rice_vector import LANES
from dali_pipelines.kernels.fits.tile_geometry import (
    image_tile,
    num_tiles,
    number,
    tile_bounds,
    tile_number,
)
from dali_pipelines.kernels.jit import njit
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
    PER_SCALING,
    PER_TILE,
    PLIO,
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

# Rows of int64 per lane, after the pixels: state, end and counts of `decode_chunk`; number of
# needed and of all pixels of the tile; and the rest of an unfinished PLIO_1 instruction.
_ROWS = 8


@njit
def decode_image(out, payload, plan, scaling, flip, finish):  # type: ignore[no-untyped-def]
    """Decode one image or window.

    Parameters
    ----------
    out : ndarray, shape (height, width, 1), float32, uint8, int16 or int32
        Output, written in full: physical values as float32, or the stored integers.
    payload : ndarray, shape (bytes,), uint8
        RICE_1 tiles or big-endian values, then `readers.fits.payload.PADDING` bytes.
    plan : ndarray, shape (numbers,), int64
        See `readers.fits.payload`. Without tiles the image is all zeros.
    scaling : ndarray, shape (numbers,), float64
        BSCALE, BZERO and BLANK (NaN for none); then ZSCALE, ZZERO and ZBLANK of each quantised
        tile.
    flip : ndarray, shape (2,), int32
        Whether to flip left-right and up-down.
    finish : ndarray, shape (2,), float32
        Mean and 1/std: ``(value - mean) * (1 / std)`` is written. For integers the shape is (0,).

    Returns
    -------
    int
        0, or `DAMAGED` if the pixels are invalid.
    """
    plan_at = np.int64(plan.ctypes.data)
    rows, columns = out.shape[0], out.shape[1]
    image = out.reshape((rows, columns))
    count = (plan.size - HEAD) // PER_TILE
    if count == 0:
        for row in range(rows):
            for column in range(columns):
                image[row, column] = 0
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
    pixels = np.empty(LANES * PITCH + 2 * _ROWS * LANES, np.int32)
    rows_at = np.int64(pixels.ctypes.data) + 4 * LANES * PITCH
    for place in range(_ROWS * LANES):
        store_int64(rows_at + 8 * place, 0)
    numbers = array_at(rows_at, (_ROWS, LANES), np.int64)
    state, at, last, end, counts = numbers[:3], numbers[0], numbers[1], numbers[3], numbers[4]
    needed, sizes, left_at = numbers[5], numbers[6], rows_at + 8 * 7 * LANES
    for first in range(0, count, LANES):
        lanes = min(LANES, count - first)
        most, unwanted = np.int64(0), pixels_of_image
        for lane in range(LANES):
            counts[lane] = 0
        for lane in range(lanes):
            tile = first + lane
            place, length = tile_number(plan_at, tile, OFFSET), tile_number(plan_at, tile, LENGTH)
            stored = tile_number(plan_at, tile, STORED)
            y, x, height, width, bottom, right = tile_bounds(plan_at, tile, rows, columns)
            sizes[lane], needed[lane] = height * width, (bottom - 1) * width + right
            most = max(most, needed[lane])
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
            elif stored == PLIO:
                end[lane] = at[lane] + length
                last[lane] = 1
                store_int64(left_at + 8 * lane, 0)
        for begin in range(0, most, CHUNK):
            for lane in range(lanes):
                if tile_number(plan_at, first + lane, STORED) == RICE:
                    counts[lane] = max(min(CHUNK, needed[lane] - begin), 0)
            ahead = unwanted - begin
            if not decode_chunk(pixels, state, end, counts, ahead, bytepix, blocksize):
                return DAMAGED
            for lane in range(lanes):
                size = max(min(CHUNK, needed[lane] - begin), 0)
                part = pixels[lane * PITCH : lane * PITCH + size]
                stored = tile_number(plan_at, first + lane, STORED)
                if stored == PLIO:
                    high, left = np.int32(last[lane]), array_at(left_at + 8 * lane, 2, np.int32)
                    at[lane], last[lane] = read_runs(part, at[lane], end[lane], high, left)
                    if at[lane] < 0:
                        return DAMAGED
                elif stored != RICE:
                    at[lane] += _load(part, at[lane], stored, sizes[lane])
                elif size > 0 and begin + size == needed[lane]:
                    whole = needed[lane] == sizes[lane]
                    if not ends_well(at[lane], end[lane], whole):
                        return DAMAGED
                _write(image, part, begin, plan_at, first + lane, scaling, flip, finish)
    return 0


@njit
def _load(pixels, address, stored, pitch):  # type: ignore[no-untyped-def]
    """Load uncoded values; return the bytes to advance, in each plane of bytes if shuffled."""
    bitpix = bitpix_of(stored)
    item = abs(bitpix) // 8
    if is_shuffled(stored):
        if item == 2:
            _load_shuffled_int16(pixels, address, pitch)
        else:
            _load_shuffled(pixels, address, pitch)
        return pixels.size
    if bitpix == 16:
        _load_int16(pixels, address)
    else:
        for i in range(pixels.size):
            pixels[i] = load_stored(address + i * item, bitpix)
    return pixels.size * item


@njit
def _load_int16(pixels, address):  # type: ignore[no-untyped-def]
    """Load values of 2 bytes, in a loop that compiles to vector instructions."""
    values = array_at(address, 2 * pixels.size, np.uint8)
    for i in range(pixels.size):
        pixels[i] = (np.int32(np.int8(values[2 * i])) << 8) | np.int32(values[2 * i + 1])


@njit
def _load_shuffled_int16(pixels, address, pitch):  # type: ignore[no-untyped-def]
    """Load values whose 2 bytes are `pitch` bytes apart, in a loop that compiles to vectors."""
    first = array_at(address, pixels.size, np.int8)
    second = array_at(address + pitch, pixels.size, np.uint8)
    for i in range(pixels.size):
        pixels[i] = (np.int32(first[i]) << 8) | np.int32(second[i])


@njit
def _load_shuffled(pixels, address, pitch):  # type: ignore[no-untyped-def]
    """Load values whose 4 bytes are `pitch` bytes apart, in a loop that compiles to vectors."""
    first = array_at(address, pixels.size, np.int8)
    second = array_at(address + pitch, pixels.size, np.uint8)
    third = array_at(address + 2 * pitch, pixels.size, np.uint8)
    fourth = array_at(address + 3 * pitch, pixels.size, np.uint8)
    for i in range(pixels.size):
        high = (np.int32(first[i]) << 8) | np.int32(second[i])
        pixels[i] = (high << 16) | (np.int32(third[i]) << 8) | np.int32(fourth[i])


@njit
def _write(image, pixels, begin, plan, tile, scaling, flip, finish):  # type: ignore[no-untyped-def]
    """Write the pixels of a tile from index `begin` on, if they are in the window."""
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
            elif is_quantized(stored, dither):
                numbers = scaling[PER_SCALING * (1 + tile) : PER_SCALING * (2 + tile)]
                random = random_row(image_tile(plan, tile, columns), number(plan, SEED))
                first = row * width + start
                _dequantize(line, part, kind, numbers, dither, random, first, flip[0], finish)
            else:
                _convert(line, part, kind, bitpix, scaling, flip[0], finish)
        done += run
        row, column = row + 1, 0


@njit
def _copy(line, pixels, kind, backwards):  # type: ignore[no-untyped-def]
    last = np.uint64(pixels.size - 1)  # unsigned, as in `_convert`
    if backwards:
        for i in range(np.uint64(pixels.size)):
            line[last - i] = integer(pixels[i], kind)
    else:
        for i in range(pixels.size):
            line[i] = integer(pixels[i], kind)


@njit
def _dequantize(line, pixels, kind, numbers, dither, random, first, backwards, finish):  # type: ignore[no-untyped-def]
    scale, zero, blank = numbers[ZSCALE], numbers[ZZERO], numbers[ZBLANK]
    table = np.int64(RANDOM.ctypes.data)
    for i in range(pixels.size):
        quantized = integer(pixels[i], kind)
        value = dequantized(quantized, scale, zero, blank, dither, random, first + i, table)
        line[pixels.size - 1 - i if backwards else i] = (value - finish[0]) * finish[1]


@njit
def _convert(line, pixels, kind, bitpix, scaling, backwards, finish):  # type: ignore[no-untyped-def]
    """Write one line of unquantised pixels, in two simple loops that compile to vectors."""
    scale, zero, blank = scaling[BSCALE], scaling[BZERO], scaling[BLANK]
    mean, factor = finish[0], finish[1]
    last = np.uint64(pixels.size - 1)  # unsigned: no check for negative indices
    if backwards:
        for i in range(np.uint64(pixels.size)):
            value = physical(pixels[i], kind, bitpix, scale, zero, blank)
            line[last - i] = (value - mean) * factor
    else:
        for i in range(pixels.size):
            value = physical(pixels[i], kind, bitpix, scale, zero, blank)
            line[i] = (value - mean) * factor
