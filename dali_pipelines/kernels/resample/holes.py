"""Substitute values for missing pixels (holes) while an image is resampled.

Holes are NaN pixels, and also pixels up to a floor if a recipe treats dark pixels as missing. A
spline or a bilinear mean would spread a NaN to all neighbours. Therefore a hole is replaced by the
mean of the nearest pixels above, below, left and right, weighted by inverse distance: next to a
hole the result depends only on valid pixels, without a step. In the end, an output pixel becomes
NaN if holes have half or more of the weight of a bilinear sample at its position.
"""

from __future__ import annotations

import math

import numpy as np

from dali_pipelines.kernels.bits import load_float32
from dali_pipelines.kernels.jit import njit
from dali_pipelines.kernels.resample.bspline import REACH


@njit
def load_pixel(image, width, y, x):  # type: ignore[no-untyped-def]
    """Return a pixel of the float32 image at an address, on a CPU or a GPU."""
    return load_float32(image + 4 * (y * width + x))


@njit
def hole_value(image, height, width, y, x, floor):  # type: ignore[no-untyped-def]
    """Return the substitute for the hole at (y, x); 0 if no pixel is within `REACH`.

    Parameters
    ----------
    image : int64
        Address of the image, shape (height, width), float32.
    height, width, y, x : int64
        Shape of the image; row and column in it.
    floor : float32
        Values up to the floor are holes; with -inf only NaN is a hole.
    """
    total = weights = np.float32(0)
    for dy, dx in ((-1, 0), (1, 0), (0, -1), (0, 1)):
        for distance in range(1, REACH + 1):
            yy, xx = y + distance * dy, x + distance * dx
            if not (0 <= yy < height and 0 <= xx < width):
                break
            value = load_pixel(image, width, yy, xx)
            if value > floor:
                total += value / np.float32(distance)
                weights += np.float32(1) / np.float32(distance)
                break
    return total / weights if weights > 0 else np.float32(0)


@njit
def pixel_weight(image, height, width, y, x, floor):  # type: ignore[no-untyped-def]
    """Return the weight, float64, of valid pixels in the bilinear sample at (y, x)."""
    iy, ix = np.int64(math.floor(y)), np.int64(math.floor(x))  # a GPU's floor is a float
    ty, tx = y - iy, x - ix
    share = 0.0
    for row, across in ((iy, 1 - ty), (iy + 1, ty)):
        for column, along in ((ix, 1 - tx), (ix + 1, tx)):
            inside = 0 <= row < height and 0 <= column < width
            if inside and load_pixel(image, width, row, column) > floor:
                share += across * along
    return share
