"""Metadata of the images of a FITS file for an Index: keywords, shapes, BITPIX, and codecs.

Only headers are read. Our parser reads those that astropy would read without a warning; astropy
reads all others. astropy converts the table of a compressed image once for all equal tables.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from astropy.io import fits

from readers.fits.file import FitsFile, read_errors
from readers.fits.hdus import FoundHdu, HeaderReader, images_among, names_of, with_pixels
from readers.fits.headers import (
    BLOCK,
    END,
    Cards,
    HduName,
    NeedsAstropy,
    Value,
    card_name,
    is_wanted,
    plain_name,
)
from readers.fits.planes import ImageShape
from readers.places.contract import Place
from readers.places.opener import LOCAL

ALL = "all"
"""Value of `hdu` that means all HDUs with an image."""


def image_metadata(
    file: str | Place,
    keys: Sequence[str] = (),
    hdu: HduName | None = None,
    hdus: Sequence[int | str] | None = None,
    *,
    inherit: bool = False,
) -> list[dict[str, Value]]:
    """Read the headers of a FITS file, up to the image's.

    Parameters are those of `readers.header_scan.file_facts`.

    Returns
    -------
    list of dict
        For each image the keywords, spelt as in `keys`; None for a value that is missing,
        undefined, blank or cannot be parsed. ``TIMESYS:KEY`` is the time scale of KEY: TIMESYS, own
        or inherited, of the header with KEY. Also ``hdu`` (the number), ``planes``, ``height``,
        ``width``, ``bitpix`` (of the image, even if it is compressed into a table) and ``codec``,
        the tile compression (``RICE_1``, ``GZIP_2``, ...), empty for none.

    Raises
    ------
    ReadError
        If there is no such image, the image has no pixels, or the file is truncated. The end of a
        ``.gz`` file is not checked: this would need unpacking the whole file.

    Notes
    -----
    With INHERIT = T in the image's header, or with `inherit`, missing keywords are taken from the
    primary header (FITS Standard 4.0, appendix K). Keywords that describe the data of the primary
    HDU, such as BZERO, are not inherited. If the primary HDU has an array, BUNIT, DATAMAX, DATAMIN
    and the coordinates (CRVAL1, CD1_1, ...) are not inherited either, because they describe this
    array. RADESYS, EQUINOX and all other keywords are inherited.
    """
    place = LOCAL.at(file) if isinstance(file, str) else file
    every = hdu == ALL or hdus is not None
    wanted = None if every else hdu
    with (
        read_errors(place.name, wanted, None) as where,
        FitsFile.at(place, wanted, every=every) as opened,
    ):
        try:
            primary, images = _parsed(opened, every=every)
            return _metadata(primary, _among(images, hdus), keys, inherit=inherit)
        except NeedsAstropy:
            with opened.by_astropy(do_not_scale_image_data=True) as (found, number):
                if not every:
                    where.hdu = number
                numbers = with_pixels(found, opened.place) if every else [number]
                images = [_OpenedHdu.of(found, number) for number in numbers]
                primary = _OpenedHdu.of(found, 0)
                return _metadata(primary, _among(images, hdus), keys, inherit=inherit)


@dataclass(frozen=True, slots=True)
class _Hdu:
    """Properties of an HDU, with or without an image, from its header."""

    number: int
    name: str
    """EXTNAME, in capitals."""
    axes: tuple[int, ...]
    """Shape of the image, in NumPy's order; empty without an image."""
    bitpix: int
    codec: str
    """The tile compression; empty for none."""

    def holds(self, key: str) -> bool:
        """Return whether the header has a keyword."""
        raise NotImplementedError

    def value(self, key: str) -> Value:
        """Return the value of a keyword in the header; None if undefined or blank."""
        raise NotImplementedError

    @property
    def inherits(self) -> bool:
        """Whether the header has INHERIT = T."""
        return self.holds("INHERIT") and self.value("INHERIT") is True

    @property
    def has_pixels(self) -> bool:
        """Whether the HDU has an array that is not empty."""
        return min(self.axes, default=0) > 0


