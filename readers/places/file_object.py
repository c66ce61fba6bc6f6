"""File objects over places, for libraries that read those: astropy, NumPy, Pillow."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

from readers.places.contract import Place

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_BUFFER = 8 << 10
"""Bytes that are read at least: headers are parsed in blocks of 2880. They are read again after a
seek."""


class _Raw(io.RawIOBase):
    """Unbuffered file object; it leaves the place open when it is closed."""

    def __init__(self, place: Place) -> None:
        self._place, self._at = place, 0
        self.name = place.name
        self.nbytes_read = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        nbytes = max(0, min(len(view), self._place.nbytes - self._at))
        self._place.read_many([(self._at, view[:nbytes])])
        self._at += nbytes
        self.nbytes_read += nbytes
        return nbytes

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._place.nbytes}[whence]
        if base + offset < 0:
            raise ValueError(f"seek to {base + offset}, before the first byte")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at


@contextmanager
def file_object(place: Place) -> Iterator[tuple[BinaryIO, Callable[[], int]]]:
    """Yield a file object that reads an open place, and a function that counts the bytes read."""
    raw = _Raw(place)
    with io.BufferedReader(raw, _BUFFER) as file:
        yield file, lambda: raw.nbytes_read
