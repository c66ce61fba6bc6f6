"""Open places by path or URL."""

from __future__ import annotations

from dataclasses import dataclass

from readers.places.contract import Place
from readers.places.local import LocalPlace
from readers.places.span import SpanPlace


@dataclass(frozen=True, slots=True)
class Places:
    """Opens what rows name; it is pickled and sent to reader processes, and holds settings only."""

    def open(self, path: str, offset: int | None = None, nbytes: int | None = None) -> Place:
        """Open a file, or `nbytes` of it from `offset` on.

        Raises
        ------
        OSError
            If it is missing, unreadable, or not a regular file. The message ends in the path, as
            with ``open``.
        """
        place = LocalPlace(path)
        return place if offset is None or nbytes is None else SpanPlace(place, offset, nbytes)


LOCAL = Places()
"""Opens files of the file system."""
