"""Parse headers of FITS files: values of keywords, and the extents of HDUs.

`astropy.io.fits.Header` looks at all cards before it returns the first value, and ``fits.open``
takes many times as long as reading a window. Here only the wanted cards are parsed, and only if
they are unambiguous. `NeedsAstropy` leaves all other cards to astropy.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Collection, Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, NamedTuple, NoReturn

from astropy.io import fits

from readers.values import is_integer

BLOCK = 2880
END = b"END" + b" " * 77
TABLE = b"XTENSION= 'BINTABLE'"

Value = bool | int | float | str | None
"""Value of a keyword."""
HduName = int | str | tuple[str, int]
"""An HDU, as astropy names it: its number (0 for the primary), EXTNAME, or (EXTNAME, EXTVER)."""

_VALUE = re.compile(
    rb" *(?:'([^']+)'|([+-]?\d+)|([+-]?(?:\d+\.?\d*|\.\d+)(?:[EDed][+-]?\d+)?)|([TF])"
    rb"|('')(?=[^']*$)|) *(?:/.*)?"
)
"""A text, integer, float, logical, empty text or no value; then perhaps a comment."""
_D_TO_E = bytes.maketrans(b"Dd", b"EE")
_SIMPLE_NAME = re.compile(rb"[!-<>-~]+ *| {8}")
"""Card names that are certainly the whole keyword."""
_WITHOUT_VALUE = (b"COMMENT ", b"CONTINUE", b"HIERARCH", b"HISTORY ", b"END     ")
_WORD = re.compile(rb"HIERARCH +[^ =]+ *=")
"""HIERARCH card of a keyword that also fits into a standard card."""
_STORAGE = re.compile(
    rb"(?:BITPIX|NAXIS\d*|BSCALE|BZERO|BLANK|PCOUNT|THEAP|TFIELDS|T(?:FORM|TYPE|SCAL|ZERO)\d+"
    rb"|Z(?!HECKSUM|DATASUM)[A-Z0-9]+) *"
)
"""Keywords that describe how an image is stored, plain or in a table."""
_OF_IMAGE, _OF_TABLE = re.compile(b"[BN]"), re.compile(b"[BNPTZ]")
"""First letters of the storage keywords of plain images, and of tables."""
_PRINTABLE = bytes(range(32, 127))
_KINDS = {
    b"SIMPLE  =" + b"T".rjust(21): "PRIMARY",
    b"XTENSION= 'IMAGE   '": "IMAGE",
    b"XTENSION= 'TABLE   '": "TABLE",
    TABLE: "BINTABLE",
}
_KNOWN_NAMES = 1 << 16


class NeedsAstropy(Exception):
    """Only astropy can parse or reject this header."""


class Keywords(dict[str, Any]):
    """Keywords of a header, with the values that astropy parses."""

    def __missing__(self, name: str) -> NoReturn:
        raise KeyError(f"Keyword {name!r} not found.")  # the message of astropy


class Cards:
    """The cards of a header by name: the keyword, padded to 8 bytes.

    `text` are whole blocks with an END card.
    """

    def __init__(self, text: bytes) -> None:
        end = text.find(END)
        while end % 80:
            end = text.find(END, end + 1)
        count = end // 80
        self.text = text
        """All blocks."""
        self.names: tuple[bytes, ...] = _names(len(text) // 80).unpack(text)[:count]
        """Names of all cards, in order."""
        self._first = dict(zip(reversed(self.names), range(count - 1, -1, -1), strict=True))

    def __contains__(self, name: bytes) -> bool:
        return name in self._first

    @property
    def is_table(self) -> bool:
        """Whether this is the header of a binary table."""
        return self.text.startswith(TABLE)

    def card(self, number: int) -> bytes:
        """Return the 80 bytes of a card."""
        return self.text[80 * number : 80 * number + 80]

    def repeats(self, name: bytes) -> bool:
        """Return whether several cards have this name."""
        return self.names.count(name) > 1

    def value(self, name: bytes) -> Value:
        """Return the value of the first card with a name; None if missing or undefined.

        Blanks at the end of text are removed; blanks at the start are kept. NeedsAstropy if the
        card is ambiguous.
        """
        number = self._first.get(name)
        if number is None:
            return None
        if self.names[number + 1 : number + 2] == (b"CONTINUE",):
            raise NeedsAstropy
        return _parsed(self.card(number))

    def only_value(self, name: bytes) -> Value:
        """Return the value of the only card with a name; NeedsAstropy if there are several."""
        if name in self._first and self.repeats(name):
            raise NeedsAstropy
        return self.value(name)

    def integer(self, number: int, name: bytes) -> int:
        """Return the integer of card `number`, which must have this name; otherwise NeedsAstropy.

        For mandatory keywords: their order is fixed (FITS Standard 4.0, section 4.4.1).
        """
        if self.names[number : number + 1] != (name,):
            raise NeedsAstropy
        value = _parsed(self.card(number))
        if type(value) is not int:
            raise NeedsAstropy
        return value

    def check_names(self) -> None:
        """Raise NeedsAstropy if a card may have its keyword outside the first 8 columns."""
        if not _simple_names.issuperset(self._first):
            if len(_simple_names) > _KNOWN_NAMES:
                _simple_names.clear()
            for name in self._first:
                if not _SIMPLE_NAME.fullmatch(name) or name == b"END     ":
                    raise NeedsAstropy
                _simple_names.add(name)
        if b"HIERARCH" in self._first and _WORD.search(self.text):
            raise NeedsAstropy

    def storage_keywords(self) -> Keywords:
        """Return the keywords that describe how an image is stored.

        Of repeated keywords the last card is used. In tables it is the first card, as in astropy
        and CFITSIO.
        """
        numbers = self._storage()
        if self.is_table:
            numbers.reverse()
        return Keywords(
            _parsed_by_any(self.card(number))
            for number in numbers
            if self.text[80 * number + 8 : 80 * number + 9] == b"="
        )

    def selected(self, keys: Collection[str]) -> fits.Header:
        """Return these keywords, in capitals, and the storage keywords."""
        wanted = {f"{key:<8}".encode() for key in keys}
        numbers = {number for number, name in enumerate(self.names) if name in wanted}
        return fits.Header.fromstring(
            b"".join(map(self.card, sorted(numbers.union(self._storage()))))
        )

    def _storage(self) -> list[int]:
        """Return the numbers of the cards with storage keywords."""
        initials = _OF_TABLE if self.is_table else _OF_IMAGE
        found = initials.finditer(self.text[: 80 * len(self.names) : 80])
        return [each.start() for each in found if _is_storage(self.names[each.start()])]


_simple_names: set[bytes] = set()
"""Names that were checked before: most files have the same names."""


@lru_cache(maxsize=1 << 14)
def _is_storage(name: bytes) -> bool:
    return _STORAGE.fullmatch(name) is not None


@lru_cache
def _names(count: int) -> Struct:
    return Struct("8s72x" * count)


@lru_cache(maxsize=1 << 13)
def _parsed(card: bytes) -> Value:
    """Parse a card without astropy. Cached, because most files repeat the same cards."""
    found = _VALUE.fullmatch(card, 10) if card[8:10] == b"= " else None
    if found is None:
        raise NeedsAstropy
    value = found[found.lastindex or 0]
    match found.lastindex:
        case 1:
            if b": " in value:  # maybe a record-valued keyword
                raise NeedsAstropy
            return value.decode().rstrip()
        case 2:
            return int(value)
        case 3:
            return float(value.translate(_D_TO_E))
        case 4:
            return value == b"T"
        case 5:
            return ""
    return None


@lru_cache(maxsize=1 << 12)
def _parsed_by_any(card: bytes) -> tuple[str, Any]:
    """Return the keyword and the value of a card, parsed by astropy if necessary."""
    try:
        value = _parsed(card)
    except NeedsAstropy:
        value = None
    value = fits.Card.fromstring(card).value if value is None else value
    return card[:8].decode().rstrip(), value


@lru_cache
def card_name(key: str) -> bytes:
    """Return the card name of a keyword, which may be in lower case.

    Raise NeedsAstropy if cards of another name may also have this keyword.
    """
    name = f"{key.strip().upper():<8}"
    is_simple = re.fullmatch(r"[A-Z0-9_-]+ *", name) and len(name) == 8
    if not is_simple or name.encode() in _WITHOUT_VALUE:
        raise NeedsAstropy
    return name.encode()


def header_end(content: bytes, start: int) -> int:
    """Return the end of the header that begins at `start`; 0 if it has no END card.

    The last block of the content may be incomplete.
    """
    at = content.find(END, start)
    while at >= 0 and (at - start) % 80:
        at = content.find(END, at + 1)
    return min(start + (at - start) // BLOCK * BLOCK + BLOCK, len(content)) if at >= 0 else 0


class HduExtent(NamedTuple):
    """Position and kind of an HDU."""

    start: int
    """First byte of its header in the file."""
    data: int
    """First byte of its data."""
    stop: int
    """End of its data."""
    image: bool
    """Whether it has an image."""
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

    @classmethod
    def of(cls, cards: Cards, start: int, number: int) -> HduExtent:
        """Describe the HDU whose header begins at byte `start`. Raises NeedsAstropy."""
        text = cards.text
        kind = _KINDS.get(text[:20] if number else text[:30], "")
        if not kind or (kind == "PRIMARY") != (number == 0):
            raise NeedsAstropy
        axes, nbytes = _data_of(cards, kind)
        names = b"".join(cards.names)
        if text.translate(None, _PRINTABLE) or names != names.upper():
            raise NeedsAstropy
        # A damaged END card merges two headers, so keywords are repeated.
        if any(map(cards.repeats, cards.names[: (5 if number else 3) + len(axes)])):
            raise NeedsAstropy
        compressed = kind == "BINTABLE" and cards.value(b"ZIMAGE  ") is True
        name, version = cards.value(b"EXTNAME "), cards.value(b"EXTVER  ")
        data = start + len(text)
        return cls(
            start,
            data,
            data + nbytes,
            compressed or (kind in ("PRIMARY", "IMAGE") and len(axes) > 0),
            sys.intern(plain_name(name)) if isinstance(name, str) else "" if number else "PRIMARY",
            version if isinstance(version, int) else 1,
        )

    @classmethod
    def by_astropy(cls, text: bytes, start: int, number: int) -> HduExtent:
        """Describe an HDU by astropy; ValueError if the size of its data is unknown."""
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
            raise ValueError(
                f"the header of HDU {number} lacks the size of the data (BITPIX, NAXIS, NAXISn)"
            )
        is_image = kind in ("PRIMARY", "IMAGE") and len(axes) > 0 and not is_groups
        return cls(
            start,
            start + len(text),
            start + len(text) + nbytes,
            is_image or (kind == "BINTABLE" and header.get("ZIMAGE") is True),
            plain_name(str(header.get("EXTNAME", "" if number else "PRIMARY"))),
            header.get("EXTVER", 1),
        )


def _data_of(cards: Cards, kind: str) -> tuple[list[int], int]:
    """Return the axes and bytes of the data (FITS Standard 4.0, 4.4.1). Raises NeedsAstropy."""
    bitpix, naxis = cards.integer(1, b"BITPIX  "), cards.integer(2, b"NAXIS   ")
    if bitpix not in (8, 16, 32, 64, -32, -64) or not 0 <= naxis < 999:
        raise NeedsAstropy
    axes = [cards.integer(3 + n, f"NAXIS{n + 1:<3}".encode()) for n in range(naxis)]
    pcount = 0
    if kind == "PRIMARY":
        if any(name in cards for name in (b"GROUPS  ", b"PCOUNT  ", b"GCOUNT  ")):
            raise NeedsAstropy
    else:
        pcount = cards.integer(3 + naxis, b"PCOUNT  ")
        if cards.integer(4 + naxis, b"GCOUNT  ") != 1 or cards.text[20:31].strip(b" /"):
            raise NeedsAstropy
    if min([*axes, pcount]) < 0 or (pcount and kind != "BINTABLE"):
        raise NeedsAstropy
    if kind == "BINTABLE":
        columns = cards.integer(5 + naxis, b"TFIELDS ")
        if (bitpix, naxis) != (8, 2) or not 0 <= columns < 1000:
            raise NeedsAstropy
    return axes, abs(bitpix) // 8 * (math.prod(axes) + pcount) if naxis else 0


def checked(hdu: Any) -> HduName | None:
    """Return a valid setting `hdu`, with NumPy integers converted to Python's.

    ValueError if the value does not name an HDU.
    """
    if hdu is None or isinstance(hdu, str):
        return hdu
    if is_integer(hdu, 0):
        return int(hdu)
    match hdu:
        case (str() as name, version) if is_integer(version):
            return name, int(version)
    raise ValueError(f"hdu must be 0 or more, an EXTNAME, or (EXTNAME, EXTVER), got {hdu!r}")


def plain_name(name: str) -> str:
    """Return an EXTNAME for comparisons: in capitals, without blanks around it."""
    return name.strip().upper()


def is_wanted(hdu: HduExtent, number: int, wanted: HduName | None) -> bool:
    """Return whether an HDU is the wanted one, by astropy's rules for names."""
    if wanted is None:
        return hdu.image
    if isinstance(wanted, int):
        return number == wanted
    name, version = (wanted, hdu.version) if isinstance(wanted, str) else wanted
    name = plain_name(name)
    return version == hdu.version and (name == hdu.name or (name == "PRIMARY" and number == 0))


class NoSuchHduError(ValueError):
    """A file lacks an HDU."""


def no_such_hdu(wanted: HduName | None, names: Sequence[str], after: str = "") -> NoSuchHduError:
    """Return the error for a missing HDU; `names` are the EXTNAMEs in the file.

    `after` describes the rest of the file.
    """
    if wanted is None:
        return NoSuchHduError(f"no HDU has an image; tables are not read{after}")
    if isinstance(wanted, int):
        count = f"{len(names)} HDU{'s' * (len(names) != 1)}, counted from 0"
        return NoSuchHduError(f"there is no HDU {wanted}, the file has {count}{after}")
    known = ", ".join(name or str(number) for number, name in enumerate(names))
    return NoSuchHduError(f"there is no HDU {wanted!r}, the file has {known}{after}")
