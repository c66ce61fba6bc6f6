"""Compute spline coefficients on a GPU, see `bspline`: along rows, then along columns.

A block loads a tile, with the pixels around it within the reach of the filter, into shared memory.
So each pixel is read about once. It also fills holes, mirrors borders and finds the range of
pixels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import cuda
from numba.core import types
from numba.extending import intrinsic

from dali_pipelines.kernels.bits import load_float32, load_float64, load_int64, store_float32
from dali_pipelines.kernels.jit import cuda_jit, njit
from dali_pipelines.kernels.resample.bspline import PREFILTER, REACH
from dali_pipelines.kernels.resample.holes import hole_value, load_pixel
from dali_pipelines.kernels.resample.warp import FLOOR, LOWEST, mirrored
from dali_pipelines.kernels.resample.warp_cuda_table import (
    COEFFICIENTS,
    FRAME,
    HEIGHT,
    IMAGE,
    LIMITS,
    LINES,
    RANGES,
    SPECIAL,
    WIDTH,
    field_of,
)

BLOCK = (32, 8)
"""Threads of a block, in columns and rows: a warp covers neighbours in a row."""
THREADS = BLOCK[0] * BLOCK[1]
ROW_TILE = (8, 128)
COLUMN_TILE = (64, 32)
"""Rows and columns of coefficients that a block writes."""

_PITCH = ROW_TILE[1] + 2 * REACH
_WIDTH = COLUMN_TILE[1]
_ROW_PIXELS, _COLUMN_PIXELS = ROW_TILE[0] * _PITCH, (COLUMN_TILE[0] + 2 * REACH) * _WIDTH
_RUN = 4
"""Number of coefficients of a column that a thread computes at a time, from the same pixels."""


@cuda_jit
def prefilter_rows(table):  # type: ignore[no-untyped-def]
    """Fill holes in a batch's images and filter along rows, into their lines.

    Each block writes the range of its pixels, for `set_limits`.

    Launch ``[blocks(ROW_TILE, ...), BLOCK]`` with the address of a `launch_table` of `WarpedImage`.
    """
    tile = cuda.shared.array(_ROW_PIXELS, np.float32)
    x, y, number = cuda.threadIdx.x, cuda.threadIdx.y, cuda.blockIdx.z
    image, out = field_of(table, number, IMAGE), field_of(table, number, LINES)
    height, width = field_of(table, number, HEIGHT), field_of(table, number, WIDTH)
    special = field_of(table, number, SPECIAL)
    floor = np.float32(load_float64(special + 8 * FLOOR))
    lowest = np.float32(load_float64(special + 8 * LOWEST))
    row, left = cuda.blockIdx.y * ROW_TILE[0] + y, cuda.blockIdx.x * ROW_TILE[1]
    columns = min(ROW_TILE[1], width - left)
    low, high = np.float32(np.inf), np.float32(-np.inf)
    needed = row < height and columns > 0
    if needed:
        column = np.int64(x)
        while column < columns + 2 * REACH:
            place = mirror(left + column - REACH, width)
            value = load_pixel(image, width, row, place)
            low, high = widened(low, high, value, value)
            value = _filled(value, image, height, width, row, place, floor, lowest)
            tile[np.uint64(y * _PITCH + column)] = value
            column += BLOCK[0]
    block = cuda.blockIdx.y * cuda.gridDim.x + cuda.blockIdx.x
    _store_range(field_of(table, number, RANGES) + 8 * block, y * BLOCK[0] + x, low, high)
    if needed:
        column = np.int64(x)
        while column < columns:
            value = _along_row(tile, y * _PITCH + column)
            store_float32(out + 4 * (row * width + left + column), value)
            column += BLOCK[0]


@cuda_jit
def prefilter_columns(table):  # type: ignore[no-untyped-def]
    """Filter the lines of a batch along columns, into the coefficients.

    Launch ``[blocks(COLUMN_TILE, ...), BLOCK]``, like `prefilter_rows`.
    """
    tile = cuda.shared.array(_COLUMN_PIXELS, np.float32)
    x, y, number = cuda.threadIdx.x, cuda.threadIdx.y, cuda.blockIdx.z
    lines, out = field_of(table, number, LINES), field_of(table, number, COEFFICIENTS)
    height, width = field_of(table, number, HEIGHT), field_of(table, number, WIDTH)
    top, column = cuda.blockIdx.y * COLUMN_TILE[0], cuda.blockIdx.x * _WIDTH + x
    rows = min(COLUMN_TILE[0], height - top)
    needed = column < width and rows > 0
    if needed:
        row = np.int64(y)
        while row < rows + 2 * REACH:
            place = mirror(top + row - REACH, height)
            tile[np.uint64(row * _WIDTH + x)] = load_pixel(lines, width, place, column)
            row += BLOCK[1]
    cuda.syncthreads()
    if needed:
        row = np.int64(_RUN * y)
        while row < rows:
            at, start = out + 4 * ((top + row) * width + column), row * _WIDTH + x
            # All loads come before the first store, which might alias them.
            first, second = _along_column(tile, start), _along_column(tile, start + _WIDTH)
            third = _along_column(tile, start + 2 * _WIDTH)
            fourth = _along_column(tile, start + 3 * _WIDTH)
            store_float32(at, first)
            if row + 1 < rows:
                store_float32(at + 4 * width, second)
            if row + 2 < rows:
                store_float32(at + 8 * width, third)
            if row + 3 < rows:
                store_float32(at + 12 * width, fourth)
            row += _RUN * BLOCK[1]


@cuda_jit
def set_limits(table, num_ranges):  # type: ignore[no-untyped-def]
    """Set the limits of each image's spline: as in aiapy, the range of the image if it is whole.

    Launch ``[images, THREADS]`` after `prefilter_rows`; `num_ranges` is its number of blocks per
    image.
    """
    number, thread = cuda.blockIdx.x, cuda.threadIdx.x
    ranges, limits = field_of(table, number, RANGES), field_of(table, number, LIMITS)
    frame, special = field_of(table, number, FRAME), field_of(table, number, SPECIAL)
    low, high = np.float32(np.inf), np.float32(-np.inf)
    i = np.int64(thread)
    while i < num_ranges:
        at = ranges + 8 * i
        low, high = widened(low, high, load_float32(at), load_float32(at + 4))
        i += THREADS
    height, width = field_of(table, number, HEIGHT), field_of(table, number, WIDTH)
    whole = load_int64(frame + 16) == height and load_int64(frame + 24) == width
    low = max(low, np.float32(load_float64(special + 8 * LOWEST)))
    if not whole:
        low, high = np.float32(-np.inf), np.float32(np.inf)
    _store_range(limits, thread, low, high)


@njit
def _store_range(address, thread, low, high):  # type: ignore[no-untyped-def]
    """Store the range over all threads of a block. All threads must call this, and it waits."""
    lows = cuda.shared.array(THREADS, np.float32)
    highs = cuda.shared.array(THREADS, np.float32)
    lows[thread], highs[thread] = low, high
    half = THREADS // 2
    while half > 0:
        cuda.syncthreads()
        if thread < half:
            low, high = widened(low, high, lows[thread + half], highs[thread + half])
            lows[thread], highs[thread] = low, high
        half //= 2
    if thread == 0:
        store_float32(address, low)
        store_float32(address + 4, high)


def _filter(step: int) -> Any:
    """Make a filter of pixels that are `step` apart, with its weights as immediate operands."""

    @intrinsic
    def filtered(typing_context: Any, pixels: Any, start: Any) -> Any:
        del typing_context, start
        number, word = ir.FloatType(), ir.IntType(64)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, args[0]).data
            first = builder.gep(data, [args[1]], source_etype=number)
            total = ir.Constant(number, 0.0)
            for k in range(2 * REACH + 1):
                at = builder.gep(first, [ir.Constant(word, k * step)], source_etype=number)
                weight = ir.Constant(number, float(PREFILTER[abs(k - REACH)]))
                total = builder.fadd(total, builder.fmul(weight, builder.load(at, typ=number)))
            return total

        return types.float32(pixels, types.int64), codegen

    return filtered


_along_row, _along_column = _filter(1), _filter(_WIDTH)


@njit
def mirror(i, size):  # type: ignore[no-untyped-def]
    """Return `mirrored`, without a division in the usual case that i is inside."""
    return i if 0 <= i < size else mirrored(i, size)


@njit
def widened(low, high, other_low, other_high):  # type: ignore[no-untyped-def]
    """Return the range that covers two ranges; NaN is ignored."""
    return other_low if other_low < low else low, other_high if other_high > high else high


@njit
def filled(image, height, width, y, x, floor, lowest):  # type: ignore[no-untyped-def]
    """Return a pixel, raised to `lowest`, or the substitute for a hole."""
    value = load_pixel(image, width, y, x)
    return _filled(value, image, height, width, y, x, floor, lowest)


@njit
def _filled(value, image, height, width, y, x, floor, lowest):  # type: ignore[no-untyped-def]
    if not value > floor:
        value = hole_value(image, height, width, y, x, floor)
    return max(value, lowest)
