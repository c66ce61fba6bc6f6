"""Convert integers of tiles back to the floats from which they were quantised.

Notes
-----
FITS Standard 4.0, section 10.2 and appendix I (the random numbers).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dali_pipelines.kernels.bits import load_float32, product64
from dali_pipelines.kernels.jit import njit
from readers.fits.payload import DITHER_2, NO_DITHER

_SIZE = 10000
_ZERO = -2147483646
"""Integer that stands for exactly 0.0 with SUBTRACTIVE_DITHER_2."""


def _random_numbers() -> NDArray[np.float32]:
    found = np.empty(_SIZE, np.float32)
    seed = 1
    for i in range(_SIZE):
        seed = 16807 * seed % 2147483647
        found[i] = seed / 2147483647
    return found


RANDOM = _random_numbers()
"""Random numbers of the standard. Kernels get their address, because they do not fit into the
constant memory of a GPU."""


@njit
def dequantized(quantized, scale, zero, blank, dither, row, position, numbers):  # type: ignore[no-untyped-def]
    """Return the physical value of a quantised pixel.

    Parameters
    ----------
    quantized : int32
        Integer from the tile.
    scale, zero : float64
        ZSCALE and ZZERO of the tile.
    blank : float64
        ZBLANK, or NaN if there is none.
    dither : int
        `NO_DITHER`, `DITHER_1` or `DITHER_2` of `readers.fits.payload`.
    row : int
        `random_row` of the tile.
    position : int
        Index of the pixel in its tile.
    numbers : int
        Address of `RANDOM`.

    Returns
    -------
    float32
        NaN if the pixel is blank.
    """
    number = np.float64(quantized)
    if number == blank:
        return np.float32(math.nan)
    if dither == NO_DITHER:
        return np.float32(product64(number, scale) + zero)
    if dither == DITHER_2 and quantized == _ZERO:
        return np.float32(0)
    return np.float32(product64(number - _random(numbers, row, position) + 0.5, scale) + zero)


@njit
def random_row(tile, seed):  # type: ignore[no-untyped-def]
    """Return a tile's row in the random numbers; `tile` counts from 0, `seed` is ZDITHER0."""
    return (tile + seed - 1) % _SIZE


@njit
def _random(numbers, row, position):  # type: ignore[no-untyped-def]
    """Return the random number of a pixel. At the end of the table the next row follows."""
    place = _start(numbers, row) + position
    while place >= _SIZE:
        position = place - _SIZE
        row = (row + 1) % _SIZE
        place = _start(numbers, row) + position
    return np.float64(load_float32(numbers + 4 * place))


@njit
def _start(numbers, row):  # type: ignore[no-untyped-def]
    return np.int64(load_float32(numbers + 4 * row) * np.float32(500))
