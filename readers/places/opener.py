"""Places of rows, by path or URL."""

from __future__ import annotations

from dataclasses import dataclass

from readers.places.contract import Place
from readers.places.local import LocalPlace
from readers.places.span import SpanPlace


@dataclass(frozen=True, slots=True)
class Places:
    """Finds the places that rows name; it is sent to reader processes, and holds settings only."""

    def at(self, path: str, offset: int | None = None, nbytes: int | None = None) -> Place:
        """Return a file, or `nbytes` of it from `offset` on; opened by ``with``."""
        place = LocalPlace(path)
        return place if offset is None or nbytes is None else SpanPlace(place, offset, nbytes)


LOCAL = Places()
"""Finds files of the file system."""
