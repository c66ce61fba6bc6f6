"""Decode the images of a batch on a GPU in one launch, with one thread per tile.

numba-cuda compiles the functions of `rice_cuda`, `rice_stream` and `pixel` for the GPU. A warp
decodes 32 tiles of one image. Each thread decodes a block of its tile to shared memory. Then all
threads write these blocks together, neighbouring threads to neighbouring addresses.
"""

from __future__ import annotations

import numpy as np
from numba import cuda

from dali_pipelines.kernels.bits import (
    load_float64,
    load_uint8,
    store_float32,
    store_int16,
    store_int32,
    store_uint8,
)
from dali_pipelines.kernels.fits.dither import dequantized, random_row
from dali_pipelines.kernels.fits.image import DAMAGED
from dali_pipelines.kernels.fits.image_cuda_table import (
    FIRST_BLOCK,
    WARP,
    field_of,
    image_of,
    tile_of,
    view_of,
)
from dali_pipelines.kernels.fits.pixel import (
    bitpix_of,
    integer,
    is_quantized,
    is_shuffled,
    load_stored,
    physical,
    stored_kind,
)
from dali_pipelines.kernels.fits.plio import read_runs
from dali_pipelines.kernels.fits.rice_cuda import read_block
from dali_pipelines.kernels.fits.rice_stream import ends_well, first_pixel, read_code
from dali_pipelines.kernels.fits.tile_geometry import (
    image_tile,
    number,
    tile_bounds,
    tile_number,
)
from dali_pipelines.kernels.jit import cuda_jit, njit
from readers.fits.payload import (
    BLOCKSIZE,
    BYTEPIX,
    MAX_BLOCKSIZE,
    PER_SCALING,
    PLIO,
    RICE,
    SEED,
    STORED,
    ZBLANK,
    ZSCALE,
    ZZERO,
)

_PITCH = MAX_BLOCKSIZE + 1
"""Pixels per thread in shared memory. The number is odd, so that the threads write to different
banks."""

_COUNT, _Y, _X, _WIDTH, _RIGHT, _KIND, _QUANTIZED, _RANDOM, _ROW, _COLUMN, _LEFT = range(11)
_SHARED = 13
"""Numbers of each thread's tile in shared memory, also odd: count of the decoded pixels, position
in the window, width, right end, kind, quantisation, random numbers; row and column in the tile of
the first decoded pixel; and two numbers for `read_runs`."""


