"""What a row of a container holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from readers.places.opener import LOCAL


def _content(row: Mapping[str, Any], part: str = "") -> bytes:
    with LOCAL.at(*(row[f"{part}{name}"] for name in ("path", "offset", "nbytes"))) as place:
        return place.read(0, place.nbytes)


@pytest.fixture(scope="session")
def content() -> Callable[..., bytes]:
    """Return the bytes of a row of a table, or of one of its parts by its prefix."""
    return _content
