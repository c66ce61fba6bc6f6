"""HCOMPRESS_1: decode the stream of a tile with numba. Imported when the first tile is read.

A stream has a header, the bit planes of the coefficients' magnitudes, four bits of 0, and the signs
from the next whole byte on. The coefficients are in four quadrants, one after the other. Each bit
plane of a quadrant is a quadtree: a code has a bit for each of the 2x2 nodes below it, in the order
upper left, upper right, lower left, lower right. On the lowest level these are the bits of the
coefficients. The inverse of the H-transform, a two-dimensional Haar transform of integers, converts
coefficients to pixels.

Notes
-----
FITS Standard 4.0, section 10.4.4.
"""

from __future__ import annotations

import struct
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from readers.cache.jit import Jit

JIT = Jit([Path(__file__)])
njit = JIT.njit

_HEADER = struct.Struct(">2s3iq3B")
"""Magic number, rows, columns, scale, sum of all pixels, and the numbers of bit planes of three
kinds of quadrants: upper left, upper right and lower left, lower right."""
_MAGIC = b"\xdd\x99"
_MOST_PLANES = 62
"""Bits of an int64 without the sign and one spare bit."""
_PLAIN, _QUADTREE = 0, 15
"""Formats of a bit plane."""
_CODES = (
    *("111110", "000", "001", "1000", "010", "1001", "11010", "11011"),
    *("011", "11100", "1010", "11101", "1011", "11110", "111111", "1100"),
)
"""Codes of the values 0 to 15, in bits."""

PADDING = 4
"""Zero words after a stream, because its end is only checked after every ten codes."""


def decode_tile(stream: NDArray[np.uint8], rows: int, columns: int) -> NDArray[Any]:
    """Decode a tile.

    Parameters
    ----------
    stream : ndarray, shape (bytes,), uint8
        At least the 25 bytes of its header.
    rows, columns : int
        Size of the tile, at least 2x2; the size in the header is not used.

    Returns
    -------
    ndarray, shape (rows, columns), int32 or int64
        The lower 32 bits equal the result of CFITSIO's ``fits_hdecompress64``.

    Raises
    ------
    ValueError
        If the stream is damaged.
    """
    magic, _, _, scale, total, *planes = _HEADER.unpack_from(stream.data)
    if magic != _MAGIC:
        raise ValueError(f"the stream begins with {magic!r}, expected {_MAGIC!r}")
    if max(planes) > _MOST_PLANES:
        raise ValueError(f"the stream has {max(planes)} bit planes, the limit is {_MOST_PLANES}")
    scale = max(scale, 1)
    is_wide = _needs_int64(rows, columns, abs(total) * scale, scale << max(planes))
    _compile_once(is_wide)
    tile = _Tile(rows, columns, scale, total, planes, is_wide)
    return _decoded(stream[_HEADER.size :], tile)


def _needs_int64(rows: int, columns: int, total: int, largest: int) -> bool:
    """Return whether a sum in the inverse transform may exceed an int32.

    A pixel of a level is at most half of the sum of a pixel above and three differences. So it is
    at most `total` or three times `largest`. Rounding adds at most `unit`.
    """
    unit = 4 << max(rows, columns).bit_length()
    return total + unit >= 1 << 29 or largest + unit >= 1 << 28


class _Tile(NamedTuple):
    """Size and header of a tile."""

    rows: int
    columns: int
    scale: int
    total: int
    planes: list[int]
    is_wide: bool


