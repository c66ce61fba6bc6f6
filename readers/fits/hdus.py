"""Positions of the HDUs of a file, found from their headers and kept for the latest files.

To reach an HDU astropy parses all headers before it. Here each header is read once, and only for
the few cards that give the length of its data. Anything unusual is left to astropy.
"""

from __future__ import annotations

import itertools
import math
import re
import sys
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from astropy.io import fits
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

MOST_BLOCKS = 2048
"""Blocks of the longest header that is read: 73,728 cards."""
_READ = 8 * BLOCK
"""Bytes to read for a header at first; more only if they do not hold all of it."""
_MOST_AHEAD = 1 << 20
"""Bytes to read at once of headers that follow each other closely."""
_ODD_END = re.compile(rb"(?s)(?:.{80})*?END[^A-Z0-9_-]")
"""An END card with other bytes behind it, which astropy takes, too."""
_KINDS = {
    b"SIMPLE  =" + b"T".rjust(21): "PRIMARY",
    b"XTENSION= 'IMAGE   '": "IMAGE",
    b"XTENSION= 'TABLE   '": "TABLE",
    b"XTENSION= 'BINTABLE'": "BINTABLE",
}
_KNOWN_FILES = 256
_MOST_HDUS = 1 << 19
"""Headers that are read before all known HDUs are forgotten; each takes some 300 bytes."""


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

    @property
    def names(self) -> tuple[str, int]:
        """EXTNAME and EXTVER."""
        return self.name, self.version


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


class _Layout:
    """The known HDUs of a file, from the first on. Several threads may add the same one."""

    def __init__(self) -> None:
        self.hdus: dict[int, HduExtent] = {}
        self._numbers: dict[HduName | None, int] = {}

    def number(self, wanted: HduName | None) -> int | None:
        """Return the number of an HDU as `is_wanted` finds it; None if it is not known yet."""
        if isinstance(wanted, int):
            return wanted if wanted in self.hdus else None
        if isinstance(wanted, str):
            return self._numbers.get(_name(wanted))
        return self._numbers.get(wanted and (_name(wanted[0]), wanted[1]))

    def add(self, number: int, hdu: HduExtent) -> None:
        """Add the next HDU."""
        for name in {hdu.name, hdu.name if number else "PRIMARY"}:
            self._numbers.setdefault(name, number)
            self._numbers.setdefault((name, hdu.version), number)
        if hdu.image:
            self._numbers.setdefault(None, number)
        self.hdus[number] = hdu  # when its names are known


def find_header(place: Place, stamp: Hashable | None, wanted: HduName | None) -> ImageHeader | None:
    """Read the header of an image; what is found of a file that has a stamp is kept.

    Return None if there is no such image, a header before it is unusual, or the file is truncated:
    astropy then reads it, or raises the error.
    """
    headers = HeaderReader(place)
    found = _find(headers, _layout(stamp), wanted)
    if found is None or not found[1].image:
        return None
    number, hdu, text = found
    text = text or headers.read(hdu.start)
    return ImageHeader.of(number, text, hdu.data, hdu.stop, hdu.names) if text else None


def find_hdu(headers: HeaderReader, stamp: Hashable | None, number: int) -> HduExtent | None:
    """Return where an HDU is; None where `find_header` returns it."""
    found = _find(headers, _layout(stamp), number)
    return None if found is None else found[1]


def find_names(place: Place, stamp: Hashable | None) -> list[tuple[str, int]] | None:
    """Return EXTNAME, in capitals, and EXTVER of all HDUs; None if astropy must read them."""
    layout = _layout(stamp)
    _find(HeaderReader(place), layout, sys.maxsize)
    known = [layout.hdus[number] for number in range(len(layout.hdus))]
    return [hdu.names for hdu in known] if known and known[-1].end >= place.nbytes else None


def _layout(stamp: Hashable | None) -> _Layout:
    return _Layout() if stamp is None else _known_hdus(stamp)


def _find(
    headers: HeaderReader, layout: _Layout, wanted: HduName | None
) -> tuple[int, HduExtent, bytes] | None:
    """Return the number of an HDU, its extent, and its header, if that was read now."""
    count, text = -1, b""
    while (number := layout.number(wanted)) is None:
        count = len(layout.hdus)
        found = headers.hdu(layout.hdus[count - 1].end if count else 0, count)
        if found is None:
            return None
        text = found[1].text
        layout.add(count, found[0])
        if next(_headers) % _MOST_HDUS == 0:
            _known_hdus.cache_clear()
    hdu = layout.hdus[number]
    # Others have a known one behind them.
    if number == len(layout.hdus) - 1 and not headers.goes_on(hdu):
        return None
    # Another thread may have added the wanted one since.
    return number, hdu, text if count == number else b""


