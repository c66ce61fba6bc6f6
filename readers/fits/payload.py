"""The plan of a FITS image's payload: what its bytes are, tile by tile.

Written by the Readers and followed by the kernels (`dali_pipelines.kernels`). A payload is what a
FITS file holds: RICE_1 streams, or big-endian values.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BITPIX, BYTEPIX, BLOCKSIZE, TILE_HEIGHT, TILE_WIDTH, HEIGHT, WIDTH, TOP, LEFT, DITHER, SEED = range(
    11
)
"""Places of the numbers that each plan begins with."""
HEAD = 11

OFFSET, LENGTH, STORED = range(3)
"""Places of a tile's numbers, behind the head."""
PER_TILE = 3

RICE = 0
"""In place STORED: the tile is a RICE_1 stream. Else the BITPIX of its values: 8 to -64."""

BSCALE, BZERO, BLANK = range(3)
"""Places of the image's numbers in ``scaling``."""
ZSCALE, ZZERO, ZBLANK = range(3)
"""Places of a tile's numbers in the ``scaling`` of a quantised image, behind the image's."""
PER_SCALING = 3

UNQUANTIZED, NO_DITHER, DITHER_1, DITHER_2 = 0, -1, 1, 2
"""In place DITHER: how floats were made integers, if they were."""

MAX_BLOCKSIZE = 64
"""Pixels of the longest block of RICE_1 that the kernels decode."""

PADDING = 1024
"""Zero bytes after the payload: a kernel looks for the end of a tile behind each block only, where
it may be 64 x 89 bits too far; and it loads two words at a time."""

OVERHEAD = PADDING + 8 * (HEAD + PER_SCALING)
"""Bytes that travel with an image besides its tiles and their numbers."""


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
    """Put a plan together.

    Parameters
    ----------
    tiles : ndarray, shape (tiles, 3), int64
        Offset in the payload, length in bytes, and BITPIX of the stored values, or `RICE`. In the
        order of the rows of tiles that the window touches and, within, columns. No tile at all
        makes an image of zeros.
    bitpix : int
        Of the image: ZBITPIX, if it is compressed.
    height, width : int
        Of the image, in pixels.
    tile_height, tile_width : int
        Of all tiles but those at the far edges, which are cut short.
    top, left : int
        First row and column of the window.
    bytepix, blocksize : int
        Of RICE_1.
    dither, seed : int
        ZQUANTIZ as one of the words above, and ZDITHER0.

    Returns
    -------
    ndarray, shape (HEAD + 3 * tiles,), int64
    """
    head = (
        *(bitpix, bytepix, blocksize, tile_height, tile_width),
        *(height, width, top, left, dither, seed),
    )
    return np.concatenate((np.array(head, np.int64), tiles.reshape(-1)))
