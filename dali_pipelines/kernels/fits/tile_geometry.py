"""Positions of the tiles of a plan in the image, and the parts of them that a window needs."""

from __future__ import annotations

from dali_pipelines.kernels.bits import load_int64
from dali_pipelines.kernels.jit import njit
from readers.fits.payload import HEAD, HEIGHT, LEFT, PER_TILE, TILE_HEIGHT, TILE_WIDTH, TOP, WIDTH


@njit(inline="always")
def number(plan, place):  # type: ignore[no-untyped-def]
    """Return a number from the head of the plan at address `plan`."""
    return load_int64(plan + 8 * place)


@njit(inline="always")
def tile_number(plan, tile, place):  # type: ignore[no-untyped-def]
    """Return one of the numbers of a tile in the plan."""
    return load_int64(plan + 8 * (HEAD + PER_TILE * tile + place))


@njit
def num_tiles(plan, rows, columns):  # type: ignore[no-untyped-def]
    """Return the number of tiles that a window of rows x columns pixels touches."""
    tile_height, tile_width = number(plan, TILE_HEIGHT), number(plan, TILE_WIDTH)
    top, left = number(plan, TOP), number(plan, LEFT)
    down = (top + rows - 1) // tile_height + 1 - top // tile_height
    return down * ((left + columns - 1) // tile_width + 1 - left // tile_width)


@njit
def tile_bounds(plan, tile, rows, columns):  # type: ignore[no-untyped-def]
    """Return the position and size of a tile.

    Parameters
    ----------
    plan : int
        Address of the plan.
    tile : int
        Index of the tile in the plan.
    rows, columns : int
        Size of the window in pixels.

    Returns
    -------
    y, x : int
        Position of the tile's first pixel in the window; negative if it is before the window.
    height, width : int
        Size of the tile; tiles at the far edges of the image are smaller.
    bottom, right : int
        Exclusive end of the tile's rows and columns that the window needs. They begin at the start
        of the tile or of the window, whichever is later.
    """
    tile_height, tile_width = number(plan, TILE_HEIGHT), number(plan, TILE_WIDTH)
    top, left = number(plan, TOP), number(plan, LEFT)
    across = (left + columns - 1) // tile_width + 1 - left // tile_width
    y = (top // tile_height + tile // across) * tile_height
    x = (left // tile_width + tile % across) * tile_width
    height = min(tile_height, number(plan, HEIGHT) - y)
    width = min(tile_width, number(plan, WIDTH) - x)
    y, x = y - top, x - left
    return y, x, height, width, min(rows - y, height), min(columns - x, width)


@njit
def image_tile(plan, tile, columns):  # type: ignore[no-untyped-def]
    """Return the index of a tile among all tiles of the image: its row in the table of tiles."""
    tile_height, tile_width = number(plan, TILE_HEIGHT), number(plan, TILE_WIDTH)
    first = number(plan, LEFT) // tile_width
    across = (number(plan, LEFT) + columns - 1) // tile_width + 1 - first
    in_image = (number(plan, WIDTH) - 1) // tile_width + 1
    row = number(plan, TOP) // tile_height + tile // across
    return row * in_image + first + tile % across
