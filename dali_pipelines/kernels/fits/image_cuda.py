"""The images of a batch on a GPU: one launch, a thread for each tile, on the kernels of the CPU.

`dali_pipelines.kernels.fits.rice` and `physical` are compiled for the GPU by numba-cuda. A warp
takes 32 tiles of one image. Each thread decodes a block of its tile into shared memory; then all
threads together write block by block, neighbours to neighbouring addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any, NamedTuple

import numpy as np
from numba import cuda
from numpy.typing import NDArray

from dali_pipelines.kernels.bits import (
    load_float64,
    load_int32,
    load_int64,
    store_float32,
    store_int16,
    store_int32,
    store_uint8,
)
from dali_pipelines.kernels.compiled import compiled, kept, stamped
from dali_pipelines.kernels.fits.dither import dequantized, random_row
from dali_pipelines.kernels.fits.image import (
    DAMAGED,
    integer,
    is_inside,
    load_stored,
    physical,
    stored_kind,
)
from dali_pipelines.kernels.fits.rice import ends_well, first_pixel, read_block, read_code
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
    LENGTH,
    MAX_BLOCKSIZE,
    OFFSET,
    PER_SCALING,
    PER_TILE,
    RICE,
    SEED,
    STORED,
    UNQUANTIZED,
    ZBLANK,
    ZSCALE,
    ZZERO,
)

WARP = 32
_PITCH = MAX_BLOCKSIZE + 1
"""Of the pixels of a thread in shared memory: odd, so that threads that write at once use different
banks."""

_COUNT, _Y, _X, _WIDTH, _RIGHT, _KIND, _QUANTIZED, _RANDOM, _ROW, _COLUMN = range(10)
_SHARED = 10
"""What all threads know of each thread's tile: pixels just decoded, place in the window, width, and
the row and column in the tile where those pixels begin."""


@dataclass(frozen=True, slots=True)
class Image:
    """One image of a batch: addresses on the device, and sizes; see `physical.decode_image`."""

    out: int
    status: int
    """Of an int32, 0 before the launch."""
    payload: int
    payload_size: int
    plan: int
    plan_size: int
    """In numbers; more than `readers.fits.payload.HEAD`."""
    scaling: int
    scaling_size: int
    """In numbers."""
    flip: int
    rows: int
    columns: int

    @property
    def blocks(self) -> int:
        """Warps that this image needs."""
        return -(-((self.plan_size - HEAD) // PER_TILE) // WARP)


_NUM_FIELDS = 12
(
    _OUT,
    _STATUS,
    _PAYLOAD,
    _PAYLOAD_SIZE,
    _PLAN,
    _PLAN_SIZE,
    _SCALING,
    _SCALING_SIZE,
    _FLIP,
    _ROWS,
    _COLUMNS,
    _FIRST_BLOCK,
) = range(_NUM_FIELDS)


def launch_table(images: Sequence[Image]) -> tuple[NDArray[np.int64], int]:
    """Return what `decode_images` needs to know of a batch, and its number of blocks."""
    table = np.empty((len(images), _NUM_FIELDS), np.int64)
    block = 0
    for row, image in zip(table, images, strict=True):
        row[:] = *astuple(image), block
        block += image.blocks
    return table, block


class View(NamedTuple):
    """What all pixels of an image have in common."""

    out: Any
    status: Any
    payload: Any
    payload_size: Any
    plan: Any
    scaling: Any
    scaling_size: Any
    rows: Any
    columns: Any
    flip_x: Any
    flip_y: Any
    count: Any
    """Of its tiles."""
    bitpix: Any
    dither: Any
    scale: Any
    zero: Any
    blank: Any
    random_numbers: Any


class Tile(NamedTuple):
    """What one thread decodes."""

    needed: Any
    """Pixels wanted; 0 for none, -1 if the plan does not add up."""
    size: Any
    """Pixels that it has."""
    address: Any
    end: Any
    """Its address times 8."""
    stored: Any


@stamped
@kept(cuda.jit)
def decode_images(table, num_images, item, mean, factor, random_numbers):  # type: ignore[no-untyped-def]
    """Decode a batch; launch ``[blocks, WARP]``.

    Parameters
    ----------
    table : int64
        Address of the `launch_table` on the device.
    num_images : int64
        Its rows.
    item : int64
        Bytes of an output pixel; 0 for float32, which is scaled and normalised.
    mean, factor : float32
        ``(value - mean) * factor`` is written.
    random_numbers : int64
        Address of `dali_pipelines.kernels.fits.dither.RANDOM` on the device.
    """
    pixels = cuda.shared.array((WARP, _PITCH), np.int32)
    tiles = cuda.shared.array((WARP, _SHARED), np.int64)
    lane = cuda.threadIdx.x
    image = _image_of(table, num_images, cuda.blockIdx.x)
    first = (cuda.blockIdx.x - _field(table, image, _FIRST_BLOCK)) * WARP
    view = _view(table, image, random_numbers)
    blocksize, bytepix = number(view.plan, BLOCKSIZE), number(view.plan, BYTEPIX)
    tile = _tile(view, first + lane)
    at = 8 * (tile.address + bytepix)
    last = np.int64(0)
    if tile.needed > 0 and tile.stored == RICE:
        last = first_pixel(tile.address, bytepix)
    needed = tile.needed
    if needed < 0:
        _tell_damaged(view.status)
    if needed > 0:
        _share(view, first + lane, bytepix, tiles[lane])
    tiles[lane, _COUNT] = needed
    cuda.syncthreads()
    longest = np.int64(0)
    for other in range(WARP):
        longest = max(longest, tiles[other, _COUNT])
    cuda.syncthreads()
    for start in range(0, longest, blocksize):
        count = max(min(blocksize, needed - start), 0)
        if count > 0:
            at, last = _read(pixels[lane, :count], tile, at, last, bytepix, start)
            if at < 0:
                _tell_damaged(view.status)
                needed = count = np.int64(0)
        tiles[lane, _COUNT] = count
        cuda.syncthreads()
        for other in range(WARP):
            _write(
                view, first + other, tiles[other], pixels[other], lane, start, item, mean, factor
            )
        cuda.syncthreads()
        _advance(tiles[lane], blocksize)


@compiled
def _field(table, image, field):  # type: ignore[no-untyped-def]
    return load_int64(table + 8 * (_NUM_FIELDS * image + field))


@compiled
def _image_of(table, num_images, block):  # type: ignore[no-untyped-def]
    """Find the image that a block works on."""
    image = 0
    while image + 1 < num_images and _field(table, image + 1, _FIRST_BLOCK) <= block:
        image += 1
    return image


@compiled
def _view(table, image, random_numbers):  # type: ignore[no-untyped-def]
    plan, scaling = _field(table, image, _PLAN), _field(table, image, _SCALING)
    flip = _field(table, image, _FLIP)
    return View(
        _field(table, image, _OUT),
        _field(table, image, _STATUS),
        _field(table, image, _PAYLOAD),
        _field(table, image, _PAYLOAD_SIZE),
        plan,
        scaling,
        _field(table, image, _SCALING_SIZE),
        _field(table, image, _ROWS),
        _field(table, image, _COLUMNS),
        load_int32(flip),
        load_int32(flip + 4),
        (_field(table, image, _PLAN_SIZE) - HEAD) // PER_TILE,
        number(plan, BITPIX),
        number(plan, DITHER),
        load_float64(scaling + 8 * BSCALE),
        load_float64(scaling + 8 * BZERO),
        load_float64(scaling + 8 * BLANK),
        random_numbers,
    )


@compiled
def _tell_damaged(address):  # type: ignore[no-untyped-def]
    """Tell that an image is damaged."""
    store_int32(address, np.int32(DAMAGED))


@compiled
def _tile(view, tile):  # type: ignore[no-untyped-def]
    """Check and describe the tile of a thread."""
    zero, wrong = np.int64(0), np.int64(-1)
    if tile >= view.count:
        return Tile(zero, zero, zero, zero, zero)
    tile_scalings = view.count if view.dither != UNQUANTIZED else 0
    if (
        view.count != num_tiles(view.plan, view.rows, view.columns)
        or view.scaling_size != (1 + tile_scalings) * PER_SCALING
    ):
        return Tile(wrong, zero, zero, zero, zero)
    _, _, height, width, bottom, right = tile_bounds(view.plan, tile, view.rows, view.columns)
    place, length = tile_number(view.plan, tile, OFFSET), tile_number(view.plan, tile, LENGTH)
    stored = tile_number(view.plan, tile, STORED)
    size = height * width
    if not is_inside(place, length, stored, size, view.payload_size):
        return Tile(wrong, zero, zero, zero, zero)
    if stored == RICE and length < number(view.plan, BYTEPIX):
        return Tile(wrong, zero, zero, zero, zero)
    needed = (bottom - 1) * width + right
    return Tile(needed, size, view.payload + place, 8 * (view.payload + place + length), stored)


@compiled
def _read(pixels, tile, at, last, bytepix, start):  # type: ignore[no-untyped-def]
    """Decode the next pixels; return the position behind them, -1 if damaged, and the last one."""
    if tile.stored != RICE:
        bytes_each = abs(tile.stored) // 8
        for i in range(pixels.size):
            pixels[i] = load_stored(tile.address + (start + i) * bytes_each, tile.stored)
        return at, last
    at, code = read_code(at, tile.end, bytepix)
    if at >= 0:
        at, last = read_block(pixels, at, tile.end, last, code, bytepix)
    ends = start + pixels.size == tile.needed
    if ends and not ends_well(at, tile.end, tile.needed == tile.size):
        return np.int64(-1), last
    return at, last


@compiled
def _share(view, tile, bytepix, shared):  # type: ignore[no-untyped-def]
    """Tell the other threads of a tile, once: what takes divisions."""
    y, x, _, width, _, right = tile_bounds(view.plan, tile, view.rows, view.columns)
    stored = tile_number(view.plan, tile, STORED)
    shared[_Y], shared[_X], shared[_WIDTH], shared[_RIGHT] = y, x, width, right
    shared[_KIND] = stored_kind(stored, view.bitpix, bytepix, view.dither)
    shared[_QUANTIZED] = view.dither != UNQUANTIZED and stored == RICE
    shared[_RANDOM] = random_row(image_tile(view.plan, tile, view.columns), number(view.plan, SEED))
    shared[_ROW] = shared[_COLUMN] = 0


@compiled
def _advance(shared, blocksize):  # type: ignore[no-untyped-def]
    """Move the place of a tile's next pixels behind those of a block."""
    if shared[_COUNT] > 0:
        shared[_COLUMN] += blocksize
        while shared[_COLUMN] >= shared[_WIDTH]:
            shared[_COLUMN] -= shared[_WIDTH]
            shared[_ROW] += 1


@compiled
def _write(view, tile, shared, pixels, lane, start, item, mean, factor):  # type: ignore[no-untyped-def]
    """Write this thread's share of a tile's pixels, those of them that lie in the window."""
    row, column = shared[_ROW], shared[_COLUMN] + lane
    for i in range(lane, shared[_COUNT], WARP):
        while column >= shared[_WIDTH]:
            column -= shared[_WIDTH]
            row += 1
        y, x = shared[_Y] + row, shared[_X] + column
        if y >= 0 and x >= 0 and column < shared[_RIGHT]:
            if view.flip_y:
                y = view.rows - 1 - y
            if view.flip_x:
                x = view.columns - 1 - x
            place = y * view.columns + x
            if item != 0:
                value = integer(pixels[i], shared[_KIND])
                _store_integer(view.out + item * place, value, item)
            else:
                value = _value(view, tile, shared, pixels[i], start + i)
                store_float32(view.out + 4 * place, (value - mean) * factor)
        column += WARP


@compiled
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


@compiled
def _store_integer(address, value, item):  # type: ignore[no-untyped-def]
    if item == 1:
        store_uint8(address, np.uint8(value))
    elif item == 2:
        store_int16(address, np.int16(value))
    else:
        store_int32(address, value)
