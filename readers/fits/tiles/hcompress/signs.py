"""Coefficients from their magnitudes, of all quadrants, and the signs behind them in the stream."""

from __future__ import annotations

import numpy as np

from readers.fits.tiles.hcompress.codes import peek
from readers.fits.tiles.hcompress.jit import njit
from readers.fits.tiles.hcompress.quadtree import halved


@njit
def read_signs(words, at, end, scale, magnitudes, coefficients):  # type: ignore[no-untyped-def]
    """Read a sign for each coefficient that is not 0, row by row through the quadrants.

    Parameters
    ----------
    words, at, end
        See `read_quadrant`.
    scale : int32 or int64
        Factor of all coefficients.
    magnitudes : ndarray, shape (4, 4, codes), int32 or int64
        Of the quadrants, as `read_quadrant` writes them.
    coefficients : ndarray, shape (rows, columns), of the same type
        Written.

    Returns
    -------
    int64
        The bit behind, or -1 if the stream is damaged.
    """
    rows, columns = coefficients.shape
    top, left = halved(rows, 1), halved(columns, 1)
    for row in range(rows):
        is_below = row >= top
        row_inside = row - top if is_below else row
        for is_right in range(2):
            line = coefficients[row, left:] if is_right else coefficients[row, :left]
            quadrant = magnitudes[2 * is_below + is_right]
            start = (row_inside >> 1) * halved(line.size, 1)
            part = 2 * (row_inside & 1)
            even, odd = quadrant[part, start:], quadrant[part + 1, start:]
            at = _read_line(words, at, end, scale, even, odd, line)
            if at < 0:
                return at
    return at


@njit
def _read_line(words, at, end, scale, even, odd, line):  # type: ignore[no-untyped-def]
    """Read the signs of a row of a quadrant, from the magnitudes of its even and odd columns."""
    number, one = line.dtype.type, np.uint64(1)
    done, size = np.uint64(0), np.uint64(line.size)
    while done < size:
        if at > end:
            return np.int64(-1)
        bits, used = peek(words, at), np.uint64(0)
        stop = min(done + np.uint64(64), size)
        for i in range(done, stop):
            value = odd[i >> one] if i & one else even[i >> one]
            has_sign = np.uint64(value != 0)
            sign = number((bits >> np.uint64(63)) & has_sign)
            line[i] = number(number(number(value ^ number(-sign)) + sign) * scale)
            bits <<= has_sign
            used += has_sign
        done = stop
        at += np.int64(used)
    return at if at <= end else np.int64(-1)
