"""Find the HDUs of a file. The positions of HDUs are kept for the latest files.

astropy parses all headers before an HDU to find it. Here each header is read only once. This module
also chooses among HDUs that astropy has opened, for files that our parser cannot read.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from astropy.io import fits

from readers.fits.headers import (
    BLOCK,
    Cards,
    HduExtent,
    HduName,
    Keywords,
    NeedsAstropy,
    header_end,
    no_such_hdu,
    plain_name,
)
from readers.places.contract import Place

MOST_BLOCKS = 2048
"""Maximum number of blocks of a header: 73,728 cards."""
_READ = 8 * BLOCK
"""Bytes to read first for a header; longer headers need more."""
_MOST_AHEAD = 1 << 20
"""Maximum number of bytes to read at once if headers are close to each other."""
_ODD_END = re.compile(rb"(?s)(?:.{80})*?END[^A-Z0-9_-]")
"""An END card with other bytes after the keyword. astropy accepts such cards."""
_KNOWN_FILES = 256
_MOST_HDUS = 1 << 19
"""Maximum number of HDUs to keep, some 300 bytes each. After that many, all are dropped."""
_LISTED = 8
"""Number of HDUs that an error lists."""


@dataclass(frozen=True, slots=True)
class FoundHdu:
    """An HDU of a file, with its header."""

    number: int
    extent: HduExtent
    cards: Cards

    @property
    def text(self) -> bytes:
        """All blocks of the header."""
        return self.cards.text

    @property
    def is_table(self) -> bool:
        """Whether the HDU is a binary table, which may contain a compressed image."""
        return self.cards.is_table

    @property
    def keywords(self) -> Keywords:
        """Keywords that describe how the image is stored."""
        return self.cards.storage_keywords()

    def header(self, keys: Collection[str]) -> fits.Header:
        """Return `keywords` and other keywords, in capitals. Parsing each takes time."""
        return self.cards.selected(keys)


class _Layout:
    """Known HDUs of a file, from the first one on. Several threads may add the same HDU."""

    def __init__(self) -> None:
        self.hdus: dict[int, HduExtent] = {}
        self._numbers: dict[HduName | None, int] = {}

    def number(self, wanted: HduName | None) -> int | None:
        """Return the number of an HDU, by the rules of `is_wanted`; None if not known yet."""
        if isinstance(wanted, int):
            return wanted if wanted in self.hdus else None
        if isinstance(wanted, str):
            return self._numbers.get(plain_name(wanted))
        return self._numbers.get(wanted and (plain_name(wanted[0]), wanted[1]))

    def add(self, number: int, hdu: HduExtent) -> None:
        """Add the next HDU."""
        for name in {hdu.name, hdu.name if number else "PRIMARY"}:
            self._numbers.setdefault(name, number)
            self._numbers.setdefault((name, hdu.version), number)
        if hdu.image:
            self._numbers.setdefault(None, number)
        self.hdus[number] = hdu  # last, because other threads look here first


class HeaderReader:
    """Reads headers of an open file; headers that are close together are read at once.

    With a stamp of the file, HDUs are kept for its next reader.
    """

    def __init__(self, place: Place, stamp: Hashable | None = None) -> None:
        self._place = place
        self._layout = _Layout() if stamp is None else _known_hdus(stamp)
        self._at, self._content = 0, b""
        self._ahead = _READ

    def find(self, wanted: HduName | None) -> FoundHdu:
        """Return an HDU by its number or name; None means the first HDU with an image.

        NeedsAstropy if there is no such HDU, a header up to it is unusual, or the file is
        truncated.
        """
        number, found = self._find(wanted)
        if found is None:
            extent = self._layout.hdus[number]
            found = FoundHdu(number, extent, self._cards(extent.start))
        return found

    def names(self, last: int) -> list[tuple[str, int]]:
        """Return EXTNAME, in capitals, and EXTVER of the HDUs up to `last`. Raises NeedsAstropy."""
        with suppress(NeedsAstropy):  # after the end of the file
            self._find(last)
        layout = self._layout.hdus
        known = [layout[number] for number in range(min(len(layout), last + 1))]
        if not known or (len(known) <= last and known[-1].end < self._place.nbytes):
            raise NeedsAstropy
        return [hdu.names for hdu in known]

    def _find(self, wanted: HduName | None) -> tuple[int, FoundHdu | None]:
        """Return the number of an HDU, and the HDU itself if its header was read now."""
        layout, found = self._layout, None
        while (number := layout.number(wanted)) is None:
            count = len(layout.hdus)
            found = self.hdu(layout.hdus[count - 1].end if count else 0, count)
            layout.add(count, found.extent)
            if next(_headers) % _MOST_HDUS == 0:
                _known_hdus.cache_clear()
        # All HDUs but the last known one are followed by a known HDU.
        if number == len(layout.hdus) - 1:
            self.check_end(layout.hdus[number])
        # Another thread may have added the wanted HDU meanwhile.
        return number, found if found is not None and found.number == number else None

    def hdu(self, start: int, number: int) -> FoundHdu:
        """Return the HDU whose header begins at a byte. Call `check_end` before reading its data.

        NeedsAstropy if the header is unusual or cut off.
        """
        cards = self._cards(start)
        extent = HduExtent.of(cards, start, number)
        is_near = extent.end - start <= 2 * self._ahead
        self._ahead = min(2 * self._ahead, _MOST_AHEAD) if is_near else _READ
        return FoundHdu(number, extent, cards)

    def check_end(self, hdu: HduExtent) -> None:
        """Raise NeedsAstropy if data of an HDU are missing, or if what follows is not an HDU.

        The last block of the file may be cut short.
        """
        if hdu.end >= self._place.nbytes:
            is_whole = hdu.stop <= max(hdu.data, self._place.nbytes)
        else:
            is_whole = self._place.read(hdu.end, hdu.end + 8) == b"XTENSION"
        if not is_whole:
            raise NeedsAstropy

    def _cards(self, start: int) -> Cards:
        if not (text := self.read(start)):
            raise NeedsAstropy
        return Cards(text)

    def read(self, start: int) -> bytes:
        """Return the text of a header; empty if the file ends before END, or END is unusual.

        ValueError if the header has no END in `MOST_BLOCKS`: astropy would read the whole file.
        """
        nbytes = 0  # first look into the bytes that were read before
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
    """Return the known HDUs of a file. The caller adds new ones."""
    del stamp
    return _Layout()


_headers = itertools.count(1)
"""Counts the headers that were added to layouts."""


def find_opened(hdus: fits.HDUList, wanted: HduName | None, place: Place) -> int:
    """Return the number of the wanted HDU among the HDUs that astropy has opened.

    `place` has the bytes of the file. ValueError if there is no such HDU, or if it has no image.
    """
    if wanted is None:
        number = next((n for n, hdu in enumerate(hdus) if _holds_image(hdu)), None)
        if number is None:
            raise no_such_hdu(None, (), _after(hdus, place))
        return number
    try:
        number = hdus.index_of(wanted)
        hdu = hdus[number]
    except (IndexError, KeyError):
        names = [hdu.name for hdu in hdus]
        raise no_such_hdu(wanted, names, _after(hdus, place)) from None
    if not _holds_image(hdu):
        reason, images = f"HDU {wanted!r} has no image{_instead(hdu)}", {}
        with suppress(Exception):  # if another HDU is damaged
            for other, hdu in enumerate(hdus):
                if _holds_image(hdu):
                    images[other] = hdu.name
        if images:
            reason += f"; images are in HDU {_listed(images)}: name one of these"
        raise ValueError(reason)
    return number


def _instead(hdu: Any) -> str:
    """Return what an opened HDU without pixels has, with a comma before it."""
    if "PIXVALUE" in hdu.header:
        constant = hdu.header["PIXVALUE"]
        return f", but says that all pixels are {constant!r} (PIXVALUE of HST), which is not read"
    return f", its type is {type(hdu).__name__}"


def check_data(hdu: Any, number: int, place: Place) -> None:
    """Raise ValueError if data of an HDU are cut off. Its padding may be cut off."""
    found = hdu.fileinfo()
    start, data, nbytes = found["hdrLoc"], found["datLoc"], place.nbytes
    if data + found["datSpan"] <= nbytes:
        return
    stop = HduExtent.by_astropy(place.read(start, data), start, number).stop
    if stop > max(data, nbytes):
        raise ValueError(
            f"the file is truncated: it ends at byte {nbytes}, but the data of HDU {number} end at "
            f"byte {stop}"
        )


def names_of(hdu: Any) -> tuple[str, int]:
    """Return EXTNAME, in capitals, and EXTVER of an HDU that astropy has opened."""
    return plain_name(hdu.name), hdu.ver if isinstance(hdu.ver, int) else 1


def with_pixels(hdus: fits.HDUList, place: Place) -> list[int]:
    """Return the numbers of the opened HDUs whose images have pixels.

    ValueError if there are none, or if data of an HDU are cut off.
    """
    for number, hdu in enumerate(hdus):
        check_data(hdu, number, place)
    images = [n for n, hdu in enumerate(hdus) if _holds_image(hdu) and math.prod(hdu.shape)]
    if not images:
        raise no_such_hdu(None, ())
    return images


def images_among(names: Mapping[int, str], wanted: Sequence[int | str]) -> list[int]:
    """Return the numbers of the wanted HDUs: numbers, or EXTNAMEs with ``*``.

    `names` maps the numbers of HDUs with images to EXTNAMEs in capitals. ValueError if an entry of
    `wanted` matches no HDU.
    """
    chosen: set[int] = set()
    for each in wanted:
        if isinstance(each, int):
            found = {each} & names.keys()
        else:
            pattern = plain_name(each)
            found = {number for number, name in names.items() if fnmatchcase(name, pattern)}
        if not found:
            raise ValueError(f"no image in HDU {each!r}, the file has images in {_listed(names)}")
        chosen |= found
    return sorted(chosen)


def _listed(names: Mapping[int, str]) -> str:
    """Return the numbers and EXTNAMEs of the first HDUs, and how many more there are."""
    each = [f"{number} ({name})" if name else f"{number}" for number, name in names.items()]
    more = [f"and {len(each) - _LISTED} more"] if len(each) > _LISTED else []
    return ", ".join(each[:_LISTED] + more)


def _after(hdus: fits.HDUList, place: Place) -> str:
    """Return a clause for an error if a damaged HDU follows the opened ones; otherwise ""."""
    last = hdus[-1].fileinfo()
    end = last["datLoc"] + last["datSpan"]
    if place.read(end, end + 8) != b"XTENSION":
        return ""
    return (
        f"; the header of one more HDU, in the last {place.nbytes - end} bytes of the file, is cut "
        "off or damaged: copy the file again"
    )


def _holds_image(hdu: Any) -> bool:
    if hdu.header.get("ZIMAGE") is True and hdu.header.get("XTENSION") == "BINTABLE":
        return True
    # astropy takes any HDU with the name PRIMARY for an image.
    return bool(hdu.is_image) and hasattr(hdu, "shape") and hdu.header.get("NAXIS", 0) >= 1
