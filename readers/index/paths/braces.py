"""Ranges of numbers in paths and URLs, as shells and WebDataset write them: ``{0000..0999}``."""

from __future__ import annotations

import re

_BRACES = re.compile(r"\{(\d+)\.\.(\d+)\}")


def expanded(text: str) -> list[str]:
    """Return a text for each number of each range in it, with as many digits as the first has."""
    found = _BRACES.search(text)
    if found is None:
        return [text]
    first, last = found.groups()
    begin, rest = text[: found.start()], expanded(text[found.end() :])
    numbers = (f"{number:0{len(first)}}" for number in range(int(first), int(last) + 1))
    return [f"{begin}{number}{end}" for number in numbers for end in rest]
