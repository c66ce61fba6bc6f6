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
_OF_ARRAY = re.compile(
    r"BUNIT|DATAMAX|DATAMIN|(WCSAXES|WCSNAME|LONPOLE|LATPOLE)[A-Z]?|CROTA\d+"
    r"|(CTYPE|CUNIT|CRVAL|CRPIX|CDELT|CNAME|CRDER|CSYER)\d+[A-Z]?|(PC|CD|PV|PS)\d+_\d+[A-Z]?"
    r"|(A|B|AP|BP)_(ORDER|DMAX|\d+_\d+)",
    re.IGNORECASE,
)
"""Keywords that describe an array: its values (section 4.4.2.5), and where its pixels lie (8.2),
also by SIP."""

Header = TypeVar("Header")


def headers_of(
    key: str, headers: Sequence[Header], holds: Callable[[Header, str], bool], *, has_array: bool
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
    has_array : bool
        Whether there is an array below the header from which it inherits, of which its BUNIT and
        coordinates are. Without one they are meant for the images.
    """
    name, _, of = key.partition(":")  # no keyword has one
    if not of:
        is_own = _OWN.fullmatch(name) or (has_array and _OF_ARRAY.fullmatch(name))
        return name, headers[:1] if is_own else headers
    at = next((at for at, header in enumerate(headers) if holds(header, of)), len(headers))
    return name, headers[at:]
