"""Where the HDUs of a file lie: found by their headers, and remembered for the last files.

To reach an HDU astropy parses all headers before it. Here each is looked at once, for the few cards
that say how long its data are. What is the least bit unusual is left to astropy.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Sequence
from functools import lru_cache
from numbers import Integral
from typing import Any, NamedTuple

from readers.fits.headers import (
    BLOCK,
    ONCE,
    ImageHeader,
    card_of,
    header_end,
    integer,
    is_plain_text,
    parsed,
)

HduName = int | str | tuple[str, int]
"""An HDU, as astropy names it: by its number, 0 for the primary, its EXTNAME, or EXTNAME and
EXTVER."""

_HEADS = (8 * BLOCK, 32 * BLOCK)
"""Bytes that are read of a header: most need no more than the first."""
_KINDS = {
    b"SIMPLE  =" + b"T".rjust(21): "PRIMARY",
    b"XTENSION= 'IMAGE   '": "IMAGE",
    b"XTENSION= 'TABLE   '": "TABLE",
    b"XTENSION= 'BINTABLE'": "BINTABLE",
}
_LONG_NAME = re.compile(rb"EXTNAME =.{71}CONTINUE")
_KNOWN_FILES = 256
_KNOWN_HDUS = 512
"""HDUs of a file that are looked at here: an HDU takes some 500 bytes of memory."""
_SETTLED_NS = 2_000_000_000
"""A file that was written to more recently may be written to again at what its file system takes
for the same time."""


class Hdu(NamedTuple):
    """Where an HDU lies, and what it is."""

    start: int
    """Of its header, in bytes from the start of the file."""
    data: int
    """Of its data."""
    stop: int
    """Behind its data."""
    image: bool
    """Whether it holds an image."""
    name: str
    """EXTNAME, in capitals."""
    version: int
    """EXTVER."""

    @property
    def end(self) -> int:
        """Behind its last block."""
        return -(-self.stop // BLOCK) * BLOCK


def checked(hdu: Any) -> HduName | None:
    """Return the HDU that a user asks for; its numbers may be NumPy's.

    Raises
    ------
    ValueError
        If it is no name of an HDU.
    """
    if hdu is None or isinstance(hdu, str):
        return hdu
    if isinstance(hdu, Integral) and not isinstance(hdu, bool) and int(hdu) >= 0:
        return int(hdu)
    match hdu:
        case (str() as name, Integral() as version):
            return name, int(version)
    raise ValueError(f"hdu must be 0 or more, an EXTNAME, or (EXTNAME, EXTVER), got {hdu!r}")


def find_header(file: int, path: str, wanted: HduName | None) -> ImageHeader | None:
    """Read the header of an image.

    Parameters
    ----------
    file : int
        Descriptor of the open file.
    path : str
        Of the file, by which it is remembered.
    wanted : int, str, (str, int) or None
        HDU that is asked for; None for the first that holds an image.

    Returns
    -------
    ImageHeader or None
        None if there is no such image, a header before it is unusual, or the file ends before its
        data: let astropy look, and complain.
    """
    status = os.fstat(file)
    known = _known_hdus(path, status)
    head = _Head(file)
    for number in range(_KNOWN_HDUS):
        if number not in known:
            at = known[number - 1].end if number else 0
            text = head.header(at)
            found = hdu_of(text, at, number) if text else None
            if found is None or not _goes_on(file, found.end, status.st_size):
                return None
            known[number] = found
        hdu = known[number]
        if is_wanted(hdu, number, wanted):
            text = head.header(hdu.start, hdu.data - hdu.start)
            if not hdu.image or not text:
                return None
            return ImageHeader.of(number, text, hdu.data, hdu.stop)
    return None


def is_wanted(hdu: Hdu, number: int, wanted: HduName | None) -> bool:
    """Tell whether this is the HDU that is asked for, as astropy understands names."""
    if wanted is None:
        return hdu.image
    if isinstance(wanted, int):
        return number == wanted
    name, version = (wanted, hdu.version) if isinstance(wanted, str) else wanted
    name = name.strip().upper()
    return version == hdu.version and (name == hdu.name or (name == "PRIMARY" and number == 0))


def no_such_hdu(wanted: HduName | None, names: Sequence[str]) -> ValueError:
    """Make the error for an HDU that a file with HDUs of these names has not."""
    if wanted is None:
        return ValueError("no HDU holds an image")
    if isinstance(wanted, int):
        return ValueError(f"there is no HDU {wanted}, the file has {len(names)}")
    known = ", ".join(name or str(number) for number, name in enumerate(names))
    return ValueError(f"there is no HDU {wanted!r}, the file has {known}")


def hdu_of(text: bytes, start: int, number: int) -> Hdu | None:
    """Describe an HDU by its header, or return None if that is unusual.

    Parameters
    ----------
    text : bytes
        The header, in whole blocks.
    start : int
        Of the header, in bytes from the start of the file.
    number : int
        Of the HDU.
    """
    kind = _KINDS.get(text[:20] if number else text[:30], "")
    size = _data_size(text, kind)
    if size is None or (kind == "PRIMARY") != (number == 0):
        return None
    once = ONCE.findall(text)
    # After a damaged END two headers look like one, whose data begin elsewhere.
    if len(once) > len(set(once)) or _LONG_NAME.search(text) or not is_plain_text(text):
        return None
    compressed = kind == "BINTABLE" and _value(text, b"ZIMAGE  ") is True
    image = compressed or (kind in ("PRIMARY", "IMAGE") and integer(text, 2, "NAXIS") != 0)
    name, version = _value(text, b"EXTNAME "), _value(text, b"EXTVER  ")
    data = start + len(text)
    return Hdu(
        start,
        data,
        data + size,
        image,
        name.strip().upper() if isinstance(name, str) else "PRIMARY" if number == 0 else "",
        version if isinstance(version, int) else 1,
    )


def _goes_on(file: int, end: int, size: int) -> bool:
    """Tell whether the file ends with an HDU, or another begins there."""
    return end == size or os.pread(file, 8, end) == b"XTENSION"


def _data_size(text: bytes, kind: str) -> int | None:
    """Return the bytes of data by the cards that must come first; None if they are unusual.

    Notes
    -----
    FITS Standard 4.0, section 4.4.1.
    """
    bitpix, naxis = integer(text, 1, "BITPIX"), integer(text, 2, "NAXIS")
    if not kind or bitpix not in (8, 16, 32, 64, -32, -64) or naxis is None or not 0 <= naxis < 999:
        return None
    axes = [integer(text, 3 + n, f"NAXIS{n + 1}") for n in range(naxis)]
    sizes = [size for size in axes if size is not None and size >= 0]
    if len(sizes) < naxis:
        return None
    if kind == "PRIMARY":
        odd = (card_of(text, keyword) for keyword in (b"GROUPS  ", b"PCOUNT  ", b"GCOUNT  "))
        counts: list[int | None] = [0, None if any(odd) else 1]
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
    return abs(bitpix) // 8 * (math.prod(sizes) + pcount) if naxis else 0


def _value(text: bytes, keyword: bytes) -> object:
    card = card_of(text, keyword)
    return None if card is None else parsed(card)[1]


class _Head:
    """Headers of a file; those that lie close together are read in one go."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._at, self._content = 0, b""

    def header(self, start: int, size: int | None = None) -> bytes:
        """Return a header of unknown or known size, empty if it does not end soon."""
        for more in (0, *(_HEADS if size is None else (size,))):
            if more:
                self._at, self._content = start, os.pread(self._file, more, start)
            place = start - self._at
            if 0 <= place < len(self._content):
                end = header_end(self._content, place)
                if end:
                    return self._content[place:end]
        return b""


def _known_hdus(path: str, status: os.stat_result) -> dict[int, Hdu]:
    """Return what is known of a file's HDUs, by their numbers, to be added to."""
    changed = max(status.st_mtime_ns, status.st_ctime_ns)
    if time.time_ns() - changed < _SETTLED_NS:
        return {}
    return _remembered(
        path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    )


@lru_cache(maxsize=_KNOWN_FILES)
def _remembered(*_: str | int) -> dict[int, Hdu]:
    return {}
