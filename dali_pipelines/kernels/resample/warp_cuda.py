"""Resample an image by an affine map on a GPU, with a thread for each pixel, see `warp`.

Two launches turn the image into spline coefficients, rows first, and one samples them. Holes,
spline and stretch use the functions of the CPU. Arrays are passed as addresses on the device.
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
from dali_pipelines.kernels.resample.bspline import PREFILTER, REACH, spline_weights
from dali_pipelines.kernels.resample.holes import hole_value, load_pixel, pixel_weight
from dali_pipelines.kernels.resample.warp import FLOOR, HOLE, LOWEST, OUTSIDE, is_inside, mirrored
from dali_pipelines.kernels.stretch import constants_at, stretched

BLOCK = (8, 32)
"""Threads of a block, rows and columns."""


def blocks(height: int, width: int) -> tuple[int, int]:
    """Return the number of blocks that an image needs, along both axes."""
    return -(-height // BLOCK[0]), -(-width // BLOCK[1])


@stamped
@kept(cuda.jit)
def prefilter_rows(out, image, height, width, special):  # type: ignore[no-untyped-def]
    """Fill holes and filter along rows; both have shape (height, width), float32."""
    y, x = cuda.grid(2)
    if y < height and x < width:
        _filter_row(out, image, height, width, special, y, x)


@stamped
@kept(cuda.jit)
def prefilter_columns(out, lines, height, width):  # type: ignore[no-untyped-def]
    """Filter along columns; both have shape (height, width), float32."""
    y, x = cuda.grid(2)
    if y < height and x < width:
        _filter_column(out, lines, height, width, y, x)


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
    row, column = cuda.grid(2)
    if row < rows and column < columns:
        mean = _mean(
            coefficients, image, height, width, matrix, reduce, special, limits, row, column
        )
        _deliver(out, rows, columns, row, column, mean, gain, stretch, flip)


@compiled
def _filter_row(out, image, height, width, special, y, x):  # type: ignore[no-untyped-def]
    total = np.float32(0)
    for k in range(-REACH, REACH + 1):
        total += PREFILTER[abs(k)] * _pixel(image, height, width, y, x + k, special)
    store_float32(out + 4 * (y * width + x), total)


@compiled
def _filter_column(out, lines, height, width, y, x):  # type: ignore[no-untyped-def]
    total = np.float32(0)
    for k in range(-REACH, REACH + 1):
        total += PREFILTER[abs(k)] * load_pixel(lines, width, mirrored(y + k, height), x)
    store_float32(out + 4 * (y * width + x), total)


@compiled
def _mean(coefficients, image, height, width, matrix, reduce, special, limits, row, column):  # type: ignore[no-untyped-def]
    """Return the mean of the samples of an output pixel, or the value for holes."""
    low, high = load_float32(limits), load_float32(limits + 4)
    reduce = load_int64(reduce)
    floor = load_float32(special + 4 * FLOOR)
    total, count = np.float32(0), 0
    for j in range(row * reduce, (row + 1) * reduce):
        for i in range(column * reduce, (column + 1) * reduce):
            x = _dot(matrix, i, j)
            y = _dot(matrix + 24, i, j)
            value = load_float32(special + 4 * OUTSIDE)
            if is_inside(y, x, height, width):
                if coefficients != 0:
                    value = min(max(_cubic(coefficients, height, width, y, x), low), high)
                else:
                    value = _linear(image, height, width, y, x, special)
                if pixel_weight(image, height, width, y, x, floor) <= 0.5:
                    value = np.float32(math.nan)
            if not math.isnan(value):
                total += value
                count += 1
    if 2 * count > reduce * reduce:
        return total / np.float32(count)
    return load_float32(special + 4 * HOLE)


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
def _pixel(image, height, width, y, x, special):  # type: ignore[no-untyped-def]
    """Return a pixel, mirrored beyond the border, or the substitute for a hole."""
    y, x = mirrored(y, height), mirrored(x, width)
    floor = load_float32(special + 4 * FLOOR)
    value = load_pixel(image, width, y, x)
    if not value > floor:
        value = hole_value(image, height, width, y, x, floor)
    return max(value, load_float32(special + 4 * LOWEST))


@compiled
def _cubic(coefficients, height, width, y, x):  # type: ignore[no-untyped-def]
    ix, iy = math.floor(x), math.floor(y)
    u = spline_weights(np.float32(x - ix))
    v = spline_weights(np.float32(y - iy))
    total = np.float32(0)
    for j in range(4):
        line = mirrored(iy - 1 + j, height)
        across = np.float32(0)
        for i in range(4):
            across += u[i] * load_pixel(coefficients, width, line, mirrored(ix - 1 + i, width))
        total += v[j] * across
    return total


@compiled
def _linear(image, height, width, y, x, special):  # type: ignore[no-untyped-def]
    ix, iy = math.floor(x), math.floor(y)
    u, v = np.float32(x - ix), np.float32(y - iy)
    upper = _pixel(image, height, width, iy, ix, special)
    above = upper + u * (_pixel(image, height, width, iy, ix + 1, special) - upper)
    lower = _pixel(image, height, width, iy + 1, ix, special)
    below = lower + u * (_pixel(image, height, width, iy + 1, ix + 1, special) - lower)
    return above + v * (below - above)
