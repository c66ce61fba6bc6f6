"""Resample an image by an affine map in one pass: the warp of `aia_pipeline` on a CPU.

Notes
-----
Order 1 is bilinear. Order 3 is the interpolating cubic B-spline of ``scipy.ndimage`` with its
mirrored border, as in aiapy's ``register``. The output is made in square tiles. The coefficients
for a tile are computed in a scratch array, which stays in the cache of the core. The coefficients
of a whole frame are never written.
"""

from __future__ import annotations

import math

import numpy as np

from dali_pipelines.kernels.jit import njit
from dali_pipelines.kernels.resample.bspline import (
    REACH,
    prefilter_columns,
    prefilter_rows,
)
from dali_pipelines.kernels.resample.holes import hole_value, pixel_weight
from dali_pipelines.kernels.resample.sample import sample_row
from dali_pipelines.kernels.stretch import stretch_line

TILE = 256
"""Approximate edge of a tile in pixels of the unreduced output."""
NUM_SPECIAL = 4
OUTSIDE, HOLE, LOWEST, FLOOR = range(NUM_SPECIAL)
"""Values for special pixels. OUTSIDE is written beyond the centres of the outermost pixels, HOLE in
holes; both come before the gain. LOWEST replaces lower pixels (none with -inf), and pixels up to
FLOOR are holes (only NaN with -inf); both come before the image is resampled."""

_MARGIN = 3
"""Extra input pixels around a tile, for the spline and for rounding."""
_ROUNDING = 1e-9
"""Tolerance in pixels at the edge of the frame."""