def _among(images: list[_Hdu], hdus: Sequence[int | str] | None) -> list[_Hdu]:
    """Return the images in `hdus`; ValueError if an entry matches no image."""
    if hdus is None:
        return images
    numbers = images_among({image.number: image.name for image in images}, hdus)
    return [image for image in images if image.number in numbers]


def _metadata(
    primary: _Hdu, images: Sequence[_Hdu], keys: Sequence[str], *, inherit: bool
) -> list[dict[str, Value]]:
    return [
        _keywords(primary, image, keys, inherit=inherit)
        | {
            "hdu": image.number,
            **ImageShape.of(image.axes)._asdict(),
            "bitpix": image.bitpix,
            # RICE_ONE is an old spelling.
            "codec": "RICE_1" if image.codec == "RICE_ONE" else image.codec,
        }
        for image in images
    ]


_OWN = re.compile(
    r"SIMPLE|XTENSION|BITPIX|NAXIS\d*|EXTEND|BLOCKED|GROUPS|PCOUNT|GCOUNT|CHECKSUM|DATASUM"
    r"|BSCALE|BZERO|BLANK|INHERIT|EXTNAME|EXTVER|EXTLEVEL",
    re.IGNORECASE,
)
"""Keywords that describe how data are stored and named (sections 4.4.1, 4.4.2)."""
_OF_ARRAY = re.compile(
    r"BUNIT|DATAMAX|DATAMIN|(WCSAXES|WCSNAME|LONPOLE|LATPOLE)[A-Z]?|CROTA\d+"
    r"|(CTYPE|CUNIT|CRVAL|CRPIX|CDELT|CNAME|CRDER|CSYER)\d+[A-Z]?|(PC|CD|PV|PS)\d+_\d+[A-Z]?"
    r"|(A|B|AP|BP)_(ORDER|DMAX|\d+_\d+)",
    re.IGNORECASE,
)
"""Keywords of an array's values (section 4.4.2.5) and coordinates (8.2), also SIP."""


def _keywords(
    primary: _Hdu, image: _Hdu, keys: Sequence[str], *, inherit: bool
) -> dict[str, Value]:
    """Return the values of keywords, own or inherited (FITS Standard 4.0, appendix K)."""
    sources = [image]
    if image.number > 0 and (inherit or image.inherits):
        sources.append(primary)
    values: dict[str, Value] = {}
    for key in keys:
        name, _, of = key.partition(":")  # keywords have no colon
        among = sources
        if of:  # TIMESYS of a time
            at = next((at for at, one in enumerate(sources) if one.holds(of)), len(sources))
            among = sources[at:]
        elif _OWN.fullmatch(name) or (primary.has_pixels and _OF_ARRAY.fullmatch(name)):
            among = sources[:1]
        source = next((one for one in among if one.holds(name)), None)
        values[key] = None if source is None else source.value(name)
    return values


@dataclass(frozen=True, slots=True)
class _OpenedHdu(_Hdu):
    """An HDU that astropy has opened."""

    header: fits.Header

    @classmethod
    def of(cls, hdus: fits.HDUList, number: int) -> _OpenedHdu:
        hdu = hdus[number]
        axes, bitpix = tuple(hdu.shape), hdu.header["BITPIX"]
        codec = str(getattr(hdu, "compression_type", ""))
        return cls(number, names_of(hdu)[0], axes, bitpix, codec, hdu.header)

    def holds(self, key: str) -> bool:
        return key in self.header

    def value(self, key: str) -> Value:
        try:
            value = self.header.get(key)
        except fits.VerifyError:  # e.g. NaN without quotes
            return None
        if isinstance(value, bool | int | float):
            return value
        if value is None or isinstance(value, fits.card.Undefined):
            return None
        return str(value).rstrip() or None


_SUMS = (b"CHECKSUM", b"DATASUM ")
_SCALING = (b"BSCALE  ", b"BZERO   ", b"BLANK   ")
_NAME, _VERSION = b"EXTNAME ", b"EXTVER  "


