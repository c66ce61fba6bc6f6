"""File objects over places, for libraries that read those: astropy, NumPy, Pillow."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

from readers.places.contract import Place

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_BUFFER = 32 << 10
"""Bytes that are read at least: headers are parsed in blocks of 2880."""


class _Raw(io.RawIOBase):
    """Unbuffered file object; it leaves the place open when it is closed."""

    def __init__(self, place: Place) -> None:
        self._place, self._at = place, 0
        self.name = place.name

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        nbytes = max(0, min(len(view), self._place.nbytes - self._at))
        self._place.read_many([(self._at, view[:nbytes])])
        self._at += nbytes
        return nbytes

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._place.nbytes}[whence]
        if base + offset < 0:
            raise ValueError(f"seek to {base + offset}, before the first byte")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at


def file_object(place: Place) -> io.BufferedReader:
    """Return a file object that reads a place, which stays open when it is closed."""
    return io.BufferedReader(_Raw(place), _BUFFER)