def _name(name: str) -> str:
    return name.strip().upper()


def is_wanted(hdu: HduExtent, number: int, wanted: HduName | None) -> bool:
    """Return whether this is the wanted HDU, by astropy's rules for names."""
    if wanted is None:
        return hdu.image
    if isinstance(wanted, int):
        return number == wanted
    name, version = (wanted, hdu.version) if isinstance(wanted, str) else wanted
    name = _name(name)
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
        sys.intern(_name(name)) if isinstance(name, str) else "PRIMARY" if number == 0 else "",
        version if isinstance(version, int) else 1,
    )


def unusual_hdu(text: bytes, start: int, number: int) -> HduExtent:
    """Describe an HDU whose header only astropy can parse; ValueError if its size is not known."""
    header = fits.Header.fromstring(text)
    kind = str(header.get("XTENSION", "PRIMARY")).strip()
    is_groups = number == 0 and header.get("GROUPS") is True
    try:
        axes = [int(header[f"NAXIS{axis}"]) for axis in range(1, min(header["NAXIS"], 999) + 1)]
        pixels = math.prod(axes[is_groups:]) if axes else 0
        values = header.get("GCOUNT", 1) * (header.get("PCOUNT", 0) + pixels) if axes else 0
        nbytes = abs(header["BITPIX"]) * values // 8
    except (KeyError, TypeError):
        nbytes = -1
    if nbytes < 0:
        raise ValueError(f"the header of HDU {number} does not give the size of its data")
    is_image = kind in ("PRIMARY", "IMAGE") and len(axes) > 0 and not is_groups
    return HduExtent(
        start,
        start + len(text),
        start + len(text) + nbytes,
        is_image or (kind == "BINTABLE" and header.get("ZIMAGE") is True),
        str(header.get("EXTNAME", "" if number else "PRIMARY")).strip().upper(),
        header.get("EXTVER", 1),
    )


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
        self._ahead = _READ

    def hdu(self, start: int, number: int) -> tuple[HduExtent, Cards] | None:
        """Return an HDU and its header; None if it is unusual. `goes_on` says if all is there."""
        if not (text := self.read(start)):
            return None
        cards = Cards(text)
        if (found := hdu_of(cards, start, number)) is None:
            return None
        is_near = found.end - start <= 2 * self._ahead
        self._ahead = min(2 * self._ahead, _MOST_AHEAD) if is_near else _READ
        return found, cards

    def goes_on(self, hdu: HduExtent) -> bool:
        """Return whether all data of an HDU are there, and the file ends or another one follows."""
        if hdu.end >= self._place.nbytes:  # the last block may be cut short
            return hdu.stop <= max(hdu.data, self._place.nbytes)
        return self._place.read(hdu.end, hdu.end + 8) == b"XTENSION"

    def read(self, start: int) -> bytes:
        """Return a header; empty if its END is missing where the file ends, or odd.

        Raises
        ------
        ValueError
            If it has no END in `MOST_BLOCKS`: astropy would read all of the file.
        """
        nbytes = 0  # what was read before may hold it
        while True:
            begin = start - self._at
            if begin >= 0 and (end := header_end(self._content, begin)):
                return self._content[begin:end].ljust(-(-(end - begin) // BLOCK) * BLOCK)
            if nbytes and (len(self._content) < nbytes or _ODD_END.match(self._content)):
                return b""
            if nbytes == MOST_BLOCKS * BLOCK:
                raise ValueError(
                    f"the header at byte {start} has no END card in {MOST_BLOCKS} blocks: it is "
                    "damaged, copy the file again"
                )
            nbytes = min(4 * nbytes, MOST_BLOCKS * BLOCK) or self._ahead
            self._at, self._content = start, self._place.read(start, start + nbytes)


@lru_cache(maxsize=_KNOWN_FILES)
def _known_hdus(stamp: Hashable) -> _Layout:
    """Return the known HDUs of a file, to add to."""
    del stamp
    return _Layout()


_headers = itertools.count(1)
"""Counts the headers that are read."""
