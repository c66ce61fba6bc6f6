"""Text for messages: near names for unknown ones, and outside text made safe to print."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from types import MappingProxyType


def did_you_mean(
    name: str, known: Collection[str], others: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Return a question that names what is near, and a blank; or an empty text.

    Parameters
    ----------
    name : str
        A name that is unknown.
    known : collection of str
        Names that there are.
    others : mapping of str to str
        What other projects call some of them.
    """
    own = {other: ours for other, ours in others.items() if ours in known}
    found = difflib.get_close_matches(name, [*known, *own])
    near = dict.fromkeys(own.get(each, each) for each in found)
    return f"did you mean {' or '.join(near)}? " if near else ""


def printable(text: object) -> str:
    """Return a text with control characters, line breaks and the like as backslash escapes.

    A file's name may hold what moves the cursor, sets a terminal's title, or forges a line of a
    log. What is no UTF-8 of it (surrogates) is escaped as well.
    """
    raw = str(text)
    if raw.isprintable():
        return raw
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in raw
    )
