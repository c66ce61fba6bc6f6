"""Values of keywords, parsed from the cards of a header as astropy parses them.

`astropy.io.fits.Header` looks at each card before the first value is known. Here only the wanted
cards are parsed, and those alone that leave no doubt: anything else is left to astropy.
"""

from __future__ import annotations

import re
from functools import lru_cache
from struct import Struct

from readers.fits.headers import END

Fact = bool | int | float | str | None

_VALUE = re.compile(
    rb" *(?:'([^']+)'|([+-]?\d+)|([+-]?(?:\d+\.?\d*|\.\d+)(?:[EDed][+-]?\d+)?)|([TF])"
    rb"|''(?=[^']*$)|) *(?:/.*)?"
)
"""Text, integer, float, logical, or no value; then a comment."""
_D_TO_E = bytes.maketrans(b"Dd", b"EE")
_USUAL = re.compile(rb"[!-<>-~]+ *| {8}")
"""Names of cards that have no other keyword than these 8 characters."""
_OTHERS = (b"COMMENT ", b"CONTINUE", b"HIERARCH", b"HISTORY ", b"END     ")
"""Names of cards without a value of their own."""
_WORD = re.compile(rb"HIERARCH +[^ =]+ *=")
"""A long form of a keyword that may have a short one, too."""
_MOST_NAMES = 1 << 16


class Unusual(Exception):
    """Only astropy can read this."""


class Cards:
    """The cards of a header by their names: keywords padded to 8 bytes.

    Parameters
    ----------
    text : bytes
        Whole blocks, with an END card.
    """

    def __init__(self, text: bytes) -> None:
        end = text.find(END)
        while end % 80:
            end = text.find(END, end + 1)
        count = end // 80
        self.text = text
        """All blocks."""
        self.names: tuple[bytes, ...] = _names(len(text) // 80).unpack(text)[:count]
        """Names of the cards, in their order."""
        self._first = dict(zip(reversed(self.names), range(count - 1, -1, -1), strict=True))

    def __contains__(self, name: bytes) -> bool:
        return name in self._first

    def card(self, number: int) -> bytes:
        """Return the 80 bytes of a card."""
        return self.text[80 * number : 80 * number + 80]

    def first(self, name: bytes) -> bytes | None:
        """Return the first card of a name."""
        number = self._first.get(name)
        return None if number is None else self.card(number)

    def continues(self, name: bytes) -> bool:
        """Return whether the value of the first card of a name goes on in the next card."""
        after = self._first.get(name, len(self.names)) + 1
        return self.names[after : after + 1] == (b"CONTINUE",)

    def repeats(self, name: bytes) -> bool:
        """Return whether there are several cards of a name."""
        return self.names.count(name) > 1

    @property
    def has_lower_case(self) -> bool:
        """Whether a name has a letter in lower case."""
        names = b"".join(self._first)
        return names != names.upper()

    def check_names(self) -> None:
        """Raise Unusual if a keyword may stand elsewhere than in the first columns of its card."""
        if not _usual_names.issuperset(self._first):
            _check(self._first)
        if b"HIERARCH" in self._first and _WORD.search(self.text):
            raise Unusual

    def fact(self, name: bytes) -> Fact:
        """Return the value of the first card of a name; None if there is none, or it is blank.

        Blanks at the end of text are removed; those at its start are a part of it.

        Raises
        ------
        Unusual
            If it cannot be parsed without doubt.
        """
        number = self._first.get(name)
        if number is None:
            return None
        at = 80 * number
        if self.text[at + 8 : at + 10] != b"= " or self.text[at + 80 : at + 88] == b"CONTINUE":
            raise Unusual
        found = _VALUE.fullmatch(self.text, at + 10, at + 80)
        if found is None:
            raise Unusual
        kind, value = found.lastindex, found[found.lastindex or 0]
        match kind:
            case 1:
                if b": " in value:  # maybe a record-valued keyword
                    raise Unusual
                text: str = value.decode().rstrip()
                return text or None
            case 2:
                return int(value)
            case 3:
                return float(value.translate(_D_TO_E))
            case 4:
                return value == b"T"
        return None

    def once(self, name: bytes) -> Fact:
        """Return the value of the only card of a name; raise Unusual if there are several, too."""
        if name in self._first and self.repeats(name):
            raise Unusual
        return self.fact(name)


@lru_cache
def card_name(key: str) -> bytes:
    """Return the name of the cards of a keyword in any case.

    Raises
    ------
    Unusual
        If it may be that of other cards, too.
    """
    name = f"{key.strip().upper():<8}"
    if not re.fullmatch(r"[A-Z0-9_-]+ *", name) or len(name) > 8 or name.encode() in _OTHERS:
        raise Unusual
    return name.encode()


@lru_cache
def _names(count: int) -> Struct:
    return Struct("8s72x" * count)


_usual_names: set[bytes] = set()


def _check(names: dict[bytes, int]) -> None:
    """Raise Unusual if a name is; those that are not are kept, as they are in all files."""
    if len(_usual_names) > _MOST_NAMES:
        _usual_names.clear()
    for name in names:
        if not _USUAL.fullmatch(name) or name == b"END     ":
            raise Unusual
        _usual_names.add(name)
