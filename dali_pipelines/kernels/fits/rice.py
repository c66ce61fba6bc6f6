"""Decode many RICE_1 tiles at a time on a CPU core, in vectors, or four in lockstep.

`dali_pipelines.kernels.fits.rice_stream` describes the format.
"""

from __future__ import annotations

import numpy as np

from dali_pipelines.kernels.bits import leading_zeros
from dali_pipelines.kernels.fits.rice_stream import (
    LENGTH_BITS,
    NEAR,
    RAW_CODES,
    bits_at,
    near_difference,
    next_difference,
    read_block,
    read_code,
)
from dali_pipelines.kernels.fits.rice_vector import (
    ENDED,
    LANES,
    RAW,
    READ,
    block_reader,
    read_codes,
)
from dali_pipelines.kernels.jit import njit
from dali_pipelines.kernels.vectors import HAS_VECTORS

CHUNK = 4096
"""Pixels of a tile that are decoded at a time. The chunks of all tiles fit into a core's cache."""

PITCH = CHUNK + 16
"""Pixels from the chunk of one tile to the next. A constant needs no register. It is not a power of
two, so that chunks do not evict each other from the cache."""

_1, _2, _3 = np.uint64(PITCH), np.uint64(2 * PITCH), np.uint64(3 * PITCH)

_read_short = block_reader(short=True, pitch=4 * PITCH)
_read_long = block_reader(short=False, pitch=4 * PITCH)
_pass_short = block_reader(short=True)
_HIGHEST_SHORT = 10
"""Highest code of blocks whose differences are nearly always short."""
_FEW_LONG = LANES // 4
"""If at most so many tiles have higher codes, they are read one by one; this is faster than long
reads of all tiles."""
_FEWEST = LANES // 8
"""Minimum number of tiles for which vectors are faster than one tile after the other."""


@njit
def decode_chunk(pixels, state, end, counts, unwanted, bytepix, blocksize):  # type: ignore[no-untyped-def]
    """Decode the next pixels of up to `LANES` tiles.

    With one tile, each step (load, count zeros, advance) waits for the previous one. Several tiles
    at a time keep the processor busy: in vectors if the CPU has them, otherwise four in lockstep.

    Parameters
    ----------
    pixels : ndarray, shape (LANES * PITCH,), int32
        Output. The pixels of tile ``lane`` start at ``lane * PITCH``; the first ``counts[lane]`` of
        them are valid. Of pixels of 8 and 16 bits only the low bits are valid.
    state : ndarray, shape (3, LANES), int64
        Position in each stream (an address times 8, plus bits), its last pixel, and the code of its
        block. Updated. Initially the first pixel, and the position after it; see `first_pixel`.
    end : ndarray, shape (LANES,), int64
        End of each stream; `readers.fits.payload.PADDING` bytes after it are readable.
    counts : ndarray, shape (LANES,), int64
        Number of pixels of each tile to decode, at most `CHUNK`. Earlier calls have decoded a
        multiple of blocksize.
    unwanted : int
        Number of pixels at the start of each tile that need not be written.
    bytepix : int
        Bytes per pixel: 1, 2 or 4.
    blocksize : int
        Pixels that share a code length, at most `readers.fits.payload.MAX_BLOCKSIZE`.

    Returns
    -------
    bool
        False if a stream ends too early; the pixels are then invalid.
    """
    return _decode(pixels, state, end, counts, unwanted, bytepix, blocksize)


