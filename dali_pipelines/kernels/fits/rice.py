"""RICE_1 tiles to stored integers.

`read_code` and `read_block` take one step of one tile, on any device: a GPU's thread walks through
a tile by them. A core of a CPU takes many tiles at a time, in `decode_chunk`. Nothing in the stream
is trusted: no bit is used from beyond the end of its tile, and what does not add up is told and
never guessed.

Notes
-----
FITS Standard 4.0, section 10.4.1; White & Becker, "On-board compression" (1998). A tile is its
first pixel, raw, then blocks of differences to the pixel before, folded to be positive. A block is
a code length plus one, then each difference: its high bits in unary, its low bits plain.
"""

from __future__ import annotations

import numpy as np

from dali_pipelines.kernels.bits import leading_zeros, load_big_endian
from dali_pipelines.kernels.compiled import compiled
from dali_pipelines.kernels.fits.rice_avx512 import (
    ENDED,
    HAS_VECTORS,
    LANES,
    block_reader,
    read_codes,
)

_LENGTH_BITS = (3, 4, 5)
"""Bits of a block's code, for 1, 2 and 4 bytes a pixel (index bytepix >> 1)."""

_RAW_CODES = (6, 14, 25)
"""Code of a block whose differences are stored plain; all higher ones mean nothing."""

CHUNK = 4096
"""Pixels of a tile that a core decodes at a time: such runs of all tiles stay in its cache."""

PITCH = CHUNK + 16
"""From one run to the next, in pixels. A constant, so that it takes no register; and no power of
two, so that they do not push each other out of the cache."""

_1, _2, _3 = np.uint64(PITCH), np.uint64(2 * PITCH), np.uint64(3 * PITCH)

_read_by_four = block_reader(4, 4 * PITCH)
_read_by_two = block_reader(2, 4 * PITCH)
_pass_by_four = block_reader(4)
_FOUR_FIT, _TWO_FIT = 9, 20
"""Highest codes with which so many differences nearly always fit into the 57 bits of a word."""

_NEAR = np.uint64(30)
"""A difference with fewer leading zeros lies in the 57 bits of a word: 30 + 1 + 24 at most."""


@compiled
def decode_chunk(pixels, state, end, counts, unwanted, bytepix, blocksize):  # type: ignore[no-untyped-def]
    """Decode the next pixels of up to sixteen tiles.

    One tile alone waits for its own last step most of the time: load, count zeros, advance. Several
    in lockstep keep the processor busy: sixteen in vectors, where there are such, else four.

    Parameters
    ----------
    pixels : ndarray, shape (LANES * PITCH,), int32
        Written: those of tile ``lane`` from ``lane * PITCH`` on. Of 8- and 16-bit pixels only the
        low bits count.
    state : ndarray, shape (3, LANES), int64
        Position in each stream, an address times 8 plus bits; its last pixel; and the code of its
        block. Read and written. For a new tile, the position behind its `first_pixel`, and that.
    end : ndarray, shape (LANES,), int64
        Where each stream ends; `readers.fits.payload.PADDING` bytes behind it can be read.
    counts : ndarray, shape (LANES,), int64
        Pixels to decode of each tile, at most `CHUNK`. All that came before, a multiple of
        blocksize.
    unwanted : int
        So many of the first pixels of each tile need not be written.
    bytepix : int
        1, 2 or 4 bytes a pixel.
    blocksize : int
        Pixels that share a code length, at most `readers.fits.payload.MAX_BLOCKSIZE`.

    Returns
    -------
    bool
        False if a stream ends before its pixels do; what was written then means nothing.
    """
    all_have = 0
    if HAS_VECTORS:  # or else LLVM would find instructions that the CPU has not
        all_have = counts.min() // blocksize * blocksize
        if all_have > 0 and not _by_vectors(
            pixels, state, end, unwanted, all_have, bytepix, blocksize
        ):
            return False
    at, last = state[0], state[1]
    for first in range(0, LANES, 4):
        four = slice(first, first + 4)
        four_have = counts[four].min() // blocksize * blocksize
        part = pixels[first * PITCH :]
        if not _in_lockstep(
            part, at[four], end[four], last[four], all_have, four_have, bytepix, blocksize
        ):
            return False
        for lane in range(first, first + 4):
            for begin in range(four_have, counts[lane], blocksize):
                stop = min(begin + blocksize, counts[lane])
                at[lane], code = read_code(at[lane], end[lane], bytepix)
                if at[lane] >= 0:
                    run = pixels[lane * PITCH + begin : lane * PITCH + stop]
                    at[lane], last[lane] = read_block(
                        run, at[lane], end[lane], last[lane], code, bytepix
                    )
                if at[lane] < 0:
                    return False
    return True


