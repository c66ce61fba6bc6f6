"""Sample an image, or its spline coefficients, along a row of positions, on a CPU.

If the affine map has almost no rotation, as for AIA, hundreds of neighbouring pixels have the same
offset to their source pixels. Such runs are computed with vectors, without gathers.
"""

from __future__ import annotations

import math

import numpy as np

from dali_pipelines.kernels.jit import njit
from dali_pipelines.kernels.resample.bspline import spline_weights

_LONG = 16
"""Minimum length of runs, in pixels, for which their preparation pays off."""


@njit
def sample_row(target, source, x, y, dx, dy, order):  # type: ignore[no-untyped-def]
    """Sample a row of positions from (y, x) on, in steps of (dy, dx)."""
    if abs(dx - 1) + abs(dy) > 1 / _LONG:
        if order == 3:
            _cubic(target, source, x, y, dx, dy)
        else:
            _linear(target, source, x, y, dx, dy)
        return
    at = 0
    while at < target.size:
        x_at, y_at = x + dx * at, y + dy * at
        ix, iy = math.floor(x_at), math.floor(y_at)
        tx, ty = x_at - ix, y_at - iy
        count = min(_run(tx, dx - 1), _run(ty, dy), target.size - at)
        steps = np.float32(tx), np.float32(dx - 1), np.float32(ty), np.float32(dy)
        if order == 3:
            _cubic_run(target, at, count, source, iy - 1, ix - 1, *steps)
        else:
            _linear_run(target, at, count, source, iy, ix, *steps)
        at += count


@njit
def _run(t, step):  # type: ignore[no-untyped-def]
    """Return the number of steps from `t` on that are in [0, 1), at least 1."""
    if step > 0:
        return max(math.ceil(min((1 - t) / step, 1e6)), 1)
    if step < 0:
        return math.floor(min(-t / step, 1e6)) + 1
    return 1_000_000


@njit(fastmath={"contract"})
def _cubic_run(target, start, count, source, top, left, tx, ex, ty, ey):  # type: ignore[no-untyped-def]
    # Unsigned indices allow vectors, see `prefilter_columns`.
    flat = source.reshape(source.size)
    start, pitch = np.uint64(start), np.uint64(source.shape[1])
    first = np.uint64(top) * pitch + np.uint64(left)
    second, third, fourth = first + pitch, first + pitch + pitch, first + pitch + pitch + pitch
    one, two, three = np.uint64(1), np.uint64(2), np.uint64(3)
    for i in range(np.uint64(count)):
        steps = np.float32(np.int32(i))
        u0, u1, u2, u3 = spline_weights(tx + steps * ex)
        v0, v1, v2, v3 = spline_weights(ty + steps * ey)
        total = np.float32(0)
        for at, v in ((first + i, v0), (second + i, v1), (third + i, v2), (fourth + i, v3)):
            total += v * (
                u0 * flat[at] + u1 * flat[at + one] + u2 * flat[at + two] + u3 * flat[at + three]
            )
        target[start + i] = total


@njit(fastmath={"contract"})
def _linear_run(target, start, count, source, top, left, tx, ex, ty, ey):  # type: ignore[no-untyped-def]
    flat = source.reshape(source.size)
    start, pitch, one = np.uint64(start), np.uint64(source.shape[1]), np.uint64(1)
    upper = np.uint64(top) * pitch + np.uint64(left)
    lower = upper + pitch
    for i in range(np.uint64(count)):
        steps = np.float32(np.int32(i))
        u, v = tx + steps * ex, ty + steps * ey
        a, b = upper + i, lower + i
        above = flat[a] + u * (flat[a + one] - flat[a])
        below = flat[b] + u * (flat[b + one] - flat[b])
        target[start + i] = above + v * (below - above)


@njit(fastmath={"contract"})
def _cubic(target, source, x, y, dx, dy):  # type: ignore[no-untyped-def]
    for i in range(target.size):
        x_at, y_at = x + dx * i, y + dy * i
        ix, iy = math.floor(x_at), math.floor(y_at)
        u = spline_weights(np.float32(x_at - ix))
        v = spline_weights(np.float32(y_at - iy))
        total = np.float32(0)
        for k in range(4):
            line = source[iy - 1 + k]
            total += v[k] * (
                u[0] * line[ix - 1] + u[1] * line[ix] + u[2] * line[ix + 1] + u[3] * line[ix + 2]
            )
        target[i] = total


@njit(fastmath={"contract"})
def _linear(target, source, x, y, dx, dy):  # type: ignore[no-untyped-def]
    for i in range(target.size):
        x_at, y_at = x + dx * i, y + dy * i
        ix, iy = math.floor(x_at), math.floor(y_at)
        u, v = np.float32(x_at - ix), np.float32(y_at - iy)
        above = source[iy, ix] + u * (source[iy, ix + 1] - source[iy, ix])
        below = source[iy + 1, ix] + u * (source[iy + 1, ix + 1] - source[iy + 1, ix])
        target[i] = above + v * (below - above)
