"""RICE_1 tiles to stored integers: the compressed bytes of a FITS file, decoded in the graph.

Compiled by numba and called without the GIL from DALI's threads. Nothing in the stream is trusted:
no bit is read past the end of its tile, and what does not add up is told and never guessed.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from dali_pipelines.kernels.bits import leading_zeros, load_big_endian

_LENGTH_BITS = (3, 4, 5)
"""Bits of a block's code, for 1, 2 and 4 bytes a pixel (index bytepix >> 1)."""

_RAW_CODES = (6, 14, 25)
"""Code of a block whose differences are stored plain; all higher ones mean nothing."""

_NEAR = 30
"""A difference with fewer leading zeros lies in the 57 bits of a word: 30 + 1 + 24 at most."""

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
    if num_bytes < bytepix:
        return False
    raw_bits = 8 * bytepix
    end = 8 * num_bytes
    last = np.int64(load_big_endian(address) >> np.uint64(64 - raw_bits))
    at = raw_bits
    for start in range(0, num_pixels, blocksize):
        stop = min(start + blocksize, num_pixels)
        at, code = _code(address, at, end, bytepix)
        if at >= 0:
            at, last = _block(pixels, start, stop, address, at, end, last, code, raw_bits)
        if at < 0:
            return False
    return at <= end and not (whole and end - at >= 8)


@njit(nogil=True, cache=True)
def decode_four(pixels, addresses, lengths, num_pixels, whole, bytepix, blocksize):  # type: ignore[no-untyped-def]
    """Decode the first pixels of four tiles of the same size, in lockstep.

    One tile alone waits for its own last step most of the time: load, count zeros, advance. Four
    keep the processor busy, which makes each of them twice as fast.

    Parameters
    ----------
    pixels : ndarray, shape (4, at least num_pixels), int32
        Written.
    addresses, lengths : ndarray, shape (4,), uint64 and int64
        Of the tiles; all else is as for `decode_tile`.
    """
    raw_bits = 8 * bytepix
    raw_code = _RAW_CODES[bytepix >> 1]
    for lane in range(4):
        if lengths[lane] < bytepix:
            return False
    p0, p1, p2, p3 = pixels[0], pixels[1], pixels[2], pixels[3]
    a0, a1, a2, a3 = addresses[0], addresses[1], addresses[2], addresses[3]
    e0, e1, e2, e3 = 8 * lengths[0], 8 * lengths[1], 8 * lengths[2], 8 * lengths[3]
    shift = np.uint64(64 - raw_bits)
    l0 = np.int64(load_big_endian(a0) >> shift)
    l1 = np.int64(load_big_endian(a1) >> shift)
    l2 = np.int64(load_big_endian(a2) >> shift)
    l3 = np.int64(load_big_endian(a3) >> shift)
    t0 = t1 = t2 = t3 = np.int64(raw_bits)
    for start in range(0, num_pixels, blocksize):
        stop = min(start + blocksize, num_pixels)
        t0, c0 = _code(a0, t0, e0, bytepix)
        t1, c1 = _code(a1, t1, e1, bytepix)
        t2, c2 = _code(a2, t2, e2, bytepix)
        t3, c3 = _code(a3, t3, e3, bytepix)
        if min(t0, t1, t2, t3) < 0:
            return False
        if min(c0, c1, c2, c3) < 0 or max(c0, c1, c2, c3) >= raw_code:
            t0, l0 = _block(p0, start, stop, a0, t0, e0, l0, c0, raw_bits)
            t1, l1 = _block(p1, start, stop, a1, t1, e1, l1, c1, raw_bits)
            t2, l2 = _block(p2, start, stop, a2, t2, e2, l2, c2, raw_bits)
            t3, l3 = _block(p3, start, stop, a3, t3, e3, l3, c3, raw_bits)
        else:
            for i in range(start, stop):
                if t0 >= e0 or t1 >= e1 or t2 >= e2 or t3 >= e3:
                    return False
                w0, w1, w2, w3 = _word(a0, t0), _word(a1, t1), _word(a2, t2), _word(a3, t3)
                z0, z1 = leading_zeros(w0), leading_zeros(w1)
                z2, z3 = leading_zeros(w2), leading_zeros(w3)
                far = max(max(z0, z1), max(z2, z3))
                if far >= np.uint64(_NEAR):
                    t0, d0 = _difference(a0, t0, e0, c0)
                    t1, d1 = _difference(a1, t1, e1, c1)
                    t2, d2 = _difference(a2, t2, e2, c2)
                    t3, d3 = _difference(a3, t3, e3, c3)
                    if min(t0, t1, t2, t3) < 0:
                        return False
                else:
                    t0, d0 = _near_difference(w0, z0, t0, c0)
                    t1, d1 = _near_difference(w1, z1, t1, c1)
                    t2, d2 = _near_difference(w2, z2, t2, c2)
                    t3, d3 = _near_difference(w3, z3, t3, c3)
                l0, l1, l2, l3 = l0 + d0, l1 + d1, l2 + d2, l3 + d3
                p0[i], p1[i], p2[i], p3[i] = l0, l1, l2, l3
        if min(t0, t1, t2, t3) < 0 or t0 > e0 or t1 > e1 or t2 > e2 or t3 > e3:
            return False
    loose = max(max(e0 - t0, e1 - t1), max(e2 - t2, e3 - t3))
    return not (whole and loose >= 8)


