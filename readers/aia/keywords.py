"""Read required FITS keywords and check their types."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def number(header: Mapping[str, Any], key: str) -> float:
    """Return a numeric keyword; ValueError if it is missing or not a finite number."""
    value = header.get(key)
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    raise ValueError(f"{key} is {_shown(header, key)}, expected a number")


def text(header: Mapping[str, Any], key: str) -> str:
    """Return a text keyword without blanks around it; ValueError if missing, blank or not text."""
    value = header.get(key)
    if isinstance(value, str) and value.strip():
        return value.strip()
    raise ValueError(f"{key} is {_shown(header, key)}, expected a text")


def _shown(header: Mapping[str, Any], key: str) -> str:
    value = header.get(key)
    return "missing" if value is None else repr(value)
