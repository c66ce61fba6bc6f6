"""Read and write the bits of entropy-coded data, without the stuffed zero bytes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from readers.jpeg.mcu.jit import njit

PADDING = 40
"""Zero words after the bits. The end is only checked after each block, whose codes have at most 64
times 31 bits."""


def unstuffed(coded: bytes | memoryview) -> tuple[NDArray[np.uint64], int, int]:
    """Return the bits of entropy-coded bytes as words, up to the first marker.

    Parameters
    ----------
    coded : bytes
        Entropy-coded bytes. The zero byte after each 0xFF is removed (ITU-T T.81, B.1.1.5).

    Returns
    -------
    words : ndarray, shape (n,), uint64
        Bits, from the highest bit of the first word on, and `PADDING` zero words.
    count : int
        Number of bits.
    marker : int
        First byte of the marker; the length of `coded` if there is none.
    """
    size = len(coded)
    source = np.empty(size // 8 + 1, "<u8")
    source.view(np.uint8)[:size] = np.frombuffer(coded, np.uint8)
    words = np.empty(len(source) + PADDING, np.uint64)
    count, marker = _unstuff(source, size, words)
    return words, 8 * int(count), int(marker)


def is_end(coded: bytes | memoryview, marker: int) -> bool:
    """Return whether a marker is the end-of-image marker."""
    return bytes(coded[marker : marker + 16]).lstrip(b"\xff")[:1] == b"\xd9"


def bytes_of(words: NDArray[np.uint64], count: int) -> bytes:
    """Return bits as entropy-coded bytes; the last byte is filled with ones (T.81, F.1.2.3).

    The words are overwritten.
    """
    coded = words[: count // 64 + 1].byteswap(inplace=True).view(np.uint8)[: -(-count // 8)]
    if count % 8:
        coded[-1] |= 0xFF >> count % 8
    return coded.tobytes().replace(b"\xff", b"\xff\0")


@njit
def _unstuff(source, size, words):  # type: ignore[no-untyped-def]
    """Write `words`; return the number of bytes in them, and the position of the marker."""
    held, filled, done = np.uint64(0), np.uint64(0), np.uint64(0)
    stuffed = False  # previous byte was 0xFF
    marker = np.int64(size)
    for place in range(len(source)):
        word = source[place]
        # A byte 0xFF is a byte 0 of v = ~word; (v - 0x01..) & ~v & 0x80.. finds it.
        has_ff = (~word - np.uint64(0x0101010101010101)) & word & np.uint64(0x8080808080808080)
        if not has_ff and not stuffed and 8 * place + 8 <= size:
            word = _swapped(word)
            words[done] = held | word >> filled
            held = word << np.uint64(1) << (np.uint64(63) - filled)
            done += np.uint64(1)
            continue
        for i in range(min(8, size - 8 * place)):
            byte = (word >> np.uint64(8 * i)) & np.uint64(0xFF)
            if stuffed and byte != 0:
                marker = np.int64(8 * place + i - 1)
                break
            if stuffed:
                stuffed = False
                continue
            stuffed = byte == 0xFF
            held |= byte << (np.uint64(56) - filled)
            filled += np.uint64(8)
            if filled == 64:
                words[done] = held
                held, filled, done = np.uint64(0), np.uint64(0), done + np.uint64(1)
        if marker < size:
            break
    words[done] = held
    words[done + np.uint64(1) :] = 0
    count = np.int64(8 * done) + np.int64(filled >> np.uint64(3))
    return (count - 1 if marker < size else count), marker


@njit(inline="always")
def _swapped(word):  # type: ignore[no-untyped-def]
    """Return a word with its bytes in reverse order."""
    low = np.uint64(0x00FF00FF00FF00FF)
    word = (word >> np.uint64(8)) & low | (word & low) << np.uint64(8)
    low = np.uint64(0x0000FFFF0000FFFF)
    word = (word >> np.uint64(16)) & low | (word & low) << np.uint64(16)
    return word >> np.uint64(32) | word << np.uint64(32)


@njit(inline="always")
def peek(words, at):  # type: ignore[no-untyped-def]
    """Return the 64 bits from bit `at` on."""
    word, bit = at >> np.uint64(6), at & np.uint64(63)
    # Two shifts, because one by 64 is undefined.
    behind = words[word + np.uint64(1)] >> np.uint64(1) >> (np.uint64(63) - bit)
    return (words[word] << bit) | behind


@njit(inline="always")
def put(words, at, bits, count):  # type: ignore[no-untyped-def]
    """Write the highest 1 to 64 bits of a word over zeros at bit `at`; return the next bit."""
    bits = bits >> (np.uint64(64) - count) << (np.uint64(64) - count)
    word, bit = at >> np.uint64(6), at & np.uint64(63)
    words[word] |= bits >> bit
    words[word + np.uint64(1)] |= bits << np.uint64(1) << (np.uint64(63) - bit)
    return at + count


@njit
def copy(source, begin, end, words, at):  # type: ignore[no-untyped-def]
    """Copy the bits from `begin` to `end` to bit `at`, over zeros; return the next bit."""
    while begin < end:
        count = min(np.uint64(64), end - begin)
        at = put(words, at, peek(source, begin), count)
        begin += count
    return at
