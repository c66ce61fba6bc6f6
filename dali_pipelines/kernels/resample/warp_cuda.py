"""Resample an image by an affine map on a GPU, see `warp`, with one launch per batch.

It samples the spline coefficients from `prefilter_cuda`, or the image itself for order 1. The
functions for holes, splines and stretches are those of the CPU. Arguments are addresses of arrays
on the device.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import cuda

from dali_pipelines.kernels.bits import (
    load_float32,
    load_float64,
    load_int32,
    load_int64,
    store_float32,
)
from dali_pipelines.kernels.jit import cuda_jit, njit
from dali_pipelines.kernels.resample.bspline import spline_weights
from dali_pipelines.kernels.resample.holes import pixel_weight
from dali_pipelines.kernels.resample.prefilter_cuda import filled, mirror
from dali_pipelines.kernels.resample.warp import FLOOR, HOLE, LOWEST, OUTSIDE, is_inside
from dali_pipelines.kernels.resample.warp_cuda_table import (
    COEFFICIENTS,
    COLUMNS,
    FLIP,
    GAIN,
    HEIGHT,
    IMAGE,
    LIMITS,
    MATRIX,
    OUT,
    REDUCE,
    ROWS,
    SPECIAL,
    STRETCH,
    WIDTH,
    field_of,
)
from dali_pipelines.kernels.stretch import constants_at, stretched

BLOCK = (32, 4)
"""Threads of a block, in columns and rows: few, because each needs many registers."""
BLOCKS = 5
"""Blocks that an SM must run concurrently. With 4, an H100 takes 1.1 times as long. With 6 or 8 it
is a tenth faster for one of the orders, but registers spill to memory."""
TILE = (16, 32)
"""Rows and columns of the output that a block writes. Each thread writes four pixels of a column,
because loading the numbers of the image takes as long as computing a few pixels."""


class WarpView(NamedTuple):
    """Values that are the same for all pixels of an image; see `warp_cuda_table.WarpedImage`."""

    out: Any
    rows: Any
    columns: Any
    image: Any
    height: Any
    width: Any
    coefficients: Any
    low: Any
    high: Any
    matrix: Any
    """Six numbers of the matrix, row by row."""
    reduce: Any
    outside: Any
    hole: Any
    lowest: Any
    floor: Any
    gain: Any
    stretch: Any
    """Parameters from `constants_at`."""
    flip_x: Any
    flip_y: Any


@cuda_jit(launch_bounds=(BLOCK[0] * BLOCK[1], BLOCKS))
def warp(table):  # type: ignore[no-untyped-def]
    """Write the resampled images of a batch.

    Launch ``[blocks(TILE, ...), BLOCK]`` over the outputs, with the address of a
    `launch_table` of `WarpedImage`.
    """
    view = _view_of(table, cuda.blockIdx.z)
    column = cuda.blockIdx.x * TILE[1] + cuda.threadIdx.x
    row = cuda.blockIdx.y * TILE[0] + cuda.threadIdx.y
    end = min(view.rows, np.int64((cuda.blockIdx.y + 1) * TILE[0]))
    if column < view.columns:
        while row < end:
            _deliver(view, row, column, _mean(view, row, column))
            row += BLOCK[1]


@njit
def _view_of(table, number):  # type: ignore[no-untyped-def]
    matrix, special = field_of(table, number, MATRIX), field_of(table, number, SPECIAL)
    limits, flip = field_of(table, number, LIMITS), field_of(table, number, FLIP)
    return WarpView(
        field_of(table, number, OUT),
        field_of(table, number, ROWS),
        field_of(table, number, COLUMNS),
        field_of(table, number, IMAGE),
        field_of(table, number, HEIGHT),
        field_of(table, number, WIDTH),
        field_of(table, number, COEFFICIENTS),
        load_float32(limits),
        load_float32(limits + 4),
        (
            load_float64(matrix),
            load_float64(matrix + 8),
            load_float64(matrix + 16),
            load_float64(matrix + 24),
            load_float64(matrix + 32),
            load_float64(matrix + 40),
        ),
        load_int64(field_of(table, number, REDUCE)),
        np.float32(load_float64(special + 8 * OUTSIDE)),
        np.float32(load_float64(special + 8 * HOLE)),
        np.float32(load_float64(special + 8 * LOWEST)),
        np.float32(load_float64(special + 8 * FLOOR)),
        np.float32(load_float64(field_of(table, number, GAIN))),
        constants_at(field_of(table, number, STRETCH)),
        load_int32(flip),
        load_int32(flip + 4),
    )


@njit
def _mean(view, row, column):  # type: ignore[no-untyped-def]
    """Return the mean of the samples of an output pixel, or the value for holes."""
    xx, xy, x0, yx, yy, y0 = view.matrix
    reduce = view.reduce
    total, count = np.float32(0), 0
    for j in range(row * reduce, (row + 1) * reduce):
        for i in range(column * reduce, (column + 1) * reduce):
            x = xx * i + xy * j + x0
            y = yx * i + yy * j + y0
            value = view.outside
            if is_inside(y, x, view.height, view.width):
                value = _sample(view, y, x)
            if not math.isnan(value):
                total += value
                count += 1
    if 2 * count > reduce * reduce:
        return total / np.float32(count)
    return view.hole


@njit
def _sample(view, y, x):  # type: ignore[no-untyped-def]
    """Return the image at (y, x), or NaN if half or more of the weight comes from holes."""
    # On GPUs numba's floor returns a float, and all indices would be float64.
    iy, ix = np.int64(math.floor(y)), np.int64(math.floor(x))
    if view.coefficients != 0:
        return _cubic_sample(view, iy, ix, y, x)
    return _linear_sample(view, iy, ix, y, x)


@njit
def _cubic_sample(view, iy, ix, y, x):  # type: ignore[no-untyped-def]
    image, height, width, floor = view.image, view.height, view.width, view.floor
    if 1 <= iy < height - 2 and 1 <= ix < width - 2:
        # Without branches in the usual case, a GPU waits only once for its loads.
        a, b, c, d = _corners(image, width, iy, ix)
        value = _inner_cubic(view.coefficients, width, iy, ix, y, x)
        if (a > floor) & (b > floor) & (c > floor) & (d > floor):
            return _limited(view, value)
    if pixel_weight(image, height, width, y, x, floor) <= 0.5:
        return np.float32(math.nan)
    return _limited(view, _cubic(view.coefficients, height, width, iy, ix, y, x))


@njit
def _linear_sample(view, iy, ix, y, x):  # type: ignore[no-untyped-def]
    image, height, width = view.image, view.height, view.width
    floor, lowest = view.floor, view.lowest
    a = b = c = d = np.float32(0)
    whole = 0 <= iy < height - 1 and 0 <= ix < width - 1
    if whole:
        a, b, c, d = _corners(image, width, iy, ix)
        whole = (a > floor) & (b > floor) & (c > floor) & (d > floor)
    if not whole:
        if pixel_weight(image, height, width, y, x, floor) <= 0.5:
            return np.float32(math.nan)
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


@njit
def _deliver(view, row, column, mean):  # type: ignore[no-untyped-def]
    if view.flip_x:
        column = view.columns - 1 - column
    if view.flip_y:
        row = view.rows - 1 - row
    value = stretched(view.gain * mean, view.stretch)
    store_float32(view.out + 4 * (row * view.columns + column), value)


@njit
def _corners(image, width, iy, ix):  # type: ignore[no-untyped-def]
    at = image + 4 * (iy * width + ix)
    below = at + 4 * width
    return load_float32(at), load_float32(at + 4), load_float32(below), load_float32(below + 4)


@njit
def _limited(view, value):  # type: ignore[no-untyped-def]
    # By comparisons: min and max of a GPU would drop NaN, which infinite pixels cause.
    value = view.low if value < view.low else value
    return view.high if value > view.high else value


@njit
def _inner_cubic(coefficients, width, iy, ix, y, x):  # type: ignore[no-untyped-def]
    u, v = spline_weights(np.float32(x - ix)), spline_weights(np.float32(y - iy))
    at = coefficients + 4 * ((iy - 1) * width + ix - 1)
    rows = at, at + 4 * width, at + 8 * width, at + 12 * width
    return _weighted(rows, (0, 4, 8, 12), u, v)


@njit
def _cubic(coefficients, height, width, iy, ix, y, x):  # type: ignore[no-untyped-def]
    u, v = spline_weights(np.float32(x - ix)), spline_weights(np.float32(y - iy))
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


@njit
def _weighted(rows, columns, u, v):  # type: ignore[no-untyped-def]
    """Return the weighted sum of 16 coefficients, at addresses `rows` plus offsets `columns`."""
    total = np.float32(0) + v[0] * _across(rows[0], columns, u)
    total += v[1] * _across(rows[1], columns, u)
    total += v[2] * _across(rows[2], columns, u)
    return total + v[3] * _across(rows[3], columns, u)


@njit
def _across(row, columns, u):  # type: ignore[no-untyped-def]
    total = np.float32(0) + u[0] * load_float32(row + columns[0])
    total += u[1] * load_float32(row + columns[1])
    total += u[2] * load_float32(row + columns[2])
    return total + u[3] * load_float32(row + columns[3])
