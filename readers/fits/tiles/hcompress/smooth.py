"""Smoothing while images are expanded, for those that ask for it: blocks of lossy ones show less.

Differences are moved towards the slopes between neighbouring sums, by half of the scale at most, as
they were rounded by that much.
"""

from __future__ import annotations

from readers.fits.tiles.hcompress.jit import njit


@njit
def smooth(coefficients, rows, columns, most):  # type: ignore[no-untyped-def]
    """Change the differences of a level.

    Parameters
    ----------
    coefficients : ndarray, int64
        Sums in the first halves of rows and columns, rounded up, and differences in the second.
    rows, columns : int64
        Pixels of the level.
    most : int64
        Largest change.
    """
    down, across = (rows + 1) >> 1, (columns + 1) >> 1
    # Sums with a neighbour on both sides, and whole blocks.
    below, right = (rows - 1) >> 1, (columns - 1) >> 1
    h0, hy = coefficients[:down, :across], coefficients[:down, across:]
    hx, hc = coefficients[down:, :across], coefficients[down:, across:]
    for i in range(1, below):
        for j in range(across):
            hx[i, j] += _slope(h0[i - 1, j], h0[i, j], h0[i + 1, j], hx[i, j], most)
    for i in range(down):
        for j in range(1, right):
            hy[i, j] += _slope(h0[i, j - 1], h0[i, j], h0[i, j + 1], hy[i, j], most)
    for i in range(1, below):
        for j in range(1, right):
            hc[i, j] += _curvature(h0, i, j, 2 * hx[i, j], 2 * hy[i, j], hc[i, j], most)


@njit
def _slope(before, here, behind, found, most):  # type: ignore[no-untyped-def]
    """Return the change of a difference along rows or columns, from three sums."""
    high = 4 * max(min(behind - here, here - before), 0)
    low = 4 * min(max(behind - here, here - before), 0)
    return _change(behind - before, low, high, found, 3, most)


@njit
def _curvature(h0, i, j, slope_x, slope_y, found, most):  # type: ignore[no-untyped-def]
    """Return the change of a difference along both, from the sums around one."""
    here = h0[i, j]
    both, neither = h0[i + 1, j + 1] - here, here - h0[i - 1, j - 1]
    only_x, only_y = here - h0[i + 1, j - 1], here - h0[i - 1, j + 1]
    plus, minus = slope_x + slope_y, slope_x - slope_y
    high = min(
        min(max(both, 0) - plus, max(only_x, 0) + minus),
        min(max(only_y, 0) - minus, max(-neither, 0) + plus),
    )
    low = max(
        max(min(both, 0) - plus, min(only_x, 0) + minus),
        max(min(only_y, 0) - minus, min(-neither, 0) + plus),
    )
    wanted = both - neither + only_x + only_y
    return _change(wanted, 16 * low, 16 * high, found, 6, most)


@njit
def _change(wanted, low, high, found, shift, most):  # type: ignore[no-untyped-def]
    """Return the change towards what is wanted, divided by ``1 << shift`` and rounded to 0."""
    if low >= high:
        return 0
    change = max(min(wanted, high), low) - (found << shift)
    change = change >> shift if change >= 0 else (change + (1 << shift) - 1) >> shift
    return max(min(change, most), -most)
