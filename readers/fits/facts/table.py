"""The header that astropy makes of the table of a compressed image: asked once for equal tables."""

from __future__ import annotations

import io
import re
from functools import lru_cache
from typing import NamedTuple

from astropy.io import fits

from readers.fits.facts.cards import Cards, Unusual
from readers.fits.headers import BLOCK, END

_HOW = re.compile(
    rb"(?:BSCALE|BZERO|BLANK|GROUPS|EXTNAME|TFIELDS|TTYPE\d+|Z(?:IMAGE|SIMPLE|TENSION|EXTEND|BLOCKED"
    rb"|PCOUNT|GCOUNT|CMPTYPE|MASKCMP|BITPIX|NAXIS\d*|TILE\d*|NAME\d*|VAL\d*|QUANTIZ|BLANK|SCALE"
    rb"|ZERO)) *"
)
"""Keywords with which astropy turns the table into an image."""
_OF_TABLE = re.compile(
    r"SIMPLE|XTENSION|BITPIX|NAXIS\d*|PCOUNT|GCOUNT|GROUPS|EXTEND|BLOCKED|BSCALE|BZERO|BLANK|THEAP"
    r"|TFIELDS|T(TYPE|FORM|UNIT|NULL|SCAL|ZERO|DISP|BCOL|DIM|CTYP|CUNI|CRPX|CRVL|CDLT|RPOS)\d*"
    r"|CHECKSUM|DATASUM|Z(IMAGE|SIMPLE|TENSION|EXTEND|BLOCKED|PCOUNT|GCOUNT|HECKSUM|DATASUM|CMPTYPE"
    r"|MASKCMP|BITPIX|QUANTIZ|DITHER0|BLANK|SCALE|ZERO|(NAXIS|TILE|NAME|VAL)\d*)"
)
"""Keywords that the header of the image lacks, or that have another meaning there."""
_EACH_FILE = (b"ZHECKSUM", b"ZDATASUM", b"ZDITHER0")
"""Keywords whose values differ between files, and mean nothing here."""
_PRIMARY = b"".join(
    card.ljust(80)
    for card in (
        b"SIMPLE  =                    T",
        b"BITPIX  =                    8",
        b"NAXIS   =                    0",
        b"EXTEND  =                    T",
    )
)
_TABLE = b"".join(
    card.ljust(80)
    for card in (
        b"XTENSION= 'BINTABLE'",
        b"BITPIX  =                    8",
        b"NAXIS   =                    2",
        b"NAXIS1  =                    0",
        b"NAXIS2  =                    0",
        b"PCOUNT  =                    0",
        b"GCOUNT  =                    1",
    )
)


class TableFacts(NamedTuple):
    """Facts of a compressed image, from the header of its table."""

    axes: tuple[int, ...]
    """Shape of the image, in NumPy's order."""
    bitpix: int
    """BITPIX of the image."""
    codec: str
    """The tile compression, as it is spelt."""
    name: str
    """Name of the HDU, as astropy gives it."""
    has_name: bool
    """Whether the header of the image has an EXTNAME: it lacks that of astropy's own."""


def table_facts(cards: Cards) -> TableFacts:
    """Return the facts of the image that a table holds.

    Raises
    ------
    Unusual
        If astropy rejects it, or it is not an image for it.
    """
    for name in _EACH_FILE:
        if name in cards and cards.fact(name) is None:
            raise Unusual
    numbers = [number for number, name in enumerate(cards.names) if _is_how(name)]
    if b"CONTINUE" in cards:  # blank cards before it are verified, and it may be of one of these
        after = {cards.names[number + 1] for number in numbers if number + 1 < len(cards.names)}
        if b"CONTINUE" in after or b" " * 8 in cards:
            raise Unusual
    found = _asked(b"".join(map(cards.card, numbers)))
    if found is None:
        raise Unusual
    return found


@lru_cache
def is_of_table(key: str) -> bool:
    """Return whether a keyword says how an image is stored in a table."""
    return _OF_TABLE.fullmatch(key.strip().upper()) is not None


@lru_cache(maxsize=1 << 14)
def _is_how(name: bytes) -> bool:
    return _HOW.fullmatch(name) is not None


@lru_cache(maxsize=4096)
def _asked(cards: bytes) -> TableFacts | None:
    headers = (_PRIMARY + END, _TABLE + cards + END)
    content = b"".join(text.ljust(-(-len(text) // BLOCK) * BLOCK) for text in headers)
    try:
        with fits.open(io.BytesIO(content), do_not_scale_image_data=True) as hdus:
            hdu = hdus[1]
            if not isinstance(hdu, fits.CompImageHDU):
                return None
            header = hdu.header
            numbers = (*hdu.shape, header["BITPIX"])
            if any(type(number) is not int for number in numbers):
                return None
            codec = str(hdu.compression_type)
            return TableFacts(numbers[:-1], numbers[-1], codec, hdu.name, "EXTNAME" in header)
    except Exception:  # astropy raises many types; it will again, with the whole header
        return None