@dataclass(frozen=True, slots=True)
class _ParsedHdu(_Hdu):
    """An HDU whose header astropy would read without a warning."""

    cards: Cards
    is_table: bool = False
    """Whether the image is compressed into a table. astropy converts the header of the table."""
    has_name: bool = True
    """Whether the converted header keeps EXTNAME: astropy removes the name of its own tables."""

    def holds(self, key: str) -> bool:
        if key.upper() == "EXTEND" or (self.is_table and _is_of_table(key)):
            raise NeedsAstropy  # astropy may have changed the value
        name = card_name(key)
        return name in self.cards and (self.has_name or name != _NAME)

    def value(self, key: str) -> Value:
        value = self.cards.value(card_name(key))
        return None if value == "" else value


def _parsed(file: FitsFile, *, every: bool) -> tuple[_Hdu, list[_Hdu]]:
    """Return the primary HDU of a file, and the wanted image or all images.

    NeedsAstropy if only astropy can read a header, or if there is no such image.
    """
    images: list[_Hdu] = []
    for hdu in _hdus(file, every=every):
        image = _parsed_hdu(hdu, is_last=hdu.extent.end >= file.place.nbytes)
        if hdu.number == 0:
            primary = image
        if every and image.axes and 0 not in image.axes:
            images.append(image)
        extent = hdu.extent._replace(image=bool(image.axes), name=image.name)
        if not every and is_wanted(extent, hdu.number, file.wanted):
            images.append(image)
            break
    if not images or not all(image.has_pixels for image in images):
        raise NeedsAstropy
    return primary, images


def _hdus(file: FitsFile, *, every: bool) -> Iterator[FoundHdu]:
    """Yield all HDUs of a file, or the primary HDU and the one with the wanted number."""
    if isinstance(file.wanted, int) and not every:
        headers = HeaderReader(file.place, file.stamp)
        yield from map(headers.find, sorted({0, file.wanted}))
        return
    headers, at, number = HeaderReader(file.place), 0, 0
    while number == 0 or at < file.place.nbytes:
        hdu = headers.hdu(at, number)
        headers.check_end(hdu.extent)
        yield hdu
        at, number = hdu.extent.end, number + 1


def _parsed_hdu(hdu: FoundHdu, *, is_last: bool) -> _ParsedHdu:
    """Describe an HDU from its header. Raises NeedsAstropy if astropy may object to it."""
    number, extent, cards = hdu.number, hdu.extent, hdu.cards
    cards.check_names()
    cards.value(cards.names[0])  # NeedsAstropy if more than a comment follows
    if _NAME in cards and not isinstance(cards.only_value(_NAME) or None, str):
        raise NeedsAstropy
    for name in _SUMS:  # astropy parses them
        cards.only_value(name)
    version = cards.value(_VERSION) if _VERSION in cards else 1
    extend = cards.value(b"EXTEND  ")
    # astropy looks for a second HDU to add a missing EXTEND to the primary header.
    if type(version) is not int or not (extend is True or number > 0 or is_last):
        raise NeedsAstropy
    if cards.is_table and extent.image:
        found = _table_image(cards)
        return _ParsedHdu(number, *found[:4], cards, is_table=True, has_name=found.has_name)
    if not extent.image and number > 0:
        # astropy takes a table for an image if its name is PRIMARY or ZIMAGE has an odd value.
        if extent.name == "PRIMARY" or b"ZIMAGE  " in cards:
            raise NeedsAstropy
        return _ParsedHdu(number, extent.name, (), 0, "", cards)
    if any(name in cards and not _is_number(cards.only_value(name)) for name in _SCALING):
        raise NeedsAstropy
    count = cards.integer(2, b"NAXIS   ")
    axes = [cards.integer(3 + n, f"NAXIS{n + 1:<3}".encode()) for n in range(count)]
    bitpix = cards.integer(1, b"BITPIX  ")
    return _ParsedHdu(number, extent.name, tuple(axes[::-1]), bitpix, "", cards)


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float)


