"""Bit planes of the coefficients: one quadrant after the other, each plane as a quadtree.

A code has a bit for each of 2x2 nodes below it: upper left, upper right, lower left, lower right.
On the lowest level these are the bits of the coefficients.
"""

from __future__ import annotations

import numpy as np

from readers.fits.tiles.hcompress.codes import peek, read_codes, read_plain_codes
from readers.fits.tiles.hcompress.jit import njit

_PLAIN, _QUADTREE = 0, 15
"""Formats of a bit plane."""


@njit
def levels(size):  # type: ignore[no-untyped-def]
    """Return how often a length is halved, rounding up, until it is 1."""
    count = 0
    while (1 << count) < size:
        count += 1
    return count


@njit
def halved(size, count):  # type: ignore[no-untyped-def]
    """Return a length that was halved so often, rounding up."""
    return (size + (1 << count) - 1) >> count


@njit
def read_quadrant(words, at, end, num_planes, rows, columns, magnitudes, codes, nodes):  # type: ignore[no-untyped-def]
    """Read the bit planes of a quadrant.

    Parameters
    ----------
    words : ndarray, shape (words,), uint64
        The stream, and `PADDING` words.
    at, end : int64
        Its next bit, and that behind its last.
    num_planes : int64
        Bits of the largest magnitude.
    rows, columns : int64
        Of coefficients. It takes half of them, rounded up, to hold their codes.
    magnitudes : ndarray, shape (4, codes), int32 or int64
        Written: of the four coefficients of each code.
    codes : ndarray, shape (2, codes), uint8
    nodes : ndarray, shape (codes,), uint32
        Work space.

    Returns
    -------
    int64
        The bit behind, or -1 if the stream is damaged.
    """
    size = halved(rows, 1) * halved(columns, 1)
    for part in range(4):
        for i in range(size):
            magnitudes[part, i] = 0
    for plane in range(num_planes - 1, -1, -1):
        if at + 4 > end:
            return np.int64(-1)
        plane_format = peek(words, at) >> np.uint64(60)
        at += 4
        last = 0
        if plane_format == _PLAIN:
            at = read_plain_codes(words, at, end, size, codes[0])
        elif plane_format == _QUADTREE:
            at, last = _read_tree(words, at, end, rows, columns, codes, nodes)
        else:
            return np.int64(-1)
        if at < 0:
            return at
        for part in range(4):
            _add_plane(magnitudes[part, :size], codes[last], 3 - part, plane)
    return at


@njit
def _read_tree(words, at, end, rows, columns, codes, nodes):  # type: ignore[no-untyped-def]
    """Read a plane from the root down; return the bit behind, and which of `codes` holds it."""
    nodes[0] = last = 0
    at = read_codes(words, at, end, nodes, np.uint64(1), codes[0])
    above = np.int64(1)
    for level in range(levels(max(rows, columns)) - 1, 0, -1):
        if at < 0:
            break
        down, across = halved(rows, level), halved(columns, level)
        count = _children(codes[last], above, down, across, nodes)
        last, above = 1 - last, across
        for i in range(down * across):
            codes[last, i] = 0
        at = read_codes(words, at, end, nodes, count, codes[last])
    return at, last


@njit
def _children(codes, above, rows, columns, nodes):  # type: ignore[no-untyped-def]
    """List the nodes that have a code, in the stream's order: from the last back to the first.

    `above` is the number of codes in a row of the level above. Each node is written, and counted
    only if it has a code: a jump that depends on data would take longer.
    """
    count, one = np.uint64(0), np.uint64(1)
    for row in range(rows - 1, -1, -1):
        shift = np.uint64(2 * (1 - (row & 1)))
        code = np.uint64((row >> 1) * above + above - 1)
        node = np.uint64(row * columns + columns - 1)
        if columns & 1:
            nodes[count] = node
            count += (np.uint64(codes[code]) >> shift >> one) & one
            code -= one
            node -= one
        for _ in range(columns >> 1):
            pair = np.uint64(codes[code]) >> shift
            nodes[count] = node
            count += pair & one
            nodes[count] = node - one
            count += (pair >> one) & one
            code -= one
            node -= np.uint64(2)
    return count


@njit
def _add_plane(magnitudes, codes, bit, plane):  # type: ignore[no-untyped-def]
    for i in range(magnitudes.size):
        magnitudes[i] |= magnitudes.dtype.type((codes[i] >> bit) & 1) << plane