@njit
def warp(out, image, matrix, order, reduce, special, clip, gain, stretch, flip):  # type: ignore[no-untyped-def]
    """Write the resampled image.

    Parameters
    ----------
    out : ndarray, shape (rows, columns), float32
        Output, written in full.
    image : ndarray, shape (height, width), float32, C-contiguous
        Holes do not affect their neighbours, see `dali_pipelines.kernels.resample.holes`.
    matrix : ndarray, shape (2, 3), float64
        Map from (x, y, 1) in the unreduced output to (x, y) in the image, both counted from the
        centre of the first pixel.
    order : int
        Order of the spline, 1 or 3.
    reduce : int
        Number of unreduced pixels along each axis that are averaged to an output pixel. Holes are
        left out. If half or more are holes, the output pixel is a hole.
    special : ndarray, shape (4,), float32
        Values for special pixels, see `OUTSIDE`.
    clip : bool
        Clip the spline's overshoot to the range of the image, as aiapy does.
    gain : float
        Factor for all values.
    stretch : ndarray, shape (9,), float64
        Parameters of the stretch, see `dali_pipelines.kernels.stretch`.
    flip : ndarray, shape (2,), int32
        Whether to flip left-right and up-down.
    """
    low, high = np.float32(-np.inf), np.float32(np.inf)
    if clip and order == 3:
        low, high = _range(image)
        low = max(low, special[LOWEST])
    border = REACH if order == 3 else 0
    side = max(TILE // reduce, 1)
    height, width = _largest_box(matrix, side * reduce, image.shape)
    height, width = height + 2 * border, width + 2 * border
    source = np.empty((height, width), np.float32)
    lines = np.empty((height, width) if order == 3 else (0, 0), np.float32)
    tile = np.empty((side * reduce, side * reduce), np.float32)
    for top in range(0, out.shape[0], side):
        for left in range(0, out.shape[1], side):
            rows = min(side, out.shape[0] - top) * reduce
            columns = min(side, out.shape[1] - left) * reduce
            tile.fill(special[OUTSIDE])
            x = matrix[0, 0] * (left * reduce) + matrix[0, 1] * (top * reduce) + matrix[0, 2]
            y = matrix[1, 0] * (left * reduce) + matrix[1, 1] * (top * reduce) + matrix[1, 2]
            x0, box_columns = _extent(x, matrix[0], rows, columns, image.shape[1])
            y0, box_rows = _extent(y, matrix[1], rows, columns, image.shape[0])
            if box_rows > 0 and box_columns > 0:
                if order == 3:
                    height, width = box_rows + 2 * REACH, box_columns + 2 * REACH
                    holes = _load(lines, image, y0 - REACH, x0 - REACH, height, width, special)
                    prefilter_rows(lines, height, box_columns)
                    prefilter_columns(source, lines, box_rows, box_columns)
                else:
                    holes = _load(source, image, y0, x0, box_rows, box_columns, special)
                for row in range(rows):
                    xs, ys = x + matrix[0, 1] * row, y + matrix[1, 1] * row
                    begin, end = _inside(xs, matrix[0, 0], columns, image.shape[1])
                    begin_y, end_y = _inside(ys, matrix[1, 0], columns, image.shape[0])
                    begin, end = max(begin, begin_y), min(end, end_y)
                    if begin < end:
                        xs += matrix[0, 0] * begin - x0
                        ys += matrix[1, 0] * begin - y0
                        target = tile[row][begin:end]
                        sample_row(target, source, xs, ys, matrix[0, 0], matrix[1, 0], order)
                        if clip and order == 3:
                            _clip(target, low, high)
                if holes:
                    _mark_holes(tile, rows, columns, image, x, y, matrix, special[FLOOR])
            if reduce > 1:
                rows, columns = rows // reduce, columns // reduce
                _reduce(tile, rows, columns, reduce)
            _fill(tile, rows, columns, special[HOLE])
            _deliver(out, tile, rows, columns, top, left, np.float32(gain), stretch, flip)


@njit
def _range(image):  # type: ignore[no-untyped-def]
    """Return the lowest and the highest pixel."""
    low, high = np.float32(np.inf), np.float32(-np.inf)
    for y in range(image.shape[0]):
        for value in image[y]:
            low = value if value < low else low  # false for NaN
            high = value if value > high else high
    return low, high


@njit
def _largest_box(matrix, side, shape):  # type: ignore[no-untyped-def]
    """Return the maximum number of rows and columns of the input for a tile."""
    rows = (abs(matrix[1, 0]) + abs(matrix[1, 1])) * side
    columns = (abs(matrix[0, 0]) + abs(matrix[0, 1])) * side
    # At most the size of the image, because any matrix is possible.
    height = math.ceil(rows) if rows < shape[0] else shape[0]
    width = math.ceil(columns) if columns < shape[1] else shape[1]
    return height + 2 * _MARGIN + 2, width + 2 * _MARGIN + 2


@njit
def _extent(start, axis, rows, columns, size):  # type: ignore[no-untyped-def]
    """Return the start and the length of the input along an axis for a tile; 0, 0 for none."""
    along, across = axis[0] * (columns - 1), axis[1] * (rows - 1)
    low = start + min(along, 0.0) + min(across, 0.0)
    high = start + max(along, 0.0) + max(across, 0.0)
    if not (high >= -_ROUNDING and low <= size - 1 + _ROUNDING):
        return 0, 0
    first = math.floor(max(low, 0.0)) - _MARGIN
    return first, math.floor(min(high, size - 1.0)) + _MARGIN + 1 - first


@njit
def _inside(start, step, count, size):  # type: ignore[no-untyped-def]
    """Return start and exclusive end of the range of steps that are inside the image on an axis."""
    if step == 0:
        return (0, count) if -_ROUNDING <= start <= size - 1 + _ROUNDING else (0, 0)
    one, other = -start / step, (size - 1 - start) / step
    # In floats: with a tiny step the numbers would be too large for integers.
    begin = min(max(np.ceil(min(one, other) - _ROUNDING), 0.0), float(count))
    end = min(np.floor(max(one, other) + _ROUNDING) + 1, float(count))
    return int(begin), int(max(end, begin))


@njit
def _load(lines, image, y0, x0, rows, columns, special):  # type: ignore[no-untyped-def]
    """Copy a part of the image, mirrored at its border, and fill holes; return whether any was."""
    height, width = image.shape
    at = np.int64(image.ctypes.data)
    begin = min(max(-x0, 0), columns)
    end = max(min(width - x0, columns), begin)
    found = False
    for row in range(rows):
        y = mirrored(y0 + row, height)
        line, pixels = lines[row, :columns], image[y]
        for column in range(begin):
            line[column] = pixels[mirrored(x0 + column, width)]
        for column in range(begin, end):  # a slice would take seconds longer to compile
            line[column] = pixels[x0 + column]
        for column in range(end, columns):
            line[column] = pixels[mirrored(x0 + column, width)]
        if _has_holes(line, special[FLOOR]):
            found = True
            for column in range(columns):
                if not line[column] > special[FLOOR]:
                    x = mirrored(x0 + column, width)
                    line[column] = hole_value(at, height, width, y, x, special[FLOOR])
        if special[LOWEST] > -np.inf:
            for column in range(columns):
                line[column] = max(line[column], special[LOWEST])
    return found


@njit
def _has_holes(line, floor):  # type: ignore[no-untyped-def]
    count = np.int32(0)
    for value in line:
        count += np.int32(not value > floor)
    return count > 0


@njit
def is_inside(y, x, height, width):  # type: ignore[no-untyped-def]
    """Return whether (y, x) is between the centres of the outermost pixels."""
    return -_ROUNDING <= x <= width - 1 + _ROUNDING and -_ROUNDING <= y <= height - 1 + _ROUNDING


@njit
def mirrored(i, size):  # type: ignore[no-untyped-def]
    """Return index i mirrored at the border, without repeating the border pixel."""
    if size == 1:
        return 0
    i = abs(i) % (2 * (size - 1))
    return min(i, 2 * (size - 1) - i)


@njit
def _clip(target, low, high):  # type: ignore[no-untyped-def]
    for i in range(target.size):
        target[i] = min(max(target[i], low), high)


@njit
def _mark_holes(tile, rows, columns, image, x, y, matrix, floor):  # type: ignore[no-untyped-def]
    """Set pixels to NaN if half or more of their weight comes from holes."""
    height, width = image.shape
    at = np.int64(image.ctypes.data)
    for row in range(rows):
        for column in range(columns):
            x_at = x + matrix[0, 0] * column + matrix[0, 1] * row
            y_at = y + matrix[1, 0] * column + matrix[1, 1] * row
            inside = is_inside(y_at, x_at, height, width)
            if inside and pixel_weight(at, height, width, y_at, x_at, floor) <= 0.5:
                tile[row, column] = np.nan


@njit
def _reduce(tile, rows, columns, reduce):  # type: ignore[no-untyped-def]
    """Write the means of squares of pixels to the start of the tile."""
    for row in range(rows):
        for column in range(columns):
            total, count = np.float32(0), 0
            for y in range(row * reduce, (row + 1) * reduce):
                for x in range(column * reduce, (column + 1) * reduce):
                    value = tile[y, x]
                    if not math.isnan(value):
                        total += value
                        count += 1
            half = 2 * count > reduce * reduce
            tile[row, column] = total / np.float32(count) if half else np.float32(np.nan)


@njit
def _fill(tile, rows, columns, hole):  # type: ignore[no-untyped-def]
    for row in range(rows):
        line = tile[row]
        for column in range(columns):
            line[column] = hole if math.isnan(line[column]) else line[column]


@njit
def _deliver(out, tile, rows, columns, top, left, gain, stretch, flip):  # type: ignore[no-untyped-def]
    """Stretch a tile and write it, flipped, to its position in the output."""
    for row in range(rows):
        line = tile[row][:columns]
        for column in range(columns):
            line[column] *= gain
        stretch_line(line, stretch)
        y = out.shape[0] - 1 - top - row if flip[1] else top + row
        if flip[0]:
            last = np.uint64(out.shape[1] - 1 - left)  # unsigned, for vectors
            target = out[y]
            for column in range(np.uint64(columns)):
                target[last - column] = line[column]
        else:
            target = out[y][left:]
            for column in range(columns):
                target[column] = line[column]