@compiled
def _by_vectors(pixels, state, end, unwanted, stop, bytepix, blocksize):  # type: ignore[no-untyped-def]
    """Decode the blocks up to pixel `stop`, which all tiles have."""
    at, last, code = state[0], state[1], state[2]
    state_at, end_at = np.int64(state.ctypes.data), np.int64(end.ctypes.data)
    length_bits, raw_code = _LENGTH_BITS[bytepix >> 1], _RAW_CODES[bytepix >> 1]
    for begin in range(0, stop, blocksize):
        highest = read_codes(state_at, end_at, length_bits)
        if highest == ENDED or highest > raw_code:
            return False
        place = np.int64(pixels.ctypes.data) + 4 * begin
        good = False
        if highest < raw_code:
            if highest <= _FOUR_FIT and begin + blocksize <= unwanted:
                good = _pass_by_four(place, state_at, blocksize)
            elif highest <= _FOUR_FIT:
                good = _read_by_four(place, state_at, blocksize)
            if not good and highest <= _TWO_FIT:
                good = _read_by_two(place, state_at, blocksize)
        if not good:
            for lane in range(LANES):
                run = pixels[lane * PITCH + begin : lane * PITCH + begin + blocksize]
                at[lane], last[lane] = read_block(
                    run, at[lane], end[lane], last[lane], code[lane], bytepix
                )
                if at[lane] < 0:
                    return False
    return not (at > end).any()


@compiled
def _in_lockstep(pixels, at, end, last, start, stop, bytepix, blocksize):  # type: ignore[no-untyped-def]
    """Decode the blocks from pixel `start` to `stop`, which all four tiles have.

    Few variables are alive in the inner loop, to fit into the registers. It does not look for the
    end of a tile, which therefore may be overrun by as much as a block can take.
    """
    raw_code = _RAW_CODES[bytepix >> 1]
    t0, t1, t2, t3 = at[0], at[1], at[2], at[3]
    e0, e1, e2, e3 = end[0], end[1], end[2], end[3]
    l0, l1, l2, l3 = last[0], last[1], last[2], last[3]
    for begin in range(np.uint64(start), np.uint64(stop), np.uint64(blocksize)):
        t0, c0 = read_code(t0, e0, bytepix)
        t1, c1 = read_code(t1, e1, bytepix)
        t2, c2 = read_code(t2, e2, bytepix)
        t3, c3 = read_code(t3, e3, bytepix)
        if min(t0, t1, t2, t3) < 0:
            return False
        behind = begin + np.uint64(blocksize)
        if min(c0, c1, c2, c3) < 0 or max(c0, c1, c2, c3) >= raw_code:
            t0, l0 = read_block(pixels[begin:behind], t0, e0, l0, c0, bytepix)
            t1, l1 = read_block(pixels[_1 + begin : _1 + behind], t1, e1, l1, c1, bytepix)
            t2, l2 = read_block(pixels[_2 + begin : _2 + behind], t2, e2, l2, c2, bytepix)
            t3, l3 = read_block(pixels[_3 + begin : _3 + behind], t3, e3, l3, c3, bytepix)
        else:
            for i in range(begin, behind):
                w0, w1, w2, w3 = _word(t0), _word(t1), _word(t2), _word(t3)
                z0, z1 = leading_zeros(w0), leading_zeros(w1)
                z2, z3 = leading_zeros(w2), leading_zeros(w3)
                if z0 >= _NEAR or z1 >= _NEAR or z2 >= _NEAR or z3 >= _NEAR:
                    t0, d0 = _difference(t0, e0, c0)
                    t1, d1 = _difference(t1, e1, c1)
                    t2, d2 = _difference(t2, e2, c2)
                    t3, d3 = _difference(t3, e3, c3)
                    if min(t0, t1, t2, t3) < 0:
                        return False
                else:
                    t0, d0 = _near_difference(w0, z0, t0, c0)
                    t1, d1 = _near_difference(w1, z1, t1, c1)
                    t2, d2 = _near_difference(w2, z2, t2, c2)
                    t3, d3 = _near_difference(w3, z3, t3, c3)
                l0, l1, l2, l3 = l0 + d0, l1 + d1, l2 + d2, l3 + d3
                pixels[i], pixels[_1 + i], pixels[_2 + i], pixels[_3 + i] = l0, l1, l2, l3
        if min(t0, t1, t2, t3) < 0 or t0 > e0 or t1 > e1 or t2 > e2 or t3 > e3:
            return False
    at[0], at[1], at[2], at[3] = t0, t1, t2, t3
    last[0], last[1], last[2], last[3] = l0, l1, l2, l3
    return True


