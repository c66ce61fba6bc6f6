"""Read the blocks of a RICE_1 tile on a GPU, with the next bits of the stream in a register.

Loads are slow on a GPU, and an unaligned load takes two. Therefore an aligned word is loaded for
every 32 bits. Pixels and reported damage are the same as in `rice_stream`, which describes the
format.
"""

from __future__ import annotations

import numpy as np

from dali_pipelines.kernels.bits import leading_zeros_of_word, load_big_endian_word
from dali_pipelines.kernels.fits.rice_stream import NEAR, RAW_CODES, next_difference
from dali_pipelines.kernels.jit import njit

_ONE, _WORD = np.int32(1), np.int32(32)
_NEXT = np.uint64(1)  # unsigned: no check for negative indices


@njit
def read_block(pixels, at, end, last, code, bytepix):  # type: ignore[no-untyped-def]
    """Read the pixels of a block like `rice_stream.read_block`, but with `last` as int32."""
    count = np.uint64(pixels.size)
    i = np.uint64(0)
    if code < 0:
        while i < count:
            pixels[i] = last
            i += _NEXT
        return at, last
    if code == RAW_CODES[bytepix >> 1]:
        return _read_raw(pixels, at, end, last, np.int32(8 * bytepix))
    low = np.int32(code)
    # Bits of the longest difference that has fewer zeros than NEAR and fits into a word.
    most = min(np.int32(low + np.int32(NEAR)), _WORD)
    bits, filled, ahead = _begun(at)
    while i < count:
        word = np.uint32(bits >> np.uint64(32))
        zeros = leading_zeros_of_word(word)
        used = np.int32(np.int32(zeros + low) + _ONE)
        if used <= most:
            folded = np.uint32(word >> np.uint32(_WORD - used))
            folded = np.uint32(folded + np.uint32(np.int32(zeros - _ONE) << low))
            last = np.int32(last + _unfolded(folded))
            bits, filled, ahead = _passed(bits, filled, ahead, used)
        else:
            at, difference = next_difference(8 * ahead - filled, end, code)
            if at < 0:
                return at, last
            last = np.int32(last + np.int32(difference))
            bits, filled, ahead = _begun(at)
        pixels[i] = last
        i += _NEXT
    return 8 * ahead - filled, last


@njit
def _read_raw(pixels, at, end, last, each):  # type: ignore[no-untyped-def]
    """Read differences that are stored raw."""
    if at + pixels.size * each > end:
        return np.int64(-1), last
    bits, filled, ahead = _begun(at)
    i = np.uint64(0)
    while i < np.uint64(pixels.size):
        last = np.int32(last + _unfolded(np.uint32(bits >> np.uint64(64 - each))))
        pixels[i] = last
        bits, filled, ahead = _passed(bits, filled, ahead, each)
        i += _NEXT
    return 8 * ahead - filled, last


@njit
def _unfolded(folded):  # type: ignore[no-untyped-def]
    half, sign = np.uint32(folded >> np.uint32(1)), np.uint32(folded & np.uint32(1))
    return np.int32(np.int32(half) ^ np.int32(-np.int32(sign)))


@njit
def _begun(at):  # type: ignore[no-untyped-def]
    """Load the bits from a position on: more than 32, at the top of a uint64.

    Returns
    -------
    bits : uint64
    filled : int32
        Number of valid bits.
    ahead : int64
        Address of the next word.
    """
    ahead = at >> 5 << 2
    skip = np.int32(at & 31)
    first = np.uint64(load_big_endian_word(ahead)) << np.uint64(32)
    bits = (first | np.uint64(load_big_endian_word(ahead + 4))) << np.uint64(skip)
    return bits, np.int32(np.int32(64) - skip), ahead + 8


@njit
def _passed(bits, filled, ahead, used):  # type: ignore[no-untyped-def]
    """Drop bits, and load another word if 32 or fewer remain."""
    bits <<= np.uint64(used)
    filled = np.int32(filled - used)
    if filled <= np.int32(32):
        word = np.uint64(load_big_endian_word(ahead))
        bits |= word << np.uint64(np.int32(32) - filled)
        filled = np.int32(filled + np.int32(32))
        ahead += 4
    return bits, filled, ahead
