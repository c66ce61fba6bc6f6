"""Cubic B-splines: the filter from pixels to coefficients, and the weights of coefficients.

Notes
-----
Unser, "Splines: a perfect fit for signal and image processing", IEEE Signal Processing Magazine
16(6), 1999. SciPy's ``spline_filter`` is recursive. Here the filter is truncated where its weights
are below 1e-8. Therefore any part of an image can be filtered separately, and neighbouring pixels
in parallel.
"""

from __future__ import annotations

import math

import numpy as np

from dali_pipelines.kernels.jit import njit

REACH = 14
"""Pixels on each side of a coefficient that have a weight in it."""

_POLE = math.sqrt(3) - 2
PREFILTER = tuple(np.float32(math.sqrt(3) * _POLE**k) for k in range(REACH + 1))
"""Weight of a pixel in a coefficient, by their distance."""


@njit(fastmath={"contract"})
def spline_weights(t):  # type: ignore[no-untyped-def]
    """Return the weights, float32, of the coefficients at -1, 0, 1 and 2, at t in [0, 1]."""
    u = np.float32(1) - t
    sixth, half, two_thirds = np.float32(1 / 6), np.float32(0.5), np.float32(2 / 3)
    tt, uu = t * t, u * u
    return (
        sixth * u * uu,
        two_thirds - tt * (np.float32(1) - half * t),
        two_thirds - uu * (np.float32(1) - half * u),
        sixth * t * tt,
    )


@njit(fastmath={"contract"})
def prefilter_rows(lines, rows, columns):  # type: ignore[no-untyped-def]
    """Filter a scratch array along rows, in place: `columns + 2 * REACH` values become `columns`.

    `lines` is float32, of at least `rows` rows and `columns + 2 * REACH` columns.
    """
    for y in range(rows):
        line = lines[y]
        for x in range(columns):
            total = PREFILTER[0] * line[x + REACH]
            for k in range(1, REACH + 1):
                total += PREFILTER[k] * (line[x + REACH - k] + line[x + REACH + k])
            line[x] = total


@njit(fastmath={"contract"})
def prefilter_columns(coefficients, lines, rows, columns):  # type: ignore[no-untyped-def]
    """Filter lines along columns into `coefficients`: `rows + 2 * REACH` rows become `rows`."""
    # Unsigned, because the check for negative indices would prevent vectors.
    flat = lines.reshape(lines.size)
    pitch, count = np.uint64(lines.shape[1]), np.uint64(columns)
    for y in range(rows):
        target = coefficients[y, :columns]
        middle = np.uint64(y + REACH) * pitch
        for x in range(count):
            target[x] = PREFILTER[0] * flat[middle + x]
        for k in range(1, REACH + 1, 2):
            # Two distances per pass halve the memory traffic of `target`.
            first, second = PREFILTER[k], PREFILTER[k + 1]
            above, below = middle - np.uint64(k) * pitch, middle + np.uint64(k) * pitch
            higher, lower = above - pitch, below + pitch
            for x in range(count):
                target[x] += first * (flat[above + x] + flat[below + x])
                target[x] += second * (flat[higher + x] + flat[lower + x])
