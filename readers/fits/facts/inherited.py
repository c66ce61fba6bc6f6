"""Which headers a keyword of an image is taken from (FITS Standard 4.0, appendix K)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

_OWN = re.compile(
    r"SIMPLE|XTENSION|BITPIX|NAXIS\d*|EXTEND|BLOCKED|GROUPS|PCOUNT|GCOUNT|CHECKSUM|DATASUM"
    r"|BSCALE|BZERO|BLANK|INHERIT|EXTNAME|EXTVER|EXTLEVEL",
    re.IGNORECASE,
)
"""Keywords that say how the data of a header are stored, or name them (sections 4.4.1, 4.4.2)."""

Header = TypeVar("Header")


def headers_of(
    key: str, headers: Sequence[Header], holds: Callable[[Header, str], bool]
) -> tuple[str, Sequence[Header]]:
    """Return a keyword, and which of these headers to look for it in, in this order.

    Parameters
    ----------
    key : str
        A keyword. ``TIMESYS:KEY`` is TIMESYS for the time in KEY: that of the header which holds
        KEY, or if it is inherited there.
    headers : sequence
        That of the image, then those from which it inherits.
    holds : callable
        Called with a header and a keyword: whether it is there.
    """
    name, _, of = key.partition(":")  # no keyword has one
    if not of:
        return name, headers[:1] if _OWN.fullmatch(name) else headers
    at = next((at for at, header in enumerate(headers) if holds(header, of)), len(headers))
    return name, headers[at:]
