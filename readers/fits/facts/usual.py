"""Facts of the images of a file whose headers hold nothing unusual, without astropy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from readers.fits.facts.cards import Cards, Fact, Unusual, card_name
from readers.fits.facts.inherited import headers_of
from readers.fits.facts.table import is_of_table, table_facts
from readers.fits.file import FitsFile
from readers.fits.hdus import HduExtent, HduName, HeaderReader, find_hdu, is_wanted
from readers.fits.headers import TABLE
from readers.fits.opened_hdus import images_among
from readers.places.contract import Place

_NAME = b"EXTNAME "
_SUMS = (b"CHECKSUM", b"DATASUM ")
_SCALING = (b"BSCALE  ", b"BZERO   ", b"BLANK   ")


@dataclass(frozen=True, slots=True)
class UsualHdu:
    """An HDU whose header astropy reads without an objection."""

    number: int
    extent: HduExtent
    cards: Cards
    axes: tuple[int, ...] = ()
    """Shape of its image, in NumPy's order; empty if it holds none."""
    bitpix: int = 0
    codec: str | None = None
    """The tile compression; None if it is not a table."""
    without: bytes = b""
    """Name of a card that astropy leaves out."""

    def holds(self, key: str) -> bool:
        """Return whether it has a keyword. Raises Unusual if astropy may have changed it."""
        if key.upper() == "EXTEND" or (self.codec is not None and is_of_table(key)):
            raise Unusual
        name = card_name(key)
        return name in self.cards and name != self.without


def usual_images(
    file: FitsFile,
    wanted: HduName | None,
    hdus: Sequence[int | str] | None,
    *,
    every: bool,
) -> tuple[UsualHdu, list[UsualHdu]]:
    """Return the primary HDU of an open file, and images; parameters are those of `fits_facts`.

    Raises
    ------
    Unusual
        If only astropy can read a header, or no such image is there.
    ValueError
        If there is none for one of `hdus`.
    """
    found = []
    for hdu in _two(file, wanted) if isinstance(wanted, int) and not every else _each(file.place):
        if hdu.number == 0:
            primary = hdu
        if every and hdu.axes and 0 not in hdu.axes:
            found.append(hdu)
        elif not every and is_wanted(hdu.extent, hdu.number, wanted):
            found.append(hdu)
            break
    if not found or any(min(hdu.axes, default=0) < 1 for hdu in found):
        raise Unusual
    if hdus is not None:
        numbers = images_among({hdu.number: hdu.extent.name for hdu in found}, hdus)
        found = [hdu for hdu in found if hdu.number in numbers]
    return primary, found


def keyword_facts(
    primary: UsualHdu, image: UsualHdu, keys: Sequence[str], *, inherit: bool
) -> dict[str, Fact]:
    """Return the values of keywords, inherited ones too. Raises Unusual."""
    sources = [image]
    if image.number > 0 and (inherit or image.cards.fact(b"INHERIT ") is True):
        sources.append(primary)
    has_array = min(primary.axes, default=0) > 0
    facts: dict[str, Fact] = {}
    for key in keys:
        name, hdus = headers_of(key, sources, UsualHdu.holds, has_array=has_array)
        hdu = next((hdu for hdu in hdus if hdu.holds(name)), None)
        facts[key] = None if hdu is None else hdu.cards.fact(card_name(name))
    return facts


def _two(file: FitsFile, number: int) -> Iterator[UsualHdu]:
    """Yield the primary HDU, and the one of this number. Raises Unusual."""
    headers = HeaderReader(file.place)
    for one in sorted({0, number}):
        extent = find_hdu(headers, file.stamp, one)
        if extent is None:
            raise Unusual
        cards = Cards(headers.read(extent.start))
        yield _usual(one, extent, cards, is_last=extent.end >= file.place.nbytes)


def _each(place: Place) -> Iterator[UsualHdu]:
    """Yield the HDUs of a file, up to its end. Raises Unusual."""
    headers = HeaderReader(place)
    at, number = 0, 0
    while number == 0 or at < place.nbytes:
        found = headers.hdu(at, number)
        if found is None:
            raise Unusual
        extent, cards = found
        if not headers.goes_on(extent):
            raise Unusual
        yield _usual(number, extent, cards, is_last=extent.end >= place.nbytes)
        at, number = extent.end, number + 1


def _usual(number: int, extent: HduExtent, cards: Cards, *, is_last: bool) -> UsualHdu:
    """Describe an HDU from its header. Raises Unusual where astropy may object to it."""
    cards.check_names()
    cards.fact(cards.names[0])  # SIMPLE or XTENSION may have more behind it
    if _NAME in cards and not isinstance(cards.once(_NAME), str):
        raise Unusual
    for name in _SUMS:  # which astropy parses to see whether they are there
        cards.once(name)
    version = cards.fact(b"EXTVER  ") if b"EXTVER  " in cards else 1
    extend = cards.fact(b"EXTEND  ")
    # Without it, astropy adds it to a primary header, and looks for the next HDU to do so.
    if type(version) is not int or not (extend is True or number > 0 or is_last):
        raise Unusual
    if cards.text.startswith(TABLE) and extent.image:
        found = table_facts(cards)
        extent = extent._replace(image=bool(found.axes), name=found.name.strip().upper())
        without = b"" if found.has_name else _NAME
        return UsualHdu(number, extent, cards, found.axes, found.bitpix, found.codec, without)
    if not extent.image and number > 0:
        # astropy takes a table of this name for an image, and more values of ZIMAGE for true.
        if extent.name == "PRIMARY" or b"ZIMAGE  " in cards:
            raise Unusual
        return UsualHdu(number, extent, cards)
    if any(name in cards and not isinstance(cards.once(name), int | float) for name in _SCALING):
        raise Unusual
    counts = range(_integer(cards, "NAXIS"), 0, -1)
    axes = tuple(_integer(cards, f"NAXIS{count}") for count in counts)
    return UsualHdu(number, extent, cards, axes, _integer(cards, "BITPIX"))


def _integer(cards: Cards, key: str) -> int:
    return int(cards.fact(card_name(key)) or 0)
