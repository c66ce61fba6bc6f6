"""One HDU with square RICE_1 tiles: the table of an image, under the header that it had.

Cards that do not say how the pixels are stored are copied byte for byte, those that break the
standard too.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from astropy.io import fits
from numpy.typing import NDArray

from dali_pipelines.cli.prep.checksum import encoded, ones_sum

_CARD = 80
_BLOCK = 2880
_TABLE = re.compile(
    rb"XTENSION|BITPIX|NAXIS\d*|[PG]COUNT|TFIELDS|THEAP|ZIMAGE|ZCMPTYPE|ZBITPIX|ZNAXIS\d*|ZMASKCMP"
    rb"|Z(TILE|NAME|VAL)\d+|T(TYPE|FORM|UNIT|NULL|SCAL|ZERO|DISP|DIM)\d+"
)
"""Keywords that say how an image is stored in a table."""
_OF_OLD_TABLE = re.compile(rb"CHECKSUM|DATASUM|" + _TABLE.pattern)
_OF_OLD_IMAGE = re.compile(rb"BITPIX|NAXIS\d*")
"""Keywords that the new table has instead of those of an HDU."""
_OF_IMAGE = {
    b"SIMPLE": b"ZSIMPLE",
    b"XTENSION": b"ZTENSION",
    b"EXTEND": b"ZEXTEND",
    b"BLOCKED": b"ZBLOCKED",
    b"PCOUNT": b"ZPCOUNT",
    b"GCOUNT": b"ZGCOUNT",
    b"CHECKSUM": b"ZHECKSUM",
    b"DATASUM": b"ZDATASUM",
}
"""Keywords of a plain image, and their names in its table (FITS Standard 4.0, section 10.1.1)."""
_NOT_INHERITED = re.compile(
    rb"BITPIX|NAXIS\d*|BSCALE|BZERO|BLANK|INHERIT|COMMENT|HISTORY|(?:)|" + b"|".join(_OF_IMAGE)
)
"""Keywords of a primary header that are of its own data (FITS Standard 4.0, section 4.4.2.6)."""
_OF_FLOATS = {"ZSCALE", "ZZERO", "ZMASKCMP", "NULL_PIXEL_MASK"}
"""Columns and keywords of floats that are quantised tile by tile."""
_RESERVED = re.compile(
    _TABLE.pattern + b"|ZBLANK|ZQUANTIZ|ZDITHER0|ZSCALE|ZZERO|" + b"|".join(_OF_IMAGE.values())
)
"""Keywords that would get a meaning in a table."""


def reason_to_copy(header: Mapping[str, Any], edge: int) -> str | None:
    """Return why an HDU is copied as it is, empty if that needs no words; None to rewrite it.

    The header is the table's for a compressed image.
    """
    compressed = header.get("ZIMAGE") is True and header.get("XTENSION") == "BINTABLE"
    if not compressed and header.get("XTENSION", "IMAGE") != "IMAGE":
        return ""  # a table
    letter = "Z" if compressed else ""
    axes = [header[f"{letter}NAXIS{n + 1}"] for n in range(header[f"{letter}NAXIS"])]
    if not axes or 0 in axes:
        return ""  # no pixels
    if len(axes) == 1:
        return "it has one axis"
    if len(axes) > 3:
        return "it has more than three axes, which CFITSIO cannot read in tiles"
    columns = {header.get(f"TTYPE{n + 1}") for n in range(header.get("TFIELDS", 0))}
    if compressed and _OF_FLOATS & {*columns, *header}:
        return "its floats are quantised tile by tile, and would be quantised once more"
    bitpix = header[f"{letter}BITPIX"]
    if bitpix < 0:
        return f"RICE_1 would quantise its pixels, which are float{-bitpix}"
    if bitpix == 64:
        return "RICE_1 has no integers of 64 bits"
    own = {key.encode() for key in header} - _OF_IMAGE.keys()
    if not compressed and any(
        _RESERVED.fullmatch(key) and not _OF_OLD_IMAGE.fullmatch(key) for key in own
    ):
        return "its header has keywords of a table"
    if not compressed and not header.get("BSCALE", 1):
        return "its BSCALE is 0, which astropy ignores in tables"
    blank = header.get("ZBLANK", header.get("BLANK"))
    if blank is not None and not _is_stored_as(blank, bitpix):
        return f"its BLANK is not an integer that BITPIX {bitpix} can store"
    tiles = tuple(header.get(f"ZTILE{n + 1}") for n in range(len(axes)))
    done = header.get("ZCMPTYPE") == "RICE_1" and tiles == _tile_shape(axes[::-1], edge)[::-1]
    return "" if done else None


def _is_stored_as(blank: object, bitpix: int) -> bool:
    """Return whether pixels can have this value; astropy reads no tables with another."""
    limits = np.iinfo(np.uint8 if bitpix == 8 else f"i{bitpix // 8}")
    return isinstance(blank, int) and limits.min <= blank <= limits.max


def tiled_hdu(text: bytes, stored: NDArray[Any], edge: int) -> bytes:
    """Return the bytes of an HDU, with CHECKSUM and DATASUM.

    Parameters
    ----------
    text : bytes
        Header of the HDU as it was, of a table or of a plain image.
    stored : ndarray, shape (..., height, width)
        Integers as they are stored: BSCALE, BZERO and BLANK are in the header.
    edge : int
        Height and width of the tiles, in pixels; each plane has its own.
    """
    table, data = _table(stored, edge)
    cards = [card for card in table if _TABLE.fullmatch(_keyword(card))]
    cards += _kept(text)
    return with_sums(b"".join(cards), data)


def inherited_cards(text: bytes) -> list[bytes]:
    """Return the cards of a primary header that extensions inherit."""
    return list(_without(text, _NOT_INHERITED))


def with_sums(cards: bytes, data: bytes = b"") -> bytes:
    """Return the bytes of an HDU with these cards, and DATASUM and CHECKSUM after them."""
    total = ones_sum(data)
    sums = [
        f"CHECKSUM= '{'0' * 16}'   / HDU checksum",
        f"DATASUM = '{total:<10}'         / data unit checksum",
        "END",
    ]
    text = cards + b"".join(card.ljust(_CARD).encode() for card in sums)
    text = text.ljust(-(-len(text) // _BLOCK) * _BLOCK)
    at = len(cards) + 11
    own = encoded(_added(ones_sum(text), total)).encode()
    return text[:at] + own + text[at + 16 :] + data


def _added(first: int, second: int) -> int:
    total = first + second
    return (total >> 32) + (total & 0xFFFFFFFF)


def _table(stored: NDArray[Any], edge: int) -> tuple[list[bytes], bytes]:
    """Return the cards of a new table that holds the integers, and its data, whole blocks."""
    file = io.BytesIO()
    shape = _tile_shape(stored.shape, edge)
    image = fits.CompImageHDU(stored, compression_type="RICE_1", tile_shape=shape)
    fits.HDUList([fits.PrimaryHDU(), image]).writeto(file)
    content = file.getvalue()
    with fits.open(io.BytesIO(content), disable_image_compression=True) as hdus:
        place = hdus[1].fileinfo()
    start, stop = place["datLoc"], place["datLoc"] + place["datSpan"]
    return list(_cards(content[place["hdrLoc"] : start])), content[start:stop]


def _tile_shape(shape: tuple[int, ...] | list[int], edge: int) -> tuple[int, ...]:
    return *(1 for _ in shape[:-2]), *(min(edge, length) for length in shape[-2:])


def _kept(text: bytes) -> Iterator[bytes]:
    """Yield the cards of a header that a new table has as well."""
    is_table = text.startswith(b"XTENSION= 'BINTABLE'")
    for card in _without(text, _OF_OLD_TABLE if is_table else _OF_OLD_IMAGE):
        keyword = _keyword(card)
        of_table = keyword if is_table else _OF_IMAGE.get(keyword, keyword)
        yield of_table.ljust(8) + card[8:]


def _without(text: bytes, keywords: re.Pattern[bytes]) -> Iterator[bytes]:
    """Yield the cards of a header up to END, but those of some keywords."""
    left_out = False
    for card in _cards(text):
        keyword = _keyword(card)
        if keyword != b"CONTINUE":
            left_out = bool(keywords.fullmatch(keyword))
        if keyword == b"END":
            return
        if not left_out:
            yield card


def _cards(text: bytes) -> Iterator[bytes]:
    for at in range(0, len(text), _CARD):
        yield text[at : at + _CARD]


def _keyword(card: bytes) -> bytes:
    return card[:8].rstrip()