@njit
def _by_vectors(pixels, state, end, counts, unwanted, bytepix, blocksize):  # type: ignore[no-untyped-def]
    """Decode whole blocks of all tiles in parallel."""
    at, last, code = state[0], state[1], state[2]
    addresses = np.int64(state.ctypes.data), np.int64(end.ctypes.data), np.int64(counts.ctypes.data)
    length_bits, raw_code = LENGTH_BITS[bytepix >> 1], RAW_CODES[bytepix >> 1]
    stop = _pixels_by_vectors(counts, blocksize)
    for begin in range(0, stop, blocksize):
        highest = read_codes(*addresses, begin + blocksize, length_bits, raw_code)
        if highest == ENDED or highest > raw_code:
            return False
        place = np.int64(pixels.ctypes.data) + 4 * begin
        if highest > _HIGHEST_SHORT and _num_long(code) > _FEW_LONG:
            all_read = _read_long(place, addresses[0], blocksize)
        elif begin + blocksize <= unwanted:
            all_read = _pass_short(place, addresses[0], blocksize)
        else:
            all_read = _read_short(place, addresses[0], blocksize)
        if all_read:
            continue
        for lane in range(LANES):
            if code[lane] != READ:
                run = pixels[lane * PITCH + begin : lane * PITCH + begin + blocksize]
                of_block = raw_code if code[lane] == RAW else code[lane]
                at[lane], last[lane] = read_block(
                    run, at[lane], end[lane], last[lane], of_block, bytepix
                )
                if at[lane] < 0:
                    return False
    for lane in range(LANES):
        begin = min(stop, counts[lane] // blocksize * blocksize)
        if counts[lane] > 0 and (
            at[lane] > end[lane]
            or not _alone(pixels, state, end, counts, lane, begin, bytepix, blocksize)
        ):
            return False
    return True


@njit
def _num_long(codes):  # type: ignore[no-untyped-def]
    """Count the blocks whose differences are long."""
    count = 0
    for code in codes:
        count += code > _HIGHEST_SHORT
    return count


@njit
def _pixels_by_vectors(counts, blocksize):  # type: ignore[no-untyped-def]
    """Return the number of pixels in the whole blocks of tiles; 0 if too few tiles have any."""
    most = busy = 0
    for count in counts:
        busy += count >= blocksize
        most = max(most, count)
    return most // blocksize * blocksize if busy >= _FEWEST else 0


@njit
def _by_fours(pixels, state, end, counts, unwanted, bytepix, blocksize):  # type: ignore[no-untyped-def]
    """Decode four tiles in lockstep as long as all have blocks, and the rest one by one."""
    at, last = state[0], state[1]
    for first in range(0, LANES, 4):
        four = slice(first, first + 4)
        stop = counts[four].min() // blocksize * blocksize
        part = pixels[first * PITCH :]
        if not _in_lockstep(part, at[four], end[four], last[four], stop, bytepix, blocksize):
            return False
        for lane in range(first, first + 4):
            if not _alone(pixels, state, end, counts, lane, stop, bytepix, blocksize):
                return False
    return True


_decode = _by_vectors if HAS_VECTORS else _by_fours


@njit
def _alone(pixels, state, end, counts, lane, begin, bytepix, blocksize):  # type: ignore[no-untyped-def]
    """Decode the blocks of one tile from pixel `begin` on."""
    at, last = state[0, lane], state[1, lane]
    for first in range(begin, counts[lane], blocksize):
        stop = min(first + blocksize, counts[lane])
        at, code = read_code(at, end[lane], bytepix)
        if at >= 0:
            run = pixels[lane * PITCH + first : lane * PITCH + stop]
            at, last = read_block(run, at, end[lane], last, code, bytepix)
        if at < 0:
            return False
    state[0, lane], state[1, lane] = at, last
    return True


@njit
def _in_lockstep(pixels, at, end, last, stop, bytepix, blocksize):  # type: ignore[no-untyped-def]
    """Decode the blocks up to pixel `stop`, which all four tiles have.

    The inner loop has few variables, so that they fit into registers. It does not check for the end
    of a tile, and may read up to one block beyond.
    """
    raw_code = RAW_CODES[bytepix >> 1]
    t0, t1, t2, t3 = at[0], at[1], at[2], at[3]
    e0, e1, e2, e3 = end[0], end[1], end[2], end[3]
    l0, l1, l2, l3 = last[0], last[1], last[2], last[3]
    for begin in range(np.uint64(0), np.uint64(stop), np.uint64(blocksize)):
        t0, c0 = read_code(t0, e0, bytepix)
        t1, c1 = read_code(t1, e1, bytepix)
        t2, c2 = read_code(t2, e2, bytepix)
        t3, c3 = read_code(t3, e3, bytepix)
        if min(t0, t1, t2, t3) < 0:
            return False
        after = begin + np.uint64(blocksize)
        if min(c0, c1, c2, c3) < 0 or max(c0, c1, c2, c3) >= raw_code:
            t0, l0 = read_block(pixels[begin:after], t0, e0, l0, c0, bytepix)
            t1, l1 = read_block(pixels[_1 + begin : _1 + after], t1, e1, l1, c1, bytepix)
            t2, l2 = read_block(pixels[_2 + begin : _2 + after], t2, e2, l2, c2, bytepix)
            t3, l3 = read_block(pixels[_3 + begin : _3 + after], t3, e3, l3, c3, bytepix)
        else:
            for i in range(begin, after):
                w0, w1, w2, w3 = bits_at(t0), bits_at(t1), bits_at(t2), bits_at(t3)
                z0, z1 = leading_zeros(w0), leading_zeros(w1)
                z2, z3 = leading_zeros(w2), leading_zeros(w3)
                if z0 >= NEAR or z1 >= NEAR or z2 >= NEAR or z3 >= NEAR:
                    t0, d0 = next_difference(t0, e0, c0)
                    t1, d1 = next_difference(t1, e1, c1)
                    t2, d2 = next_difference(t2, e2, c2)
                    t3, d3 = next_difference(t3, e3, c3)
                    if min(t0, t1, t2, t3) < 0:
                        return False
                else:
                    t0, d0 = near_difference(w0, z0, t0, c0)
                    t1, d1 = near_difference(w1, z1, t1, c1)
                    t2, d2 = near_difference(w2, z2, t2, c2)
                    t3, d3 = near_difference(w3, z3, t3, c3)
                l0, l1, l2, l3 = l0 + d0, l1 + d1, l2 + d2, l3 + d3
                pixels[i], pixels[_1 + i], pixels[_2 + i], pixels[_3 + i] = l0, l1, l2, l3
        if min(t0, t1, t2, t3) < 0 or t0 > e0 or t1 > e1 or t2 > e2 or t3 > e3:
            return False
    at[0], at[1], at[2], at[3] = t0, t1, t2, t3
    last[0], last[1], last[2], last[3] = l0, l1, l2, l3
    return True
