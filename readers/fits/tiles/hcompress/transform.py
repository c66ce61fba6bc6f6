"""The inverse of the H-transform, which is a Haar transform of integers in two dimensions."""

from __future__ import annotations

import numpy as np

from readers.fits.tiles.hcompress.jit import njit
from readers.fits.tiles.hcompress.quadtree import halved, levels
from readers.fits.tiles.hcompress.smooth import smooth


@njit
def invert(coefficients, pixels, beyond, most):  # type: ignore[no-untyped-def]
    """Compute pixels from coefficients.

    Of each level the sums come first, and the differences in the second halves of rows and columns.

    Parameters
    ----------
    coefficients : ndarray, shape (rows, columns), int32 or int64
        Overwritten.
    pixels : ndarray, shape (rows, columns), of the same type
        Written.
    beyond : ndarray, shape (2, columns), of the same type
        Zeros, and work space: stand for a row behind the last one, where their number is odd.
    most : int64, optional
        Largest change of a coefficient by smoothing, which needs 64 bits; None for no smoothing.
    """
    rows, columns = coefficients.shape
    top = levels(max(rows, columns))
    number = coefficients.dtype.type
    coefficients[0, 0] = _rounded(coefficients[0, 0], number(number(2) << top))
    for level in range(top - 1, -1, -1):
        down, across = halved(rows, level), halved(columns, level)
        half = halved(down, 1)
        if most is not None:
            smooth(coefficients, down, across, most)
        for row in range(half):
            is_whole = 2 * row + 1 < down
            _expand_rows(
                coefficients[row, :across],
                coefficients[half + row, :across] if is_whole else beyond[0, :across],
                pixels[2 * row, :across],
                pixels[2 * row + 1, :across] if is_whole else beyond[1, :across],
                level,
            )
        if level > 0:
            for row in range(down):
                for column in range(across):
                    coefficients[row, column] = pixels[row, column]


@njit
def _expand_rows(upper, lower, above, below, level):  # type: ignore[no-untyped-def]
    """Compute two rows of pixels from the two rows of their coefficients."""
    columns = np.uint64(upper.size)
    half = (columns + np.uint64(1)) >> np.uint64(1)
    upper_left, upper_right = upper[:half], upper[half:]
    lower_left, lower_right = lower[:half], lower[half:]
    zero = upper.dtype.type(0)
    for i in range(columns >> np.uint64(1)):
        found = _expand(upper_left[i], lower_left[i], upper_right[i], lower_right[i], level)
        at = np.uint64(2) * np.uint64(i)
        above[at], above[at + np.uint64(1)] = found[0], found[1]
        below[at], below[at + np.uint64(1)] = found[2], found[3]
    if columns & np.uint64(1):
        last = half - np.uint64(1)
        found = _expand(upper_left[last], lower_left[last], zero, zero, level)
        at = columns - np.uint64(1)
        above[at], below[at] = found[0], found[2]


@njit(forceinline=True)
def _expand(h0, hx, hy, hc, level):  # type: ignore[no-untyped-def]
    """Return 2x2 pixels from their sum and differences; those beyond an edge are 0.

    What the transform lost by dividing sums, rounded, is in the low bits of the differences. Each
    operation is cast: numba would go on with 64 bits, and vectors of half as many pixels.
    """
    number = type(h0)
    bit0, bit1 = number(number(1) << level), number(number(2) << level)
    hx, hy, hc = _rounded(hx, bit1), _rounded(hy, bit1), _rounded(hc, bit0)
    low0 = number(hc & bit0)
    hx = number(hx - low0) if hx >= 0 else number(hx + low0)
    hy = number(hy - low0) if hy >= 0 else number(hy + low0)
    low1 = number((hc ^ hx ^ hy) & bit1)
    if h0 >= 0:
        h0 = number(h0 + number(low0 - low1))
    else:
        h0 = number(h0 + (low1 if low0 == 0 else number(low0 - low1)))
    shift = 2 if level == 0 else 1
    total, slope = number(h0 + hx), number(h0 - hx)
    plus, minus = number(hy + hc), number(hy - hc)
    return (
        number(number(slope - minus) >> shift),
        number(number(slope + minus) >> shift),
        number(number(total - plus) >> shift),
        number(number(total + plus) >> shift),
    )


@njit(forceinline=True)
def _rounded(value, unit):  # type: ignore[no-untyped-def]
    """Round to a multiple of a power of two, halves up."""
    number = type(value)
    half = number(unit >> 1)
    down = number(half - 1) if half > 0 else half
    return number(number(value + (half if value >= 0 else down)) & number(-unit))
