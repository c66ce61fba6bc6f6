"""Read one RICE_1 tile step by step, on any device.

The stream is not trusted: no bit after the end of the tile is used, and all damage is reported.

Notes
-----
FITS Standard 4.0, section 10.4.1; White & Becker, "On-board compression" (1998). A tile begins with
its first pixel, raw. Blocks of differences between consecutive pixels follow, folded to be
positive. A block begins with a code: the number of low bits, plus one. In each difference the high
bits are unary and the low bits plain.
"""

from __future__ import annotations

import numpy as np

from dali_pipelines.kernels.bits import leading_zeros, load_big_endian
from dali_pipelines.kernels.jit import njit

LENGTH_BITS = (3, 4, 5)
"""Bits of a block's code, for 1, 2 and 4 bytes per pixel; the index is bytepix >> 1."""

RAW_CODES = (6, 14, 25)
"""Codes of blocks whose differences are stored raw; higher codes are invalid."""

NEAR = np.uint64(30)
"""Limit of leading zeros: a difference with fewer fits into the 57 bits of a word, as it has at
most 30 + 1 + 24 bits."""


@njit
def first_pixel(address, bytepix):  # type: ignore[no-untyped-def]
    """Read the first pixel of a tile."""
    return np.int64(load_big_endian(address) >> np.uint64(64 - 8 * bytepix))


@njit
def ends_well(at, end, whole):  # type: ignore[no-untyped-def]
    """Return whether a position is valid after the last needed pixel."""
    return at <= end and not (whole and end - at >= 8)


@njit
def read_code(at, end, bytepix):  # type: ignore[no-untyped-def]
    """Read the code of a block.

    Parameters
    ----------
    at, end : int
        Positions of the block and of the end of the tile: an address times 8, plus bits.
    bytepix : int
        Bytes per pixel: 1, 2 or 4.

    Returns
    -------
    at, code : int
        Position after the code, or -1 if it is missing or invalid; and the code.
    """
    length_bits = LENGTH_BITS[bytepix >> 1]
    if at + length_bits > end:
        return np.int64(-1), np.int64(0)
    code = np.int64(bits_at(at) >> np.uint64(64 - length_bits)) - 1
    if code > RAW_CODES[bytepix >> 1]:
        return np.int64(-1), np.int64(0)
    return at + length_bits, code


@njit
def read_block(pixels, at, end, last, code, bytepix):  # type: ignore[no-untyped-def]
    """Read the pixels of a block after its code.

    Parameters
    ----------
    pixels : ndarray, shape (pixels,), int32
        Output.
    at, end, bytepix : int
        See `read_code`.
    last : int
        Previous pixel.
    code : int
        Code of the block.

    Returns
    -------
    at, last : int
        Position after the block, or -1 if the stream ends too early; and the block's last pixel.
    """
    if code < 0:
        for i in range(pixels.size):
            pixels[i] = last
    elif code == RAW_CODES[bytepix >> 1]:
        raw_bits = 8 * bytepix
        if at + pixels.size * raw_bits > end:
            return np.int64(-1), last
        for i in range(pixels.size):
            folded = np.int64(bits_at(at) >> np.uint64(64 - raw_bits))
            at += raw_bits
            last += (folded >> 1) ^ -(folded & 1)
            pixels[i] = last
    else:
        for i in range(pixels.size):
            at, difference = next_difference(at, end, code)
            if at < 0:
                return at, last
            last += difference
            pixels[i] = last
    return at, last


@njit
def next_difference(at, end, code):  # type: ignore[no-untyped-def]
    """Return the position after a difference (-1 if the stream ends too early), and its value."""
    word = bits_at(at)
    zeros = leading_zeros(word)
    if zeros < NEAR:
        return near_difference(word, zeros, at, code)
    if at >= end:
        return np.int64(-1), np.int64(0)
    # The word may end in the middle of this difference.
    zeros = _count_zeros(at, end)
    at += np.int64(zeros) + 1
    if at + code > end:
        return np.int64(-1), np.int64(0)
    low = np.uint64(code)
    plain = (bits_at(at) >> np.uint64(1)) >> (np.uint64(63) - low)
    folded = np.int64((zeros << low) | plain)
    return at + code, (folded >> 1) ^ -(folded & 1)


@njit
def near_difference(word, zeros, at, code):  # type: ignore[no-untyped-def]
    """Read a difference with fewer than `NEAR` leading zeros, which is completely in one word."""
    # The word has the zeros, a one and the low bits. Shifted to the right, the one is 1 << code,
    # but the high bits are the number of zeros.
    used = zeros + np.uint64(code)
    folded = np.int64(word >> (np.uint64(63) - used)) + ((np.int64(zeros) - 1) << code)
    return at + np.int64(used) + 1, (folded >> 1) ^ -(folded & 1)


@njit
def bits_at(at):  # type: ignore[no-untyped-def]
    """Return the bits from a position on; the first 57 of the 64 are valid."""
    return load_big_endian(at >> 3) << np.uint64(at & 7)


@njit
def _count_zeros(at, end):  # type: ignore[no-untyped-def]
    """Count zero bits from a position on, up to the end of the tile."""
    zeros = 0
    while at + zeros < end:
        found = np.int64(leading_zeros(bits_at(at + zeros)))
        if found < 57:
            return np.uint64(zeros + found)
        zeros += 57
    return np.uint64(end - at)
