"""Table that describes the images of a batch to a GPU, and functions that read from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_pipelines.kernels.bits import load_float64, load_int32, load_int64
from dali_pipelines.kernels.fits.pixel import is_inside
from dali_pipelines.kernels.fits.tile_geometry import num_tiles, number, tile_bounds, tile_number
from dali_pipelines.kernels.jit import njit
from readers.fits.payload import (
    BITPIX,
    BLANK,
    BSCALE,
    BYTEPIX,
    BZERO,
    DITHER,
    HEAD,
    LENGTH,
    OFFSET,
    PER_SCALING,
    PER_TILE,
    RICE,
    STORED,
    UNQUANTIZED,
)

WARP = 32
"""Threads of a warp; each decodes one tile of an image."""


@dataclass(frozen=True, slots=True)
class DecodedImage:
    """Image of a batch: addresses on the device, and sizes; see `image.decode_image`."""

    out: int
    status: int
    """Address of an int32 that is 0 before the launch."""
    payload: int
    payload_size: int
    plan: int
    plan_size: int
    """Numbers in the plan, more than `readers.fits.payload.HEAD`."""
    scaling: int
    scaling_size: int
    """Numbers in the scaling."""
    flip: int
    rows: int
    columns: int

    @property
    def blocks(self) -> int:
        """Number of warps that this image needs."""
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
    FIRST_BLOCK,
) = range(_NUM_FIELDS)


def launch_table(images: Sequence[DecodedImage]) -> tuple[NDArray[np.int64], int]:
    """Return the table of a batch for `decode_images`, and the number of blocks."""
    table = np.empty((len(images), _NUM_FIELDS), np.int64)
    block = 0
    for row, image in zip(table, images, strict=True):
        row[:] = *astuple(image), block
        block += image.blocks
    return table, block


class TileView(NamedTuple):
    """Values that are the same for all tiles of an image."""

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
    """Number of tiles in the plan."""
    bitpix: Any
    dither: Any
    scale: Any
    zero: Any
    blank: Any
    random_numbers: Any


class Tile(NamedTuple):
    """Tile that one thread decodes."""

    needed: Any
    """Number of pixels to decode; 0 for none, -1 if the plan is inconsistent."""
    size: Any
    """Number of pixels in the tile."""
    address: Any
    end: Any
    """Address of the tile's end, times 8."""
    stored: Any


@njit
def field_of(table, image, field):  # type: ignore[no-untyped-def]
    """Return a field of an image from the table at address `table`."""
    return load_int64(table + 8 * (_NUM_FIELDS * image + field))


@njit
def image_of(table, num_images, block):  # type: ignore[no-untyped-def]
    """Return the index of the image that a block belongs to."""
    image = 0
    while image + 1 < num_images and field_of(table, image + 1, FIRST_BLOCK) <= block:
        image += 1
    return image


@njit
def view_of(table, image, random_numbers):  # type: ignore[no-untyped-def]
    """Read the values of an image."""
    plan, scaling = field_of(table, image, _PLAN), field_of(table, image, _SCALING)
    flip = field_of(table, image, _FLIP)
    scaling_size = field_of(table, image, _SCALING_SIZE)
    scale = zero = blank = 0.0
    if scaling_size >= PER_SCALING:  # otherwise `tile_of` rejects it
        scale, zero = load_float64(scaling + 8 * BSCALE), load_float64(scaling + 8 * BZERO)
        blank = load_float64(scaling + 8 * BLANK)
    return TileView(
        field_of(table, image, _OUT),
        field_of(table, image, _STATUS),
        field_of(table, image, _PAYLOAD),
        field_of(table, image, _PAYLOAD_SIZE),
        plan,
        scaling,
        scaling_size,
        field_of(table, image, _ROWS),
        field_of(table, image, _COLUMNS),
        load_int32(flip),
        load_int32(flip + 4),
        (field_of(table, image, _PLAN_SIZE) - HEAD) // PER_TILE,
        number(plan, BITPIX),
        number(plan, DITHER),
        scale,
        zero,
        blank,
        random_numbers,
    )


@njit
def tile_of(view, tile):  # type: ignore[no-untyped-def]
    """Check and describe the tile that a thread decodes."""
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