@cuda_jit
def decode_images(table, num_images, item, mean, factor, random_numbers):  # type: ignore[no-untyped-def]
    """Decode a batch; launch ``[blocks, WARP]``.

    Parameters
    ----------
    table : int64
        Address of the `launch_table` on the device.
    num_images : int64
        Rows of the table.
    item : int64
        Bytes per integer of the output; 0 for float32, with scaling and normalisation.
    mean, factor : float32
        Output pixels are ``(value - mean) * factor``.
    random_numbers : int64
        Address of `dali_pipelines.kernels.fits.dither.RANDOM` on the device.
    """
    pixels = cuda.shared.array((WARP, _PITCH), np.int32)
    tiles = cuda.shared.array((WARP, _SHARED), np.int32)
    places = cuda.shared.array(WARP, np.int64)
    lane = cuda.threadIdx.x
    image = image_of(table, num_images, cuda.blockIdx.x)
    first = (cuda.blockIdx.x - field_of(table, image, FIRST_BLOCK)) * WARP
    view = view_of(table, image, random_numbers)
    blocksize, bytepix = number(view.plan, BLOCKSIZE), number(view.plan, BYTEPIX)
    tile = tile_of(view, first + lane)
    at = 8 * (tile.address + bytepix)
    last = np.int32(1)
    if tile.needed > 0 and tile.stored == RICE:
        last = np.int32(first_pixel(tile.address, bytepix))
    if tile.stored == PLIO:
        at = tile.address
    needed = tile.needed
    if needed < 0:
        _set_damaged(view.status)
    if needed > 0:
        _set_shared(view, first + lane, bytepix, tiles[lane])
    places[lane] = needed
    cuda.syncthreads()
    longest = np.int64(0)
    for other in range(WARP):
        longest = max(longest, places[other])
    cuda.syncthreads()
    for start in range(0, longest, blocksize):
        count = max(min(blocksize, needed - start), 0)
        if count > 0:
            part = pixels[lane, :count]
            if tile.stored == PLIO:
                at, last = read_runs(part, at, tile.end // 8, last, tiles[lane, _LEFT:])
            else:
                at, last = _read(part, tile, at, last, bytepix, start)
            if at < 0:
                _set_damaged(view.status)
                needed = count = np.int64(0)
        tiles[lane, _COUNT] = count
        places[lane] = _straight(view, tiles[lane])
        cuda.syncthreads()
        of_lane = np.uint64(0)  # unsigned: no check for negative indices
        while of_lane < np.uint64(WARP):
            _write_block(
                view,
                first + np.int64(of_lane),
                tiles[of_lane],
                pixels[of_lane],
                places[of_lane],
                lane,
                start,
                item,
                mean,
                factor,
            )
            of_lane += np.uint64(1)
        cuda.syncthreads()
        _advance(tiles[lane], blocksize)


@njit
def _set_damaged(address):  # type: ignore[no-untyped-def]
    """Set the status of an image to damaged."""
    store_int32(address, np.int32(DAMAGED))


@njit
def _read(pixels, tile, at, last, bytepix, start):  # type: ignore[no-untyped-def]
    """Decode the next pixels; return the position after them (-1 if damaged) and the last pixel."""
    if tile.stored != RICE:
        bitpix = bitpix_of(tile.stored)
        item = abs(bitpix) // 8
        if is_shuffled(tile.stored):
            _load_shuffled(pixels, tile.address + start, item, tile.size)
            return at, last
        for i in range(pixels.size):
            pixels[i] = load_stored(tile.address + (start + i) * item, bitpix)
        return at, last
    at, code = read_code(at, tile.end, bytepix)
    if at >= 0:
        at, last = read_block(pixels, at, tile.end, last, code, bytepix)
    ends = start + pixels.size == tile.needed
    if ends and not ends_well(at, tile.end, tile.needed == tile.size):
        return np.int64(-1), last
    return at, last


@njit
def _load_shuffled(pixels, address, item, pitch):  # type: ignore[no-untyped-def]
    """Load values whose bytes are `pitch` bytes apart."""
    for i in range(pixels.size):
        pixels[i] = 0
    for _ in range(item):
        for i in range(pixels.size):
            pixels[i] = (pixels[i] << 8) | np.int32(load_uint8(address + i))
        address += pitch


@njit
def _set_shared(view, tile, bytepix, shared):  # type: ignore[no-untyped-def]
    """Set the shared numbers of a tile, once, because they need divisions."""
    y, x, _, width, _, right = tile_bounds(view.plan, tile, view.rows, view.columns)
    stored = tile_number(view.plan, tile, STORED)
    shared[_Y], shared[_X], shared[_WIDTH], shared[_RIGHT] = y, x, width, right
    shared[_KIND] = stored_kind(stored, view.bitpix, bytepix, view.dither)
    shared[_QUANTIZED] = is_quantized(stored, view.dither)
    shared[_RANDOM] = random_row(image_tile(view.plan, tile, view.columns), number(view.plan, SEED))
    shared[_ROW] = shared[_COLUMN] = shared[_LEFT] = shared[_LEFT + 1] = 0


@njit
def _advance(shared, blocksize):  # type: ignore[no-untyped-def]
    """Move the row and column of a tile to the pixels after a block."""
    if shared[_COUNT] > 0:
        shared[_COLUMN] += blocksize
        while shared[_COLUMN] >= shared[_WIDTH]:
            shared[_COLUMN] -= shared[_WIDTH]
            shared[_ROW] += 1


@njit
def _write_block(view, tile, shared, pixels, first, lane, start, item, mean, factor):  # type: ignore[no-untyped-def]
    """Write the pixels of a block that are this thread's share, if they are in the window."""
    i, count = np.uint64(lane), np.uint64(shared[_COUNT])
    while i < count:
        offset = np.int64(i)
        if first < 0:
            place = _place(view, shared, offset)
        else:
            place = first - offset if view.flip_x else first + offset
        if place >= 0:
            _write(view, tile, shared, pixels[i], start + offset, place, item, mean, factor)
        i += np.uint64(WARP)


@njit
def _straight(view, shared):  # type: ignore[no-untyped-def]
    """Return the output index of a block's first pixel; -1 unless the others follow directly."""
    if 0 < shared[_COUNT] <= shared[_RIGHT] - shared[_COLUMN]:
        return _place(view, shared, 0)
    return np.int64(-1)


@njit
def _place(view, shared, i):  # type: ignore[no-untyped-def]
    """Return the output index of pixel i of a block, or -1 if it is outside the window."""
    row, column = shared[_ROW], shared[_COLUMN] + i
    while column >= shared[_WIDTH]:
        column -= shared[_WIDTH]
        row += 1
    y, x = shared[_Y] + row, shared[_X] + column
    if y < 0 or x < 0 or column >= shared[_RIGHT]:
        return np.int64(-1)
    if view.flip_y:
        y = view.rows - 1 - y
    if view.flip_x:
        x = view.columns - 1 - x
    return np.int64(y * view.columns + x)


@njit
def _write(view, tile, shared, pixel, position, place, item, mean, factor):  # type: ignore[no-untyped-def]
    """Write one pixel; `position` is its index in the tile, `place` its index in the output."""
    if item != 0:
        _store_integer(view.out + item * place, integer(pixel, shared[_KIND]), item)
    else:
        value = _value(view, tile, shared, pixel, position)
        store_float32(view.out + 4 * place, (value - mean) * factor)


@njit
def _value(view, tile, shared, pixel, position):  # type: ignore[no-untyped-def]
    kind = shared[_KIND]
    if not shared[_QUANTIZED]:
        return physical(pixel, kind, view.bitpix, view.scale, view.zero, view.blank)
    scaling = view.scaling + 8 * PER_SCALING * (1 + tile)
    return dequantized(
        integer(pixel, kind),
        load_float64(scaling + 8 * ZSCALE),
        load_float64(scaling + 8 * ZZERO),
        load_float64(scaling + 8 * ZBLANK),
        view.dither,
        shared[_RANDOM],
        position,
        view.random_numbers,
    )


@njit
def _store_integer(address, value, item):  # type: ignore[no-untyped-def]
    if item == 1:
        store_uint8(address, np.uint8(value))
    elif item == 2:
        store_int16(address, np.int16(value))
    else:
        store_int32(address, value)
