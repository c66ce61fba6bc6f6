"""Channel name of a file: AIA's channels by wavelength, HMI's products by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from readers.aia.keywords import number, text

_PRODUCTS = {
    "MAGNETOGRAM": "hmi_m",
    "DOPPLERGRAM": "hmi_v",
    "CONTINUUM INTENSITY": "hmi_ic",
    "LINE DEPTH": "hmi_ld",
    "LINE WIDTH": "hmi_lw",
}


def is_hmi(header: Mapping[str, Any]) -> bool:
    """Return whether a header is from HMI, by its INSTRUME."""
    return str(header.get("INSTRUME")).startswith("HMI")


def channel_name(header: Mapping[str, Any]) -> str:
    """Return the channel's name in presets, e.g. ``171`` (by WAVELNTH) or ``hmi_m`` (by CONTENT).

    ValueError if the header lacks the keyword, or has an unknown value.
    """
    if not is_hmi(header):
        return str(round(number(header, "WAVELNTH")))
    content = text(header, "CONTENT")
    if content not in _PRODUCTS:
        raise ValueError(f"CONTENT is {content!r}, expected one of {', '.join(_PRODUCTS)}")
    return _PRODUCTS[content]
