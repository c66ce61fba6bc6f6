"""Positions of the HDUs of a file, found from their headers and cached for the latest files.

To reach an HDU astropy parses all headers before it. Here each header is read once, and only for
the few cards that give the length of its data. Anything unusual is left to astropy.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from astropy.io.fits import VerifyError

from readers.fits.facts.cards import Cards
from readers.fits.headers import (
    BLOCK,
    ImageHeader,
    header_end,
    integer,
    is_printable,
    parsed,
)
from readers.places.contract import Place
from readers.values import is_integer

HduName = int | str | tuple[str, int]
"""An HDU, as astropy names it: its number (0 for the primary), EXTNAME, or (EXTNAME, EXTVER)."""

_HEADER_READS = (8 * BLOCK, 32 * BLOCK)
"""Bytes to read for a header: the second only if the first do not hold all of it."""
_KINDS = {
    b"SIMPLE  =" + b"T".rjust(21): "PRIMARY",
    b"XTENSION= 'IMAGE   '": "IMAGE",
    b"XTENSION= 'TABLE   '": "TABLE",
    b"XTENSION= 'BINTABLE'": "BINTABLE",
}
_KNOWN_FILES = 256
_KNOWN_HDUS = 512
"""HDUs of a file that are cached; each takes some 500 bytes of memory."""


class HduExtent(NamedTuple):
    """Position and kind of an HDU."""

    start: int
    """First byte of its header in the file."""
    data: int
    """First byte of its data."""
    stop: int
    """End of its data."""
    image: bool
    """Whether it holds an image."""
    name: str
    """EXTNAME, in capitals."""
    version: int
    """EXTVER."""

    @property
    def end(self) -> int:
        """End of its last block."""
        return -(-self.stop // BLOCK) * BLOCK


def checked(hdu: Any) -> HduName | None:
    """Return an HDU given by the user, NumPy integers converted to Python's.

    Raises
    ------
    ValueError
        If it does not name an HDU.
    """
    if hdu is None or isinstance(hdu, str):
        return hdu
    if is_integer(hdu, 0):
        return int(hdu)
    match hdu:
        case (str() as name, version) if is_integer(version):
            return name, int(version)
    raise ValueError(f"hdu must be 0 or more, an EXTNAME, or (EXTNAME, EXTVER), got {hdu!r}")


def find_header(place: Place, stamp: Hashable | None, wanted: HduName | None) -> ImageHeader | None:
    """Read the header of an image; what is found of a file that has a stamp is kept.

    Return None if there is no such image, a header before it is unusual, or the file is truncated:
    astropy then reads it, or raises the error.
    """
    known = {} if stamp is None else _known_hdus(stamp)
    headers = HeaderReader(place)
    for number in range(_KNOWN_HDUS):
        if number not in known:
            found = headers.hdu(known[number - 1].end if number else 0, number)
            if found is None:
                return None
            known[number] = found[0]
        hdu = known[number]
        if is_wanted(hdu, number, wanted):
            text = headers.read(hdu.start, hdu.data - hdu.start)
            if not hdu.image or not text:
                return None
            return ImageHeader.of(number, text, hdu.data, hdu.stop)
    return None


def is_wanted(hdu: HduExtent, number: int, wanted: HduName | None) -> bool:
    """Return whether this is the wanted HDU, by astropy's rules for names."""
    if wanted is None:
        return hdu.image
    if isinstance(wanted, int):
        return number == wanted
    name, version = (wanted, hdu.version) if isinstance(wanted, str) else wanted
    name = name.strip().upper()
    return version == hdu.version and (name == hdu.name or (name == "PRIMARY" and number == 0))


def no_such_hdu(wanted: HduName | None, names: Sequence[str], after: str = "") -> ValueError:
    """Return the error for an HDU that is missing among HDUs of these names.

    `after` says what else follows them in the file.
    """
    if wanted is None:
        return ValueError(f"no HDU holds an image{after}")
    if isinstance(wanted, int):
        count = f"{len(names)} HDU{'s' * (len(names) != 1)}, counted from 0"
        return ValueError(f"there is no HDU {wanted}, the file has {count}{after}")
    known = ", ".join(name or str(number) for number, name in enumerate(names))
    return ValueError(f"there is no HDU {wanted!r}, the file has {known}{after}")


