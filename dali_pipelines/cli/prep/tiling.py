"""Copies of FITS files with square RICE_1 tiles, so that a window needs fewer bytes.

Images become tables and keep their headers: cards that do not describe how pixels are stored are
copied byte for byte, even if they break the standard. CHECKSUM and DATASUM are computed here from
the bytes of the file: astropy would correct such cards first, and compute sums of other bytes.
"""

from __future__ import annotations

import gzip
import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np
from astropy.io import fits
from numpy.typing import NDArray

from readers.errors import ReadError
from readers.fits.file import FitsFile, read_errors
from readers.fits.gunzip import MAGIC
from readers.fits.hdus import check_data
from readers.fits.image import find_image
from readers.places.local import LocalPlace

if TYPE_CHECKING:
    from readers.contract import Row

_EMPTY = (
    "SIMPLE  =                    T / conforms to FITS standard",
    "BITPIX  =                    8 / array data type",
    "NAXIS   =                    0 / number of array dimensions",
    "EXTEND  =                    T",
)
"""Header of the empty HDU that comes before an image that was in HDU 0."""
_PIECE = 16 << 20
"""Number of bytes to read or sum at once, a multiple of 4; the sum fits into 64 bits."""

_CARD = 80
_BLOCK = 2880
_TABLE = re.compile(
    rb"XTENSION|BITPIX|NAXIS\d*|[PG]COUNT|TFIELDS|THEAP|ZIMAGE|ZCMPTYPE|ZBITPIX|ZNAXIS\d*|ZMASKCMP"
    rb"|Z(TILE|NAME|VAL)\d+|T(TYPE|FORM|UNIT|NULL|SCAL|ZERO|DISP|DIM)\d+"
)
"""Keywords that describe how an image is stored in a table."""
_OF_OLD_TABLE = re.compile(rb"CHECKSUM|DATASUM|" + _TABLE.pattern)
_OF_OLD_IMAGE = re.compile(rb"BITPIX|NAXIS\d*")
"""Keywords of an HDU that the new table replaces."""
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
"""Keywords of a primary header that describe its own data (FITS Standard 4.0, 4.4.2.6)."""
_OF_FLOATS = {"ZSCALE", "ZZERO", "ZMASKCMP", "NULL_PIXEL_MASK"}
"""Columns and keywords of quantised floats."""
_RESERVED = re.compile(
    _TABLE.pattern + b"|ZBLANK|ZQUANTIZ|ZDITHER0|ZSCALE|ZZERO|" + b"|".join(_OF_IMAGE.values())
)
"""Keywords with a special meaning in a table."""

_ALL_ONES = 0xFFFFFFFF
_PUNCTUATION = frozenset(b":;<=>?@[\\]^_`")


class _Part(NamedTuple):
    """An HDU of the file that is copied."""

    number: int
    start: int
    """First byte of its header."""
    data: int
    """First byte of its data."""
    stop: int
    """End of its last block."""
    shape: tuple[int, ...]
    """Shape of its image; used only if the HDU is rewritten."""
    copied: str | None
    """Reason why it is copied unchanged, see `reason_to_copy`; None if it is rewritten."""
    inherits: bool
    """Whether it inherits keywords of the primary header (INHERIT = T)."""
    datasum: str | None
    """DATASUM of its header; None if it is missing or undefined (FITS Standard 4.0, 4.4.2.7)."""
    checksum: bool
    """Whether its header has a defined CHECKSUM."""


@dataclass(frozen=True)
class Tiling:
    """Lossless copies of files: images of integers get RICE_1 tiles of `edge` x `edge` pixels."""

    edge: int

    def settings(self) -> dict[str, Any]:
        """Return the settings that determine the files, for JSON."""
        return {"tiles": self.edge}

    def write(self, row: Row, path: str) -> str:
        """Write the copy of a file, with all its HDUs.

        Headers keep all cards that do not describe how pixels are stored. Floats and tables are
        copied byte for byte. An image in HDU 0 moves to HDU 1, since a table cannot be the first.
        The new HDU 0 gets a copy of its keywords if other HDUs inherit them.

        Returns
        -------
        str
            The images that are copied unchanged, with reasons; empty if there are none.

        Raises
        ------
        ReadError
            If the file cannot be read, if CHECKSUM or DATASUM of an HDU do not match its bytes, or
            if the copy has other pixels.
        """
        with _unpacked(row, f"{path}.unpacked") as source, open(path, "wb") as copy:
            with read_errors(row.path, None, row.number):
                parts = _parts(source, self.edge)
            added = int(parts[0].copied is None)
            if added:
                copy.write(self._first_hdu(source, parts))
            for part in parts:
                self._write_hdu(row, source, part, copy, part.number + added)
        return "; ".join(f"HDU {part.number}: {part.copied}" for part in parts if part.copied)

    def _first_hdu(self, source: str, parts: Sequence[_Part]) -> bytes:
        """Return the empty HDU that comes before an image that was in HDU 0."""
        cards = [card.ljust(80).encode() for card in _EMPTY]
        if any(part.inherits for part in parts):
            with open(source, "rb") as file:
                cards += inherited_cards(file.read(parts[0].data))
        return with_sums(b"".join(cards))

    def _write_hdu(self, row: Row, source: str, part: _Part, copy: BinaryIO, number: int) -> None:
        """Write an HDU with this number, and compare its pixels with the source."""
        with read_errors(row.path, part.number, row.number):
            content = _checked_bytes(source, part)
            if part.copied is None:
                stored = _stored_pixels(source, part.number).reshape(part.shape)
                header = bytes(content[: part.data - part.start])
                content = memoryview(tiled_hdu(header, stored, self.edge))
        copy.write(content)
        copy.flush()
        if part.copied is None:
            with read_errors(row.path, part.number, row.number):
                found = _stored_pixels(copy.name, number).reshape(part.shape)
            same_type = np.can_cast(found.dtype, stored.dtype, "equiv")
            if not same_type or not np.array_equal(found, stored):
                reason = "astropy reads other pixels from the copy, so the copy is dropped"
                raise ReadError(row.path, reason, hdu=part.number, row=row.number)


