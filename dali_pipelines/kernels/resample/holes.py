"""What stands in for missing pixels while an image is resampled.

Missing is NaN, and what is not above a floor, where a recipe takes dark pixels for missing ones. A
spline, or a bilinear mean, would carry one NaN into all of its neighbours. In its place stands the
mean of the nearest pixels above, below, left and right of it, by the inverse of their distance, so
that what is resampled beside a hole comes from pixels alone, without a step. Afterwards those
places become NaN where the hole has half or more of the weight of a bilinear sample.
"""

from __future__ import annotations

import math

import numpy as np

from dali_pipelines.kernels.bits import load_float32
from dali_pipelines.kernels.compiled import compiled
from dali_pipelines.kernels.resample.bspline import REACH


@compiled
def load_pixel(image, width, y, x):  # type: ignore[no-untyped-def]
    """Give a pixel of an image of float32 by its address, on a CPU or a GPU."""
    return load_float32(image + 4 * (y * width + x))


@compiled
def hole_value(image, height, width, y, x, floor):  # type: ignore[no-untyped-def]
    """Give what stands in for the hole at (y, x); 0 where no pixel is within `REACH`, and matters.

    Parameters
    ----------
    image : int64
        Address of the image, shape (height, width), float32.
    height, width, y, x : int64
        Its shape; row and column in it.
    floor : float32
        Values that are not above it are holes; -inf if only NaN is one.
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


@compiled
def pixel_weight(image, height, width, y, x, floor):  # type: ignore[no-untyped-def]
    """Give the share that pixels, and not holes, have in the bilinear sample at (y, x), float64."""
    iy, ix = math.floor(y), math.floor(x)
    ty, tx = y - iy, x - ix
    share = 0.0
    for row, across in ((iy, 1 - ty), (iy + 1, ty)):
        for column, along in ((ix, 1 - tx), (ix + 1, tx)):
            inside = 0 <= row < height and 0 <= column < width
            if inside and load_pixel(image, width, row, column) > floor:
                share += across * along
    return share
