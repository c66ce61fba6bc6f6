"""The codes of four bits that a stream consists of, and the fixed Huffman code for them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from readers.fits.tiles.hcompress.jit import njit

_CODES = (
    *("111110", "000", "001", "1000", "010", "1001", "11010", "11011"),
    *("011", "11100", "1010", "11101", "1011", "11110", "111111", "1100"),
)
"""Bits that stand for each of the values 0 to 15."""

PADDING = 4
"""Words of zeros behind a stream: its end is checked after ten codes, and two words are loaded."""


def _pairs() -> NDArray[np.uint16]:
    """Return by the next 12 bits: two values, the bits of the first, and those of both."""
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
    # Two shifts, since one by 64 is undefined.
    behind = words[word + np.uint64(1)] >> np.uint64(1) >> (np.uint64(63) - bit)
    return (words[word] << bit) | behind


@njit
def read_codes(words, at, end, nodes, count, codes):  # type: ignore[no-untyped-def]
    """Decode the next values into ``codes[nodes[:count]]``; return the bit behind, or -1.

    Two at a time, as each waits for the bits of the one before.
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
    """Read values that are not Huffman-coded into ``codes[:count]``; return the bit behind, or -1.

    Sixteen at a time, in a loop that becomes vectors.
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