@contextmanager
def _unpacked(row: Row, path: str) -> Iterator[str]:
    """Yield the path of a plain FITS file; a gzipped one is unpacked to `path` meanwhile."""
    with read_errors(row.path, None, row.number), LocalPlace(row.path) as place:
        is_packed = place.read(0, len(MAGIC)) == MAGIC
    if not is_packed:
        yield row.path
        return
    with gzip.open(row.path) as packed, open(path, "wb") as plain:
        while True:
            with read_errors(row.path, None, row.number):
                piece = packed.read(_PIECE)
            if not piece:
                break
            plain.write(piece)
    yield path
    os.unlink(path)


def _parts(path: str, edge: int) -> list[_Part]:
    parts = []
    with (
        FitsFile.at(LocalPlace(path), None) as file,
        file.by_astropy(disable_image_compression=True) as opened,
    ):
        for number, hdu in enumerate(opened[0]):
            check_data(hdu, number, file.place)
            header, place = hdu.header, hdu.fileinfo()
            copied = reason_to_copy(header, edge)
            shape: tuple[int, ...] = ()
            if copied is None:
                letter = "Z" if "ZIMAGE" in header else ""
                axes = range(header[f"{letter}NAXIS"], 0, -1)
                shape = tuple(header[f"{letter}NAXIS{axis}"] for axis in axes)
            parts.append(
                _Part(
                    number,
                    place["hdrLoc"],
                    place["datLoc"],
                    place["datLoc"] + place["datSpan"],
                    shape,
                    copied,
                    header.get("INHERIT") is True,
                    str(header.get("DATASUM", "")).strip() or None,
                    bool(str(header.get("CHECKSUM", "")).strip(" 0")),
                )
            )
    return parts


def _checked_bytes(path: str, part: _Part) -> memoryview:
    """Return the bytes of an HDU after checking them against the checksums in its header."""
    end = min(part.stop, os.path.getsize(path))
    content = np.memmap(path, np.uint8, "r", part.start, end - part.start).data
    if end < part.stop:  # of the last HDU
        is_text = bytes(content[:20]) == b"XTENSION= 'TABLE   '"
        content = memoryview(
            bytes(content).ljust(part.stop - part.start, b" " if is_text else b"\0")
        )
    if part.datasum is not None:
        found = ones_sum(content[part.data - part.start :])
        if part.datasum.lstrip("0") != str(found).lstrip("0"):
            raise ValueError(f"its DATASUM is {part.datasum}, but that of its data is {found}")
    if part.checksum and not is_sound(content):
        raise ValueError("its bytes do not match its CHECKSUM")
    return content


def _stored_pixels(path: str, number: int) -> NDArray[np.generic]:
    """Return the integers of an image as they are stored, shape (planes, height, width)."""
    with FitsFile.at(LocalPlace(path), number) as file:
        found = find_image(file)
        return found.pixels(file, None, list(range(found.shape.planes)), scaled=False)


# ---- An HDU ------------------------------------------------------------------------------------


def reason_to_copy(header: Mapping[str, Any], edge: int) -> str | None:
    """Return why an HDU is copied unchanged ("" if obvious), or None if it is rewritten.

    The header of a compressed image is that of its table.
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
        return "its floats are quantised tile by tile, and would be quantised again"
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
    """Return whether pixels can have the value `blank`.

    astropy cannot read tables whose BLANK is another value.
    """
    limits = np.iinfo(np.uint8 if bitpix == 8 else f"i{bitpix // 8}")
    return isinstance(blank, int) and limits.min <= blank <= limits.max


def tiled_hdu(text: bytes, stored: NDArray[Any], edge: int) -> bytes:
    """Return the bytes of an HDU, with CHECKSUM and DATASUM.

    Parameters
    ----------
    text : bytes
        Original header of the HDU, a table or a plain image.
    stored : ndarray, shape (..., height, width)
        Stored integers; BSCALE, BZERO and BLANK are in the header.
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
    """Return the cards and the data (whole blocks) of a new table with these integers."""
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
    """Yield the cards of a header that a new table keeps."""
    is_table = text.startswith(b"XTENSION= 'BINTABLE'")
    for card in _without(text, _OF_OLD_TABLE if is_table else _OF_OLD_IMAGE):
        keyword = _keyword(card)
        of_table = keyword if is_table else _OF_IMAGE.get(keyword, keyword)
        yield of_table.ljust(8) + card[8:]


def _without(text: bytes, keywords: re.Pattern[bytes]) -> Iterator[bytes]:
    """Yield the cards of a header up to END, except some keywords."""
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


# ---- Sums --------------------------------------------------------------------------------------


def ones_sum(data: bytes | memoryview) -> int:
    """Return the 32-bit ones' complement sum of whole blocks (FITS Standard 4.0, appendix J)."""
    total = 0
    for at in range(0, len(data), _PIECE):
        total += int(np.frombuffer(data[at : at + _PIECE], ">u4").sum(dtype=np.uint64))
    while total > _ALL_ONES:
        total = (total >> 32) + (total & _ALL_ONES)
    return total


def is_sound(data: bytes | memoryview) -> bool:
    """Return whether the bytes of a whole HDU match the CHECKSUM in its header."""
    return ones_sum(data) in (0, _ALL_ONES)


def encoded(total: int) -> str:
    """Return the 16 characters of CHECKSUM that turn `total`, the sum of an HDU, into all ones."""
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
