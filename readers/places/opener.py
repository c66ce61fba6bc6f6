"""Places of rows, by path or URL."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from readers.places.contract import Place
from readers.places.local import LocalPlace
from readers.places.span import SpanPlace
from readers.places.storage import Storage
from readers.places.urls import is_url

if TYPE_CHECKING:
    from readers.places.cache.disk import DiskCache


@dataclass(frozen=True, slots=True)
class Places:
    """Finds the places of rows. It holds only settings, and is sent to reader processes."""

    storage: Storage = field(default_factory=Storage)
    """Settings for requests of remote objects."""
    cache: DiskCache | None = None
    """Cache on local disk for bytes of remote objects."""

    def at(
        self,
        path: str,
        offset: int | None = None,
        nbytes: int | None = None,
        *,
        etag: str | None = None,
        file_bytes: int | None = None,
    ) -> Place:
        """Return a file or object, or `nbytes` of it from `offset` on; ``with`` opens it.

        `etag` and `file_bytes` are the version and length in the Index, if it has them.
        """
        place: Place
        if is_url(path):
            from readers.places.remote import RemotePlace

            place = RemotePlace(path, self.storage, etag, file_bytes, self.cache)
        else:
            place = LocalPlace(path, etag=etag)
        return place if offset is None or nbytes is None else SpanPlace(place, offset, nbytes)


LOCAL = Places()
"""Finds files, and remote objects with default settings."""
