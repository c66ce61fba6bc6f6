"""CHECKSUM and DATASUM of an HDU, of its bytes as they are.

astropy takes them of the header as it would write it, in which it has fixed cards that break the
standard; then the sums of such a file, as JSOC's, are wrong.
"""

from __future__ import annotations

import numpy as np

_ALL_ONES = 0xFFFFFFFF
_PIECE = 16 << 20
"""Bytes that are summed at once, a multiple of 4: 64 bits hold the sum."""
_PUNCTUATION = frozenset(b":;<=>?@[\\]^_`")


def ones_sum(data: bytes | memoryview) -> int:
    """Return the 32-bit ones' complement sum of whole blocks (FITS Standard 4.0, appendix J)."""
    total = 0
    for at in range(0, len(data), _PIECE):
        total += int(np.frombuffer(data[at : at + _PIECE], ">u4").sum(dtype=np.uint64))
    while total > _ALL_ONES:
        total = (total >> 32) + (total & _ALL_ONES)
    return total


def is_sound(data: bytes | memoryview) -> bool:
    """Return whether the bytes of a whole HDU agree with the CHECKSUM in its header."""
    return ones_sum(data) in (0, _ALL_ONES)


def encoded(total: int) -> str:
    """Return the 16 characters of CHECKSUM that bring the sum of an HDU, `total`, to all ones."""
    value = _ALL_ONES - total
    columns = []
    for byte in value.to_bytes(4, "big"):
        quarter, rest = divmod(byte, 4)
        codes = [quarter + rest + ord("0"), *(quarter + ord("0") for _ in range(3))]
        while _PUNCTUATION.intersection(codes):
            for first in (0, 2):
                if _PUNCTUATION.intersection(codes[first : first + 2]):
                    codes[first] += 1
                    codes[first + 1] -= 1
        columns.append(codes)
    text = "".join(chr(columns[byte][place]) for place in range(4) for byte in range(4))
    return text[-1] + text[:-1]  # its first byte is the fourth of a word
