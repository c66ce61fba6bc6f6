"""What a file is of: AIA's channels by their wavelength, HMI's products by their name."""

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
    """Return whether a header is of HMI: its INSTRUME says so."""
    return str(header.get("INSTRUME")).startswith("HMI")


def channel_name(header: Mapping[str, Any]) -> str:
    """Name the channel of a header, as presets do: ``171``, or ``hmi_m`` by CONTENT.

    Raises
    ------
    ValueError
        If the header does not tell.
    """
    if not is_hmi(header):
        return str(round(number(header, "WAVELNTH")))
    content = text(header, "CONTENT")
    if content not in _PRODUCTS:
        raise ValueError(f"CONTENT is {content!r}, expected one of {', '.join(_PRODUCTS)}")
    return _PRODUCTS[content]