_HOW = re.compile(
    rb"(?:BSCALE|BZERO|BLANK|GROUPS|EXTNAME|TFIELDS|TTYPE\d+|Z(?:IMAGE|SIMPLE|TENSION|EXTEND|BLOCKED"
    rb"|PCOUNT|GCOUNT|CMPTYPE|MASKCMP|BITPIX|NAXIS\d*|TILE\d*|NAME\d*|VAL\d*|QUANTIZ|BLANK|SCALE"
    rb"|ZERO)) *"
)
"""Keywords that astropy needs to convert the table into an image."""
_OF_TABLE = re.compile(
    r"SIMPLE|XTENSION|BITPIX|NAXIS\d*|PCOUNT|GCOUNT|GROUPS|EXTEND|BLOCKED|BSCALE|BZERO|BLANK|THEAP"
    r"|TFIELDS|T(TYPE|FORM|UNIT|NULL|SCAL|ZERO|DISP|BCOL|DIM|CTYP|CUNI|CRPX|CRVL|CDLT|RPOS)\d*"
    r"|CHECKSUM|DATASUM|Z(IMAGE|SIMPLE|TENSION|EXTEND|BLOCKED|PCOUNT|GCOUNT|HECKSUM|DATASUM|CMPTYPE"
    r"|MASKCMP|BITPIX|QUANTIZ|DITHER0|BLANK|SCALE|ZERO|(NAXIS|TILE|NAME|VAL)\d*)"
)
"""Keywords of the table that the image lacks, or that have another meaning in an image."""
_EACH_FILE = (b"ZHECKSUM", b"ZDATASUM", b"ZDITHER0")
"""Keywords whose values differ between files and do not matter here."""


class _TableImage(NamedTuple):
    """The image in a table, as astropy describes it; fields as in `_ParsedHdu`."""

    name: str
    axes: tuple[int, ...]
    bitpix: int
    codec: str
    has_name: bool


def _table_image(cards: Cards) -> _TableImage:
    """Describe the image in a table.

    NeedsAstropy if astropy rejects the table, or does not take it for an image.
    """
    for name in _EACH_FILE:
        if name in cards and cards.value(name) in (None, ""):
            raise NeedsAstropy
    numbers = [number for number, name in enumerate(cards.names) if _is_how(name)]
    if b"CONTINUE" in cards:  # it may continue one of these cards
        after = {cards.names[number + 1] for number in numbers if number + 1 < len(cards.names)}
        if b"CONTINUE" in after or b" " * 8 in cards:
            raise NeedsAstropy
    found = _asked(b"".join(map(cards.card, numbers)))
    if found is None:
        raise NeedsAstropy
    return found


@lru_cache
def _is_of_table(key: str) -> bool:
    return _OF_TABLE.fullmatch(key.strip().upper()) is not None


@lru_cache(maxsize=1 << 14)
def _is_how(name: bytes) -> bool:
    return _HOW.fullmatch(name) is not None


@lru_cache(maxsize=4096)
def _asked(cards: bytes) -> _TableImage | None:
    """Let astropy convert a table with these cards and no rows; None if this fails."""
    primary: Mapping[str, Any] = {"SIMPLE": True, "BITPIX": 8, "NAXIS": 0, "EXTEND": True}
    table = {"XTENSION": "BINTABLE", "BITPIX": 8, "NAXIS": 2, "NAXIS1": 0, "NAXIS2": 0}
    table |= {"PCOUNT": 0, "GCOUNT": 1}
    content = b"".join(
        text.ljust(-(-len(text) // BLOCK) * BLOCK)
        for text in (_text_of(primary) + END, _text_of(table) + cards + END)
    )
    try:
        with fits.open(io.BytesIO(content), do_not_scale_image_data=True) as hdus:
            hdu = hdus[1]
            if not isinstance(hdu, fits.CompImageHDU):
                return None
            header = hdu.header
            numbers = (*hdu.shape, header["BITPIX"])
            if any(type(number) is not int for number in numbers):
                return None
            name, codec = plain_name(hdu.name), str(hdu.compression_type)
            return _TableImage(name, numbers[:-1], numbers[-1], codec, "EXTNAME" in header)
    except Exception:  # astropy raises many types
        return None


def _text_of(keywords: Mapping[str, Any]) -> bytes:
    return b"".join(str(fits.Card(*each)).encode() for each in keywords.items())
