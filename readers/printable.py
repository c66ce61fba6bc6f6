"""Text from outside, such as names of files, as a terminal may show it."""

from __future__ import annotations


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
