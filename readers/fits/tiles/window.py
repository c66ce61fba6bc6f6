"""Put decoded tiles together to the pixels of a window."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

STORED_INTEGERS: dict[int, np.dtype[Any]] = {
    8: np.dtype(">u1"),
    16: np.dtype(">i2"),
    32: np.dtype(">i4"),
}
"""Types by BITPIX."""


def stored_tile(values: bytes, bitpix: int, shape: NDArray[np.int64]) -> NDArray[Any]:
    """Return a tile that is stored as integers; ValueError if they are floats."""
    if bitpix not in STORED_INTEGERS:
        raise ValueError(f"a tile has values of BITPIX {bitpix}, expected those of integers")
    return np.frombuffer(values, STORED_INTEGERS[bitpix]).reshape(shape)


def put_together(
    pixels: NDArray[Any],
    tiles: Iterator[NDArray[Any]],
    corner: tuple[int, int],
    tile_size: tuple[int, int],
) -> None:
    """Write the tiles that a window touches to its pixels.

    Parameters
    ----------
    pixels : ndarray, shape (planes, height, width)
        Written. Integers keep their lowest bits, as in astropy.
    tiles : iterator of ndarray, shape (rows, columns)
        Plane by plane, row by row.
    corner : (int, int)
        First row and column of the window in the image.
    tile_size : (int, int)
        Rows and columns of whole tiles.
    """
    planes, height, width = pixels.shape
    (y, x), (rows, columns) = corner, tile_size
    down = range(y // rows * rows - y, height, rows)
    across = range(x // columns * columns - x, width, columns)
    for (plane, top, left), tile in zip(product(range(planes), down, across), tiles, strict=True):
        inside = tile[max(-top, 0) : height - top, max(-left, 0) : width - left]
        target = pixels[plane, max(top, 0) :, max(left, 0) :]
        target[: inside.shape[0], : inside.shape[1]] = inside
