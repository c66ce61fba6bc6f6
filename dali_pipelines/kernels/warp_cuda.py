"""Resample an image by an affine map on a GPU: `dali_pipelines.kernels.warp` with a thread a pixel.

Two launches turn the image into spline coefficients, rows first, and one samples them. Holes, the
spline and the stretch are the functions of the CPU.
"""

from __future__ import annotations

import math

import numpy as np
from numba import cuda

from dali_pipelines.kernels.bspline import PREFILTER, REACH, spline_weights
from dali_pipelines.kernels.compiled import compiled, stamped
from dali_pipelines.kernels.holes import hole_value, pixel_weight
from dali_pipelines.kernels.stretch import stretched
from dali_pipelines.kernels.warp import FLOOR, HOLE, LOWEST, OUTSIDE, is_inside, mirrored

BLOCK = (8, 32)
"""Threads of a block, rows and columns."""


def blocks(shape: tuple[int, ...]) -> tuple[int, int]:
    """Give the number of blocks that an image needs, along both axes."""
    return -(-shape[0] // BLOCK[0]), -(-shape[1] // BLOCK[1])


@stamped
@cuda.jit(cache=True)
def prefilter_rows(out, image, special):  # type: ignore[no-untyped-def]
    """Fill holes and filter along rows; arrays of shape (height, width), float32."""
    y, x = cuda.grid(2)
    height, width = image.shape
    if y >= height or x >= width:
        return
    total = np.float32(0)
    for k in range(-REACH, REACH + 1):
        total += PREFILTER[abs(k)] * _pixel(image, y, mirrored(x + k, width), special)
    out[y, x] = total


@stamped
@cuda.jit(cache=True)
def prefilter_columns(out, lines):  # type: ignore[no-untyped-def]
    """Filter along columns; arrays of shape (height, width), float32."""
    y, x = cuda.grid(2)
    height, width = lines.shape
    if y >= height or x >= width:
        return
    total = np.float32(0)
    for k in range(-REACH, REACH + 1):
        total += PREFILTER[abs(k)] * lines[mirrored(y + k, height), x]
    out[y, x] = total


@stamped
@cuda.jit(cache=True)
def warp(out, coefficients, image, matrix, reduce, special, limits, gain, stretch, flip):  # type: ignore[no-untyped-def]
    """Write the resampled image; launch over the pixels of `out`.

    Parameters
    ----------
    out, image, matrix, reduce, special, stretch, flip
        As for `dali_pipelines.kernels.warp.warp`.
    coefficients : ndarray, shape (height, width) or (0, 0), float32
        Of the spline, for order 3; nothing for order 1.
    limits : ndarray, shape (2,), float32
        Least and greatest value that the spline may give.
    gain : ndarray, shape (1,), float64
        Factor of all values.
    """
    row, column = cuda.grid(2)
    rows, columns = out.shape
    if row >= rows or column >= columns:
        return
    total, count = np.float32(0), 0
    for j in range(row * reduce, (row + 1) * reduce):
        for i in range(column * reduce, (column + 1) * reduce):
            x = matrix[0, 0] * i + matrix[0, 1] * j + matrix[0, 2]
            y = matrix[1, 0] * i + matrix[1, 1] * j + matrix[1, 2]
            value = special[OUTSIDE]
            if is_inside(y, x, image.shape[0], image.shape[1]):
                if coefficients.shape[0] > 0:
                    value = min(max(_cubic(coefficients, y, x), limits[0]), limits[1])
                else:
                    value = _linear(image, y, x, special)
                if pixel_weight(image, y, x, special[FLOOR]) <= 0.5:
                    value = np.float32(np.nan)
            if not math.isnan(value):
                total += value
                count += 1
    mean = special[HOLE]
    if 2 * count > reduce * reduce:
        mean = total / np.float32(count)
    y_out = rows - 1 - row if flip[1] else row
    x_out = columns - 1 - column if flip[0] else column
    out[y_out, x_out] = stretched(np.float32(gain[0]) * mean, stretch)


@compiled
def _pixel(image, y, x, special):  # type: ignore[no-untyped-def]
    value = image[y, x]
    if not value > special[FLOOR]:
        value = hole_value(image, y, x, special[FLOOR])
    return max(value, special[LOWEST])


@compiled
def _cubic(coefficients, y, x):  # type: ignore[no-untyped-def]
    height, width = coefficients.shape
    ix, iy = math.floor(x), math.floor(y)
    u = spline_weights(np.float32(x - ix))
    v = spline_weights(np.float32(y - iy))
    total = np.float32(0)
    for j in range(4):
        line = mirrored(iy - 1 + j, height)
        across = np.float32(0)
        for i in range(4):
            across += u[i] * coefficients[line, mirrored(ix - 1 + i, width)]
        total += v[j] * across
    return total


@compiled
def _linear(image, y, x, special):  # type: ignore[no-untyped-def]
    height, width = image.shape
    ix, iy = math.floor(x), math.floor(y)
    u, v = np.float32(x - ix), np.float32(y - iy)
    right, down = mirrored(ix + 1, width), mirrored(iy + 1, height)
    ix, iy = mirrored(ix, width), mirrored(iy, height)
    upper, lower = _pixel(image, iy, ix, special), _pixel(image, down, ix, special)
    above = upper + u * (_pixel(image, iy, right, special) - upper)
    below = lower + u * (_pixel(image, down, right, special) - lower)
    return above + v * (below - above)
