"""The header of a compressed image where nearly all files have it: right behind an empty HDU.

``fits.open`` finds it there as well, but takes many times as long, and for a window of such an
image that would be most of what a reader process does. What is the least bit unusual is left to it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, BinaryIO, NoReturn

import numpy as np
from astropy.io import fits

_BLOCK = 2880
_HEADS = (8 * _BLOCK, 32 * _BLOCK)
"""Bytes that are read of a file: most need no more than the first."""
_SIMPLE = b"SIMPLE  =" + b"T".rjust(21)
_BINTABLE = b"XTENSION= 'BINTABLE'"
_WORDS = ("BITPIX", "NAXIS", "NAXIS1", "NAXIS2", "PCOUNT", "GCOUNT", "TFIELDS")
_PRINTABLE = 32, 126
_INITIALS = re.compile(b"[BNPTZ]")
"""Of the words that tell how the image is stored. The others tell of the observation."""
_END = b"END" + b" " * 77


class Words(dict[str, Any]):
    """Words of a header, and their values as astropy gives them."""

    def __missing__(self, name: str) -> NoReturn:
        raise KeyError(f"Keyword {name!r} not found.")  # as astropy says it


@dataclass(frozen=True, slots=True)
class TableHeader:
    """The header of a BINTABLE, and where its data lie."""

    text: bytes
    """All cards."""
    words: Words
    """Those that tell how the image is stored."""
    start: int
    """Of the data, in bytes from the start of the file."""
    file_size: int
    """In bytes."""

    def header(self, keys: Collection[str]) -> fits.Header:
        """Give `words`, and these of the observation, in capitals. Each takes its time."""
        wanted = {f"{key:<8}".encode() for key in keys}
        cards = (self.text[place : place + 80] for place in range(0, len(self.text), 80))
        return fits.Header.fromstring(
            b"".join(card for card in cards if _INITIALS.match(card) or card[:8] in wanted)
        )


def compressed_header(file: BinaryIO, number: int | None) -> TableHeader | None:
    """Read the header of a compressed image.

    Parameters
    ----------
    file : file
        Open for reading.
    number : int or None
        HDU that is asked for; None for the first that holds an image.

    Returns
    -------
    TableHeader or None
        None if there is no such image in HDU 1, behind an HDU 0 without data, or if the file ends
        before its data: let astropy look, and complain.
    """
    if number not in (None, 1):
        return None
    for size in _HEADS:
        head = os.pread(file.fileno(), size, 0)
        first = _header_end(head, 0)
        start = _header_end(head, first)
        other = first and not _BINTABLE.startswith(head[first : first + len(_BINTABLE)])
        if start or other or len(head) < size:
            break
    if first == 0 or start == 0 or head[:30] != _SIMPLE or _integer(head, 2, "NAXIS") != 0:
        return None
    table = head[first:start]
    words = [_integer(table, place, word) for place, word in enumerate(_WORDS, 1)]
    bitpix, naxis, row_bytes, rows, heap_bytes, groups, columns = words
    plain = (
        table[:20] == _BINTABLE
        and not table[20:31].strip(b" /")
        and (bitpix, naxis, groups) == (8, 2, 1)
        and min(row_bytes, rows, heap_bytes) >= 0
        and 0 < columns < 1000
        and _is_printable(head[:start])
    )
    if not plain:
        return None
    found = Words()
    for card in _INITIALS.finditer(table[::80]):
        place = 80 * card.start()
        found.setdefault(*_parsed(table[place : place + 80]))  # of two the first, as astropy
    file_size = os.fstat(file.fileno()).st_size
    end = start + row_bytes * rows + heap_bytes
    if found.get("ZIMAGE") is not True or -(-end // _BLOCK) * _BLOCK > file_size:
        return None
    return TableHeader(table, found, start, file_size)


@lru_cache(maxsize=4096)
def _parsed(card: bytes) -> tuple[str, Any]:
    """Parse a card; most of those that tell how an image is stored are alike in all files."""
    parsed = fits.Card.fromstring(card)
    return parsed.keyword, parsed.value


def _is_printable(text: bytes) -> bool:
    codes = np.frombuffer(text, np.uint8)
    return bool(codes.min() >= _PRINTABLE[0] and codes.max() <= _PRINTABLE[1])


def _integer(header: bytes, place: int, word: str) -> int:
    """Give the value of a card of a header that must be there, in fixed format; -1 if it is not."""
    card = header[80 * place : 80 * place + 31]
    value = card[10:].strip(b" /")
    return int(value) if card[:10] == f"{word:<8}= ".encode() and value.isdigit() else -1


def _header_end(head: bytes, start: int) -> int:
    """Give the position behind the header that begins at `start`; 0 if it has no end in `head`."""
    for block in range(start, len(head) - _BLOCK + 1, _BLOCK):
        at = head.find(_END, block, block + _BLOCK)
        if at >= 0:
            return block + _BLOCK if at % 80 == 0 else 0
    return 0