@compiled
def first_pixel(address, bytepix):  # type: ignore[no-untyped-def]
    """Read the pixel that a tile begins with."""
    return np.int64(load_big_endian(address) >> np.uint64(64 - 8 * bytepix))


@compiled
def ends_well(at, end, whole):  # type: ignore[no-untyped-def]
    """Return whether a position behind the last pixel wanted is where it may be."""
    return at <= end and not (whole and end - at >= 8)


@compiled
def read_code(at, end, bytepix):  # type: ignore[no-untyped-def]
    """Read the code of a block.

    Parameters
    ----------
    at, end : int
        Of the block, and of the end of the tile: an address times 8, plus bits.
    bytepix : int
        1, 2 or 4 bytes a pixel.

    Returns
    -------
    at, code : int
        The position behind it, -1 if there is no code or it means nothing; and the code.
    """
    length_bits = _LENGTH_BITS[bytepix >> 1]
    if at + length_bits > end:
        return np.int64(-1), np.int64(0)
    code = np.int64(_word(at) >> np.uint64(64 - length_bits)) - 1
    if code > _RAW_CODES[bytepix >> 1]:
        return np.int64(-1), np.int64(0)
    return at + length_bits, code


@compiled
def read_block(pixels, at, end, last, code, bytepix):  # type: ignore[no-untyped-def]
    """Read the pixels of a block, behind its code.

    Parameters
    ----------
    pixels : ndarray, shape (pixels,), int32
        Written.
    at, end, bytepix : int
        As for `read_code`.
    last : int
        The pixel before.
    code : int
        Of the block.

    Returns
    -------
    at, last : int
        The position behind it, -1 if the stream ends before; and its last pixel.
    """
    if code < 0:
        for i in range(pixels.size):
            pixels[i] = last
    elif code == _RAW_CODES[bytepix >> 1]:
        raw_bits = 8 * bytepix
        if at + pixels.size * raw_bits > end:
            return np.int64(-1), last
        for i in range(pixels.size):
            folded = np.int64(_word(at) >> np.uint64(64 - raw_bits))
            at += raw_bits
            last += (folded >> 1) ^ -(folded & 1)
            pixels[i] = last
    else:
        for i in range(pixels.size):
            at, difference = _difference(at, end, code)
            if at < 0:
                return at, last
            last += difference
            pixels[i] = last
    return at, last


@compiled
def _difference(at, end, code):  # type: ignore[no-untyped-def]
    """Read one difference; return the position behind it, -1 if the stream ends before."""
    word = _word(at)
    zeros = leading_zeros(word)
    if zeros < _NEAR:
        return _near_difference(word, zeros, at, code)
    if at >= end:
        return np.int64(-1), np.int64(0)
    # The word may end in the middle of this difference.
    zeros = _count_zeros(at, end)
    at += np.int64(zeros) + 1
    if at + code > end:
        return np.int64(-1), np.int64(0)
    low = np.uint64(code)
    plain = (_word(at) >> np.uint64(1)) >> (np.uint64(63) - low)
    folded = np.int64((zeros << low) | plain)
    return at + code, (folded >> 1) ^ -(folded & 1)


@compiled
def _near_difference(word, zeros, at, code):  # type: ignore[no-untyped-def]
    """Take a difference out of a word that holds all of it: fewer than `_NEAR` zeros lead it."""
    # From the left: the zeros, a one, and the low bits. Shifted to the right end, what is missing
    # is one less than the zeros times two to the power of the code.
    used = zeros + np.uint64(code)
    folded = np.int64(word >> (np.uint64(63) - used)) + ((np.int64(zeros) - 1) << code)
    return at + np.int64(used) + 1, (folded >> 1) ^ -(folded & 1)


@compiled
def _word(at):  # type: ignore[no-untyped-def]
    """Return the bits from a position on; the first 57 of the 64 count."""
    return load_big_endian(at >> 3) << np.uint64(at & 7)


@compiled
def _count_zeros(at, end):  # type: ignore[no-untyped-def]
    """Count zero bits from a position on, up to the end of the tile."""
    zeros = 0
    while at + zeros < end:
        found = np.int64(leading_zeros(_word(at + zeros)))
        if found < 57:
            return np.uint64(zeros + found)
        zeros += 57
    return np.uint64(end - at)
