"""The header of an image, without astropy: its cards, and the values of those that matter here.

``fits.open`` reads it as well, but takes many times as long, and for a window that would be most of
what a reader process does. What is the least bit unusual is left to it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np
from astropy.io import fits

BLOCK = 2880
_INITIALS = re.compile(b"[BNPTZ]")
"""Of the keywords that tell how an image is stored in a table. The others tell of the observation.
"""
_OF_IMAGE = re.compile(rb"(?:BITPIX  |NAXIS[0-9 ]{3}|BSCALE  |BZERO   |BLANK   )=")
"""Keywords that tell how a plain image is stored."""
ONCE = re.compile(rb"(?:BITPIX  |NAXIS[0-9 ]{3})=")
"""Those of them that a header must not have twice."""
_TABLE = b"XTENSION= 'BINTABLE'"
_END = b"END" + b" " * 77


class Words(dict[str, Any]):
    """Keywords of a header, and their values as astropy gives them."""

    def __missing__(self, name: str) -> NoReturn:
        raise KeyError(f"Keyword {name!r} not found.")  # as astropy says it


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """The header of an HDU that holds an image, and where its data lie."""

    number: int
    """Of the HDU."""
    text: bytes
    """All cards."""
    words: Words
    """Those that tell how the image is stored."""
    start: int
    """Of the data, in bytes from the start of the file."""
    stop: int
    """Behind the data."""

    @property
    def is_table(self) -> bool:
        """Whether the image is compressed into a table."""
        return self.text.startswith(_TABLE)

    @classmethod
    def of(cls, number: int, text: bytes, start: int, stop: int) -> ImageHeader:
        """Parse those cards that tell how the image is stored.

        Of two alike the last counts, in tables the first, as for astropy and CFITSIO.
        """
        if text.startswith(_TABLE):
            places = [80 * card.start() for card in _INITIALS.finditer(text[::80])][::-1]
        else:
            places = [card.start() for card in _OF_IMAGE.finditer(text) if card.start() % 80 == 0]
        words = Words(parsed(text[place : place + 80]) for place in places)
        return cls(number, text, words, start, stop)

    def header(self, keys: Collection[str]) -> fits.Header:
        """Return `words`, and these of the observation, in capitals. Each takes its time."""
        wanted = {f"{key:<8}".encode() for key in keys}
        cards = (self.text[place : place + 80] for place in range(0, len(self.text), 80))
        return fits.Header.fromstring(
            b"".join(card for card in cards if _INITIALS.match(card) or card[:8] in wanted)
        )


@lru_cache(maxsize=4096)
def parsed(card: bytes) -> tuple[str, Any]:
    """Parse a card; most of those that tell how an image is stored are alike in all files."""
    found = fits.Card.fromstring(card)
    return found.keyword, found.value


def card_of(text: bytes, keyword: bytes) -> bytes | None:
    """Return the first card of a keyword, which is padded to 8 bytes, that has a value."""
    at = text.find(keyword + b"=")
    while at % 80 and at >= 0:
        at = text.find(keyword + b"=", at + 1)
    return text[at : at + 80] if at >= 0 else None


def integer(header: bytes, place: int, keyword: str) -> int | None:
    """Return the value of a card that must stand at this place, in fixed format, or None."""
    card = header[80 * place : 80 * place + 31]
    if card[:10] != f"{keyword:<8}= ".encode():
        return None
    value = card[10:].strip(b" /")
    return int(value) if value.removeprefix(b"-").isdigit() else None


def header_end(content: bytes, start: int) -> int:
    """Return the position behind the header that begins at `start`; 0 if its END is not there."""
    for block in range(start, len(content) - BLOCK + 1, BLOCK):
        at = content.find(_END, block, block + BLOCK)
        if at >= 0:
            return block + BLOCK if (at - start) % 80 == 0 else 0
    return 0


def is_plain_text(header: bytes) -> bool:
    """Tell whether all characters are printable, and those of the keywords no lower-case ones."""
    codes = np.frombuffer(header, np.uint8)
    keywords = codes.reshape(-1, 80)[:, :8]
    return bool(codes.min() >= 32 and codes.max() <= 126 and keywords.max() < ord("a"))
