"""Resample an image by an affine map on a GPU, with a thread for each pixel, see `warp`.

It samples the spline coefficients of `prefilter_cuda`, or for order 1 the image. Holes, spline and
stretch use the functions of the CPU. Arrays are passed as addresses on the device.
"""

from __future__ import annotations

import math

import numpy as np
from numba import cuda

from dali_pipelines.kernels.bits import (
    load_float32,
    load_float64,
    load_int32,
    load_int64,
    store_float32,
)
from dali_pipelines.kernels.compiled import compiled, kept, stamped
from dali_pipelines.kernels.resample.bspline import spline_weights
from dali_pipelines.kernels.resample.holes import pixel_weight
from dali_pipelines.kernels.resample.prefilter_cuda import filled, mirror
from dali_pipelines.kernels.resample.warp import FLOOR, HOLE, LOWEST, OUTSIDE, is_inside
from dali_pipelines.kernels.stretch import constants_at, stretched

TILE = (8, 32)
"""Rows and columns of the output that a block writes, with a thread for each pixel."""


@stamped
@kept(cuda.jit)
def warp(  # type: ignore[no-untyped-def]
    out,
    rows,
    columns,
    coefficients,
    image,
    height,
    width,
    matrix,
    reduce,
    special,
    limits,
    gain,
    stretch,
    flip,
):
    """Write the resampled image; launch over the pixels of `out`.

    Parameters
    ----------
    out, image, matrix, reduce, special, gain, stretch, flip
        As for `dali_pipelines.kernels.resample.warp.warp`; reduce, int64, and gain have shape (1,).
    rows, columns : int64
        Shape of `out`.
    coefficients : int64
        Spline coefficients for order 3; 0 for order 1.
    height, width : int64
        Shape of the image and the coefficients.
    limits : int64
        Lowest and highest value of the spline, float32, shape (2,).
    """
    column, row = cuda.grid(2)
    if row < rows and column < columns:
        mean = _mean(
            coefficients, image, height, width, matrix, reduce, special, limits, row, column
        )
        _deliver(out, rows, columns, row, column, mean, gain, stretch, flip)


@compiled
def _mean(coefficients, image, height, width, matrix, reduce, special, limits, row, column):  # type: ignore[no-untyped-def]
    """Return the mean of the samples of an output pixel, or the value for holes."""
    low, high = load_float32(limits), load_float32(limits + 4)
    reduce = load_int64(reduce)
    total, count = np.float32(0), 0
    for j in range(row * reduce, (row + 1) * reduce):
        for i in range(column * reduce, (column + 1) * reduce):
            x = _dot(matrix, i, j)
            y = _dot(matrix + 24, i, j)
            value = load_float32(special + 4 * OUTSIDE)
            if is_inside(y, x, height, width):
                value = _sample(coefficients, image, height, width, y, x, special, low, high)
            if not math.isnan(value):
                total += value
                count += 1
    if 2 * count > reduce * reduce:
        return total / np.float32(count)
    return load_float32(special + 4 * HOLE)


@compiled
def _sample(coefficients, image, height, width, y, x, special, low, high):  # type: ignore[no-untyped-def]
    """Return the image at (y, x), NaN where half of the weight or more comes from holes."""
    # On a GPU numba's floor is a float, which would make float64 of all indices.
    iy, ix = np.int64(math.floor(y)), np.int64(math.floor(x))
    floor, lowest = load_float32(special + 4 * FLOOR), load_float32(special + 4 * LOWEST)
    a = b = c = d = np.float32(0)
    whole = 0 <= iy < height - 1 and 0 <= ix < width - 1
    if whole:
        at = image + 4 * (iy * width + ix)
        a, b = load_float32(at), load_float32(at + 4)
        c, d = load_float32(at + 4 * width), load_float32(at + 4 * width + 4)
        whole = a > floor and b > floor and c > floor and d > floor
    if not whole and pixel_weight(image, height, width, y, x, floor) <= 0.5:
        return np.float32(math.nan)
    if coefficients != 0:
        return min(max(_cubic(coefficients, height, width, iy, ix, y, x), low), high)
    if not whole:
        top, bottom = mirror(iy, height), mirror(iy + 1, height)
        left, right = mirror(ix, width), mirror(ix + 1, width)
        a = filled(image, height, width, top, left, floor, lowest)
        b = filled(image, height, width, top, right, floor, lowest)
        c = filled(image, height, width, bottom, left, floor, lowest)
        d = filled(image, height, width, bottom, right, floor, lowest)
    a, b, c, d = max(a, lowest), max(b, lowest), max(c, lowest), max(d, lowest)
    u, v = np.float32(x - ix), np.float32(y - iy)
    above, below = a + u * (b - a), c + u * (d - c)
    return above + v * (below - above)


@compiled
def _deliver(out, rows, columns, row, column, mean, gain, stretch, flip):  # type: ignore[no-untyped-def]
    if load_int32(flip):
        column = columns - 1 - column
    if load_int32(flip + 4):
        row = rows - 1 - row
    value = stretched(np.float32(load_float64(gain)) * mean, constants_at(stretch))
    store_float32(out + 4 * (row * columns + column), value)


@compiled
def _dot(axis, i, j):  # type: ignore[no-untyped-def]
    along, across = load_float64(axis) * i, load_float64(axis + 8) * j
    return along + across + load_float64(axis + 16)


@compiled
def _cubic(coefficients, height, width, iy, ix, y, x):  # type: ignore[no-untyped-def]
    u, v = spline_weights(np.float32(x - ix)), spline_weights(np.float32(y - iy))
    if 1 <= iy < height - 2 and 1 <= ix < width - 2:
        at = coefficients + 4 * ((iy - 1) * width + ix - 1)
        rows = at, at + 4 * width, at + 8 * width, at + 12 * width
        columns = 0, 4, 8, 12
        return _weighted(rows, columns, u, v)
    rows = (
        coefficients + 4 * width * mirror(iy - 1, height),
        coefficients + 4 * width * mirror(iy, height),
        coefficients + 4 * width * mirror(iy + 1, height),
        coefficients + 4 * width * mirror(iy + 2, height),
    )
    columns = (
        4 * mirror(ix - 1, width),
        4 * mirror(ix, width),
        4 * mirror(ix + 1, width),
        4 * mirror(ix + 2, width),
    )
    return _weighted(rows, columns, u, v)


@compiled
def _weighted(rows, columns, u, v):  # type: ignore[no-untyped-def]
    """Return the weighted sum of 16 coefficients, by addresses of their rows and offsets there."""
    total = np.float32(0) + v[0] * _across(rows[0], columns, u)
    total += v[1] * _across(rows[1], columns, u)
    total += v[2] * _across(rows[2], columns, u)
    return total + v[3] * _across(rows[3], columns, u)


@compiled
def _across(row, columns, u):  # type: ignore[no-untyped-def]
    total = np.float32(0) + u[0] * load_float32(row + columns[0])
    total += u[1] * load_float32(row + columns[1])
    total += u[2] * load_float32(row + columns[2])
    return total + u[3] * load_float32(row + columns[3])