def hdu_of(cards: Cards, start: int, number: int) -> HduExtent | None:
    """Describe an HDU from its header, which begins at byte `start`; None if it is unusual."""
    text = cards.text
    kind = _KINDS.get(text[:20] if number else text[:30], "")
    nbytes = _data_bytes(cards, kind)
    if nbytes is None or (kind == "PRIMARY") != (number == 0):
        return None
    if cards.continues(b"EXTNAME ") or not is_printable(text) or cards.has_lower_case:
        return None
    # A damaged END card merges two headers, and the data begin elsewhere.
    if any(map(cards.repeats, cards.names[: (5 if number else 3) + _axes(text)])):
        return None
    try:
        compressed = kind == "BINTABLE" and _value(cards, b"ZIMAGE  ") is True
        name, version = _value(cards, b"EXTNAME "), _value(cards, b"EXTVER  ")
    except VerifyError:
        return None
    image = compressed or (kind in ("PRIMARY", "IMAGE") and _axes(text) > 0)
    data = start + len(text)
    return HduExtent(
        start,
        data,
        data + nbytes,
        image,
        name.strip().upper() if isinstance(name, str) else "PRIMARY" if number == 0 else "",
        version if isinstance(version, int) else 1,
    )


def _goes_on(place: Place, end: int) -> bool:
    """Return whether at `end` the file ends or another HDU begins."""
    return end == place.nbytes or place.read(end, end + 8) == b"XTENSION"


def _data_bytes(cards: Cards, kind: str) -> int | None:
    """Return the bytes of data; None if mandatory cards are unusual (FITS Standard 4.0, 4.4.1)."""
    text = cards.text
    bitpix, naxis = integer(text, 1, "BITPIX"), integer(text, 2, "NAXIS")
    if not kind or bitpix not in (8, 16, 32, 64, -32, -64) or naxis is None or not 0 <= naxis < 999:
        return None
    lengths = [integer(text, 3 + n, f"NAXIS{n + 1}") for n in range(naxis)]
    axes = [length for length in lengths if length is not None and length >= 0]
    if len(axes) < naxis:
        return None
    if kind == "PRIMARY":
        odd = any(name in cards for name in (b"GROUPS  ", b"PCOUNT  ", b"GCOUNT  "))
        counts: list[int | None] = [0, None if odd else 1]
    else:
        if text[20:31].strip(b" /"):
            return None
        counts = [integer(text, 3 + naxis + n, f"{w}COUNT") for n, w in enumerate("PG")]
    pcount, gcount = counts
    if gcount != 1 or pcount is None or pcount < 0:
        return None
    if kind == "BINTABLE":
        columns = integer(text, 5 + naxis, "TFIELDS")
        if (bitpix, naxis) != (8, 2) or columns is None or not 0 <= columns < 1000:
            return None
    elif pcount:
        return None
    return abs(bitpix) // 8 * (math.prod(axes) + pcount) if naxis else 0


def _axes(text: bytes) -> int:
    return integer(text, 2, "NAXIS") or 0


def _value(cards: Cards, name: bytes) -> object:
    card = cards.first(name)
    return None if card is None or card[8:9] != b"=" else parsed(card)[1]


class HeaderReader:
    """Reads headers of a file; those that lie close together in one go."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._at, self._content = 0, b""

    def hdu(self, start: int, number: int) -> tuple[HduExtent, Cards] | None:
        """Return an HDU and its header; None if it is unusual, or the file is truncated."""
        if not (text := self.read(start, *_HEADER_READS)):
            return None
        cards = Cards(text)
        found = hdu_of(cards, start, number)
        return (found, cards) if found is not None and _goes_on(self._place, found.end) else None

    def read(self, start: int, *reads: int) -> bytes:
        """Return a header, after reads of so many bytes if needed; empty if END is beyond them."""
        for nbytes in (0, *reads):
            if nbytes:
                self._at, self._content = start, self._place.read(start, start + nbytes)
            begin = start - self._at
            if 0 <= begin < len(self._content) and (end := header_end(self._content, begin)):
                return self._content[begin:end]
        return b""


@lru_cache(maxsize=_KNOWN_FILES)
def _known_hdus(stamp: Hashable) -> dict[int, HduExtent]:
    """Return the known HDUs of a file by number, a dict to add to."""
    del stamp
    return {}