def _decoded(body: NDArray[np.uint8], tile: _Tile) -> NDArray[Any]:
    words = np.zeros(-(-len(body) // 8) + PADDING, ">u8")
    words.view(np.uint8)[: len(body)] = body
    number: Any = np.int64 if tile.is_wide else np.int32
    shape, codes = (tile.rows, tile.columns), -(-tile.rows // 4) * -(-tile.columns // 4)
    magnitudes = np.empty((4, 4, codes), number)
    coefficients = np.empty(shape, number)
    is_sound = read_coefficients(
        words.astype(np.uint64),
        8 * len(body),
        np.array(tile.planes),
        number(tile.scale),
        tile.total,
        magnitudes,
        np.empty((2, codes), np.uint8),
        np.empty(codes, np.uint32),
        coefficients,
    )
    if not is_sound:
        raise ValueError("the stream is damaged")
    # The pixels reuse the memory of the magnitudes.
    pixels = magnitudes.reshape(-1)[: coefficients.size].reshape(shape)
    invert(coefficients, pixels, np.zeros((2, tile.columns), number))
    return pixels


@njit
def read_coefficients(words, end, planes, scale, total, magnitudes, codes, nodes, coefficients):  # type: ignore[no-untyped-def]
    """Read all coefficients of a tile; return False if the stream is damaged.

    `magnitudes`, `codes` and `nodes` are work space, see `read_quadrant`.
    """
    rows, columns = coefficients.shape
    top, left = halved(rows, 1), halved(columns, 1)
    at = np.int64(0)
    for quadrant in range(4):
        down = rows - top if quadrant >= 2 else top
        across = columns - left if quadrant & 1 else left
        count = planes[(quadrant + 1) >> 1]
        found = magnitudes[quadrant]
        at = read_quadrant(words, at, end, count, down, across, found, codes, nodes)
        if at < 0:
            return False
    if at + 4 > end or peek(words, at) >> np.uint64(60) != 0:
        return False
    at = read_signs(words, (at + 11) >> 3 << 3, end, scale, magnitudes, coefficients)
    number = coefficients.dtype.type
    coefficients[0, 0] = number(number(total) * scale)
    return at >= 0


@cache
def _compile_once(is_wide: bool) -> None:
    """Compile for a type, or wait for another process that is compiling."""
    with JIT.turn():
        _decoded(np.zeros(1, np.uint8), _Tile(2, 2, 1, 0, [0, 0, 0], is_wide))


def compile_all() -> None:
    """Compile for all types."""
    for is_wide in (False, True):
        _compile_once(is_wide)


def _pairs() -> NDArray[np.uint16]:
    """Return a table, indexed by the next 12 bits, of the two codes at their start.

    An entry has the two values (4 bits each), the number of bits of the first code (4), and the
    number of bits of both codes (4).
    """
    values, sizes = np.zeros(64, np.int64), np.zeros(64, np.int64)
    for value, code in enumerate(_CODES):
        start = int(code.ljust(6, "0"), 2)
        stop = start + (1 << (6 - len(code)))
        values[start:stop], sizes[start:stop] = value, len(code)
    bits = np.arange(1 << 12)
    first = bits >> 6
    second = (bits >> (6 - sizes[first])) & 63
    both = values[first] | values[second] << 4
    return (both | sizes[first] << 8 | (sizes[first] + sizes[second]) << 12).astype(np.uint16)


_PAIRS = _pairs()


@njit(forceinline=True)
def peek(words, at):  # type: ignore[no-untyped-def]
    """Return the 64 bits from bit `at` on."""
    word, bit = np.uint64(at) >> np.uint64(6), np.uint64(at) & np.uint64(63)
    # Two shifts, because a shift by 64 is undefined.
    behind = words[word + np.uint64(1)] >> np.uint64(1) >> (np.uint64(63) - bit)
    return (words[word] << bit) | behind


@njit
def read_codes(words, at, end, nodes, count, codes):  # type: ignore[no-untyped-def]
    """Decode the next values into ``codes[nodes[:count]]``; return the next bit, or -1.

    Two values are decoded by one table lookup.
    """
    done, count = np.uint64(0), np.uint64(count)
    while done + np.uint64(10) <= count and at <= end:
        bits = peek(words, at)
        for _ in range(5):
            pair = np.uint64(_PAIRS[bits >> np.uint64(52)])
            codes[nodes[done]] = pair & np.uint64(15)
            codes[nodes[done + np.uint64(1)]] = (pair >> np.uint64(4)) & np.uint64(15)
            done += np.uint64(2)
            bits <<= pair >> np.uint64(12)
            at += np.int64(pair >> np.uint64(12))
    if at > end:
        return np.int64(-1)
    while done < count:
        pair = np.uint64(_PAIRS[peek(words, at) >> np.uint64(52)])
        codes[nodes[done]] = pair & np.uint64(15)
        done += np.uint64(1)
        at += np.int64((pair >> np.uint64(8)) & np.uint64(15))
    return at if at <= end else np.int64(-1)


@njit
def read_plain_codes(words, at, end, count, codes):  # type: ignore[no-untyped-def]
    """Read values of 4 bits into ``codes[:count]``; return the next bit, or -1.

    The loop over sixteen values is vectorised.
    """
    if at + 4 * count > end:
        return np.int64(-1)
    done, count = np.uint64(0), np.uint64(count)
    while done + np.uint64(16) <= count:
        bits = peek(words, at)
        for i in range(np.uint64(16)):
            codes[done + i] = (bits >> (np.uint64(60) - np.uint64(4) * i)) & np.uint64(15)
        done += np.uint64(16)
        at += 64
    while done < count:
        codes[done] = peek(words, at) >> np.uint64(60)
        done += np.uint64(1)
        at += 4
    return at


@njit
def levels(size):  # type: ignore[no-untyped-def]
    """Return the number of times to halve a length, rounding up, until it is 1."""
    count = 0
    while (1 << count) < size:
        count += 1
    return count


@njit
def halved(size, count):  # type: ignore[no-untyped-def]
    """Return a length after halving it repeatedly, rounding up."""
    return (size + (1 << count) - 1) >> count


@njit
def read_quadrant(words, at, end, num_planes, rows, columns, magnitudes, codes, nodes):  # type: ignore[no-untyped-def]
    """Read the bit planes of a quadrant.

    Parameters
    ----------
    words : ndarray, shape (words,), uint64
        The stream, and `PADDING` words.
    at, end : int64
        Next bit and end of the stream.
    num_planes : int64
        Bits of the largest magnitude.
    rows, columns : int64
        Number of coefficients. A code belongs to 2x2 coefficients.
    magnitudes : ndarray, shape (4, codes), int32 or int64
        Output: magnitudes of the four coefficients of each code.
    codes : ndarray, shape (2, codes), uint8
    nodes : ndarray, shape (codes,), uint32
        Work space.

    Returns
    -------
    int64
        The next bit, or -1 if the stream is damaged.
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
    """Read a plane from its root down; return the next bit, and the index of its `codes`."""
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
    """List the nodes that have a code, in the order of the stream: from the last to the first.

    `above` is the number of codes in a row of the level above. Each node is written, but only
    counted if it has a code: a branch that depends on data would take longer.
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
        Magnitudes of the four quadrants, see `read_quadrant`.
    coefficients : ndarray, shape (rows, columns), of the same type
        Output.

    Returns
    -------
    int64
        The next bit, or -1 if the stream is damaged.
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


@njit
def invert(coefficients, pixels, beyond):  # type: ignore[no-untyped-def]
    """Compute pixels from coefficients.

    On each level the first halves of rows and columns are sums; the second halves are differences.

    Parameters
    ----------
    coefficients : ndarray, shape (rows, columns), int32 or int64
        Overwritten.
    pixels : ndarray, shape (rows, columns), of the same type
        Output.
    beyond : ndarray, shape (2, columns), of the same type
        Zeros, and work space, in place of a row after the last one if the number of rows is odd.
    """
    rows, columns = coefficients.shape
    top = levels(max(rows, columns))
    number = coefficients.dtype.type
    coefficients[0, 0] = _rounded(coefficients[0, 0], number(number(2) << top))
    for level in range(top - 1, -1, -1):
        down, across = halved(rows, level), halved(columns, level)
        half = halved(down, 1)
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
    """Return 2x2 pixels from their sum and differences; differences beyond an edge are 0.

    The remainders of divided sums are in the low bits of the differences. Each result is cast:
    numba would continue with 64 bits, and its vectors would hold half as many pixels.
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
