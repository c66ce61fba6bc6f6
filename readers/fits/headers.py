"""Parse the header of an image without astropy: its cards, and the values needed to read it.

``fits.open`` takes many times as long, which for a window would be most of the work of a reader
process. Anything unusual is left to astropy.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn

from astropy.io import fits

BLOCK = 2880
_INITIALS = re.compile(b"[BNPTZ]")
"""First letters of the keywords that say how an image is stored in a table."""
_OF_IMAGE = re.compile(rb"(?:BITPIX  |NAXIS[0-9 ]{3}|BSCALE  |BZERO   |BLANK   )=")
"""Keywords that say how a plain image is stored."""
TABLE = b"XTENSION= 'BINTABLE'"
END = b"END" + b" " * 77
_PRINTABLE = bytes(range(32, 127))


class Keywords(dict[str, Any]):
    """Keywords of a header, with the values that astropy parses."""

    def __missing__(self, name: str) -> NoReturn:
        raise KeyError(f"Keyword {name!r} not found.")  # as astropy says it


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """The header of an HDU that holds an image, and the position of its data."""

    number: int
    """Number of the HDU."""
    text: bytes
    """All cards."""
    keywords: Keywords
    """The keywords that say how the image is stored."""
    start: int
    """First byte of the data in the file."""
    stop: int
    """End of the data in the file, in bytes."""
    names: tuple[str, int]
    """EXTNAME, in capitals, and EXTVER."""

    @property
    def is_table(self) -> bool:
        """Whether the image is compressed into a table."""
        return self.text.startswith(TABLE)

    @classmethod
    def of(
        cls, number: int, text: bytes, start: int, stop: int, names: tuple[str, int]
    ) -> ImageHeader:
        """Parse the cards that say how the image is stored.

        If a keyword is repeated the last one counts, in tables the first, as in astropy and
        CFITSIO.
        """
        if text.startswith(TABLE):
            starts = [80 * card.start() for card in _INITIALS.finditer(text[::80])][::-1]
        else:
            starts = [card.start() for card in _OF_IMAGE.finditer(text) if card.start() % 80 == 0]
        keywords = Keywords(parsed(text[at : at + 80]) for at in starts)
        return cls(number, text, keywords, start, stop, names)

    def header(self, keys: Collection[str]) -> fits.Header:
        """Return `keywords` and the given ones, in capitals; each one takes time to parse."""
        wanted = {f"{key:<8}".encode() for key in keys}
        cards = (self.text[at : at + 80] for at in range(0, len(self.text), 80))
        return fits.Header.fromstring(
            b"".join(card for card in cards if _INITIALS.match(card) or card[:8] in wanted)
        )


@lru_cache(maxsize=4096)
def parsed(card: bytes) -> tuple[str, Any]:
    """Parse a card. Cached, since most cards here are the same in all files."""
    found = fits.Card.fromstring(card)
    return found.keyword, found.value


def integer(header: bytes, number: int, keyword: str) -> int | None:
    """Return the value of card `number`; None unless it is this keyword, and an integer."""
    return _integer(header[80 * number : 80 * number + 80], keyword)


@lru_cache(maxsize=4096)
def _integer(card: bytes, keyword: str) -> int | None:
    if card[:10] != f"{keyword:<8}= ".encode():
        return None
    value = card[10:].partition(b"/")[0].strip(b" ")
    return int(value) if value.removeprefix(b"-").isdigit() else None


def header_end(content: bytes, start: int) -> int:
    """Return the end of the header that begins at `start`; 0 if its END card is missing.

    The content may be cut off in its last block.
    """
    at = content.find(END, start)
    while at >= 0 and (at - start) % 80:
        at = content.find(END, at + 1)
    return min(start + (at - start) // BLOCK * BLOCK + BLOCK, len(content)) if at >= 0 else 0


def is_printable(text: bytes) -> bool:
    """Return whether all characters are those that a header may have."""
    return not text.translate(None, _PRINTABLE)