@njit(nogil=True, cache=True)
def _code(address, at, end, bytepix):  # type: ignore[no-untyped-def]
    """Read the code of a block; give the position behind it, -1 if it is none, and the code."""
    length_bits = _LENGTH_BITS[bytepix >> 1]
    if at + length_bits > end:
        return np.int64(-1), np.int64(0)
    code = np.int64(_word(address, at) >> np.uint64(64 - length_bits)) - 1
    if code > _RAW_CODES[bytepix >> 1]:
        return np.int64(-1), np.int64(0)
    return at + length_bits, code


@njit(nogil=True, cache=True)
def _block(pixels, start, stop, address, at, end, last, code, raw_bits):  # type: ignore[no-untyped-def]
    """Decode a block; give the position behind it, -1 if the stream ends before, and the pixel."""
    if code < 0:
        for i in range(start, stop):
            pixels[i] = last
    elif code == _RAW_CODES[raw_bits >> 4]:
        if at + (stop - start) * raw_bits > end:
            return np.int64(-1), last
        for i in range(start, stop):
            folded = np.int64(_word(address, at) >> np.uint64(64 - raw_bits))
            at += raw_bits
            last += (folded >> 1) ^ -(folded & 1)
            pixels[i] = last
    else:
        for i in range(start, stop):
            if at >= end:
                return np.int64(-1), last
            at, difference = _difference(address, at, end, code)
            if at < 0:
                return at, last
            last += difference
            pixels[i] = last
    return at, last


@njit(nogil=True, cache=True)
def _difference(address, at, end, code):  # type: ignore[no-untyped-def]
    """Read one difference; give the position behind it, -1 if the stream ends before."""
    word = _word(address, at)
    zeros = leading_zeros(word)
    if zeros < np.uint64(_NEAR):
        return _near_difference(word, zeros, at, code)
    # The word may end in the middle of this difference.
    zeros = _count_zeros(address, at, end)
    at += np.int64(zeros) + 1
    if at + code > end:
        return np.int64(-1), np.int64(0)
    low = np.uint64(code)
    plain = (_word(address, at) >> np.uint64(1)) >> (np.uint64(63) - low)
    folded = np.int64((zeros << low) | plain)
    return at + code, (folded >> 1) ^ -(folded & 1)


@njit(nogil=True, cache=True)
def _near_difference(word, zeros, at, code):  # type: ignore[no-untyped-def]
    """Take a difference out of a word that holds all of it: fewer than `_NEAR` zeros lead it."""
    low = np.uint64(code)
    # Two shifts each time, since one by 64 is undefined.
    plain = ((word << zeros << np.uint64(1)) >> np.uint64(1)) >> (np.uint64(63) - low)
    folded = np.int64((zeros << low) | plain)
    return at + np.int64(zeros) + 1 + code, (folded >> 1) ^ -(folded & 1)


@njit(nogil=True, cache=True)
def _word(address, at):  # type: ignore[no-untyped-def]
    """Give the bits from a position on; the first 57 of the 64 count."""
    return load_big_endian(address + np.uint64(at >> 3)) << np.uint64(at & 7)


@njit(nogil=True, cache=True)
def _count_zeros(address, at, end):  # type: ignore[no-untyped-def]
    """Count zero bits from a position on, up to the end of the tile."""
    zeros = 0
    while at + zeros < end:
        found = np.int64(leading_zeros(_word(address, at + zeros)))
        if found < 57:
            return np.uint64(zeros + found)
        zeros += 57
    return np.uint64(end - at)
