"""RICE_1 tiles to stored integers: the compressed bytes of a FITS file, decoded in the graph.

Compiled by numba and called without the GIL from DALI's threads. Nothing in the stream is trusted:
no bit is read past the end of its tile, and what does not add up is told and never guessed.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from dali_pipelines.kernels.bits import leading_zeros, load_big_endian

PADDING = 8
"""Bytes that must follow the last tile in its buffer: a load takes 8 bytes from any position."""


@njit(nogil=True, cache=True)
def decode_tile(pixels, address, num_bytes, num_pixels, whole, bytepix, blocksize):  # type: ignore[no-untyped-def]
    """Decode the first pixels of a tile.

    Parameters
    ----------
    pixels : ndarray, shape (at least num_pixels,), int32
        Written. Of 8- and 16-bit pixels only the low bits count.
    address : int
        Of the tile's first byte; `PADDING` bytes past its end can be read.
    num_bytes : int
        Length of the tile.
    num_pixels : int
        Pixels wanted, at most those of the tile.
    whole : bool
        Whether these are all pixels of the tile: then its bytes must end with them.
    bytepix : int
        1, 2 or 4 bytes a pixel.
    blocksize : int
        Pixels that share a code length.

    Returns
    -------
    bool
        False if the stream ends before its pixels do, or goes on behind them; what was written then
        means nothing.

    Notes
    -----
    FITS Standard 4.0, section 10.4.1; White & Becker, "On-board compression" (1998). A tile is its
    first pixel, raw, then blocks of differences to the pixel before, folded to be positive. A block
    is a code length plus one, then each difference: its high bits in unary, its low bits plain.
    """
    length_bits, raw_code = (3, 6) if bytepix == 1 else (4, 14) if bytepix == 2 else (5, 25)
    raw_bits = np.uint64(8 * bytepix)
    end = 8 * num_bytes
    if num_bytes < bytepix:
        return False
    last = np.int64(load_big_endian(address) >> (np.uint64(64) - raw_bits))
    at = 8 * bytepix
    start = 0
    while start < num_pixels:
        stop = min(start + blocksize, num_pixels)
        if at + length_bits > end:
            return False
        word = load_big_endian(address + np.uint64(at >> 3)) << np.uint64(at & 7)
        code = np.int64(word >> np.uint64(64 - length_bits)) - 1
        at += length_bits
        if code < 0:
            for i in range(start, stop):
                pixels[i] = last
        elif code == raw_code:
            if at + (stop - start) * 8 * bytepix > end:
                return False
            for i in range(start, stop):
                word = load_big_endian(address + np.uint64(at >> 3)) << np.uint64(at & 7)
                at += 8 * bytepix
                folded = np.int64(word >> (np.uint64(64) - raw_bits))
                last += (folded >> 1) ^ -(folded & 1)
                pixels[i] = last
        elif code > raw_code:
            return False
        else:
            low = np.uint64(code)
            for i in range(start, stop):
                if at >= end:
                    return False
                word = load_big_endian(address + np.uint64(at >> 3)) << np.uint64(at & 7)
                zeros = leading_zeros(word)
                if zeros + low >= np.uint64(56):
                    # The word may end in the middle of this difference.
                    zeros = _count_zeros(address, at, end)
                    at += np.int64(zeros) + 1
                    if at + code > end:
                        return False
                    word = load_big_endian(address + np.uint64(at >> 3)) << np.uint64(at & 7)
                else:
                    word = (word << zeros) << np.uint64(1)
                    at += np.int64(zeros) + 1
                at += code
                # Two shifts, since one by 64 is undefined.
                plain = (word >> np.uint64(1)) >> (np.uint64(63) - low)
                folded = np.int64((zeros << low) | plain)
                last += (folded >> 1) ^ -(folded & 1)
                pixels[i] = last
        start = stop
    return at <= end and not (whole and end - at >= 8)


@njit(nogil=True, cache=True)
def _count_zeros(address, at, end):  # type: ignore[no-untyped-def]
    """Count zero bits from a position on, up to the end of the tile."""
    zeros = 0
    while at + zeros < end:
        position = at + zeros
        word = load_big_endian(address + np.uint64(position >> 3)) << np.uint64(position & 7)
        found = np.int64(leading_zeros(word))
        if found < 57:
            return np.uint64(zeros + found)
        zeros += 57
    return np.uint64(end - at)
