"""The plan of a FITS image's payload: the bytes of each tile, and how to decode them.

Readers write the plan, and kernels (`dali_pipelines.kernels`) decode the payload by it. The payload
contains RICE_1 streams, words of PLIO_1 and big-endian values, as in the FITS file.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BITPIX, BYTEPIX, BLOCKSIZE, TILE_HEIGHT, TILE_WIDTH, HEIGHT, WIDTH, TOP, LEFT, DITHER, SEED = range(
    11
)
"""Positions of the numbers at the start of each plan."""
HEAD = 11
"""Number of these numbers."""

OFFSET, LENGTH, STORED = range(3)
"""Positions of the numbers of each tile. They come after the head."""
PER_TILE = 3

RICE, PLIO = 0, 1
"""Values of STORED for a RICE_1 stream and words of PLIO_1. Other values are the BITPIX, 8 to -64,
plus flags."""
SHUFFLED = 256
"""Flag, for values of 2 and 4 bytes: first bytes of all values, then their second bytes, ..."""
QUANTIZED = 512
"""Flag: values are integers of a quantised image, to be converted back to floats."""

BSCALE, BZERO, BLANK = range(3)
"""Positions of the image's numbers in ``scaling``."""
ZSCALE, ZZERO, ZBLANK = range(3)
"""Positions in the numbers of a tile of a quantised image. In ``scaling`` the numbers of all tiles
come after those of the image."""
PER_SCALING = 3

UNQUANTIZED, NO_DITHER, DITHER_1, DITHER_2 = 0, -1, 1, 2
"""Values of DITHER: the method that quantised floats to integers, if any."""

MAX_BLOCKSIZE = 64
"""Pixels of the longest RICE_1 block that the kernels decode."""

PADDING = 1024
"""Zero bytes after the payload. A kernel may read 64 x 54 bits past the end of a tile, because it
looks for the end only after each block, and it loads two 64-bit words at a time."""

OVERHEAD = PADDING + 8 * (HEAD + PER_SCALING)
"""Bytes that are sent with an image besides its tiles and their numbers."""


def make_plan(
    tiles: NDArray[np.int64],
    *,
    bitpix: int,
    height: int,
    width: int,
    tile_height: int,
    tile_width: int,
    top: int = 0,
    left: int = 0,
    bytepix: int = 1,
    blocksize: int = 32,
    dither: int = UNQUANTIZED,
    seed: int = 0,
) -> NDArray[np.int64]:
    """Return the plan of one plane.

    Parameters
    ----------
    tiles : ndarray, shape (tiles, 3), int64
        Offset in the payload, length in bytes, and STORED of each tile that the window touches, row
        by row. Without tiles the image is zeros.
    bitpix : int
        BITPIX of the image; ZBITPIX of a compressed image.
    height, width : int
        Size of the image, in pixels.
    tile_height, tile_width : int
        Size of the tiles, in pixels. Tiles at the far edges may be smaller.
    top, left : int
        First row and column of the window.
    bytepix, blocksize : int
        Settings of RICE_1.
    dither, seed : int
        Value of DITHER for ZQUANTIZ, and ZDITHER0.

    Returns
    -------
    ndarray, shape (HEAD + 3 * tiles,), int64
    """
    head = (
        *(bitpix, bytepix, blocksize, tile_height, tile_width),
        *(height, width, top, left, dither, seed),
    )
    return np.concatenate((np.array(head, np.int64), tiles.reshape(-1)))
