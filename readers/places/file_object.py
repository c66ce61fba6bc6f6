"""File objects over places, for libraries that need them: astropy, NumPy, Pillow."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO

from readers.places.contract import Place

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_BUFFER = 8 << 10
"""Smallest read, in bytes. astropy parses headers in blocks of 2880 bytes, and rereads them."""
_MOST_REHEARSALS = 16
"""Calls of a function by `BlockFile.look_ahead`; the rest is read when it is needed."""
_BEFORE, _AFTER = 2, 5
"""Number of blocks that `BlockFile` reads before and after the requested ones."""


class _Raw(io.RawIOBase):
    """Unbuffered file object; closing it leaves the place open."""

    def __init__(self, place: Place, start: int, before: bytes, block: int) -> None:
        self._place, self._start, self._before = place, start - len(before), before
        self._at = 0
        self._end = -(-place.nbytes // block) * block
        self.name = place.name
        self.nbytes_read = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        if before := self._before[self._at : self._at + len(view)]:
            view[: len(before)] = before
            self._at += len(before)
            return len(before)
        start = self._start + self._at
        nbytes = max(0, min(len(view), self._place.nbytes - start))
        self._place.read_many([(start, view[:nbytes])])
        self.nbytes_read += nbytes
        filled = max(nbytes, min(len(view), self._end - start))
        view[nbytes:filled] = bytes(filled - nbytes)
        self._at += filled
        return filled

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        end = self._end - self._start
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: end}[whence]
        if base + offset < 0:
            raise ValueError(f"seek to {base + offset}, before the first byte")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at


class BlockFile(_Raw):
    """File object that keeps all blocks it has read, for libraries that seek back and forth.

    Each request also reads a few blocks before and after, because related data are often on both
    sides of a boundary.

    Parameters
    ----------
    place : Place
        Open place.
    nbytes : int
        Size of a block in bytes.
    """

    def __init__(self, place: Place, nbytes: int = 8 << 10) -> None:
        super().__init__(place, 0, b"", 1)
        self._nbytes = nbytes
        self._blocks: dict[int, memoryview] = {}
        self._wanted: dict[int, None] | None = None

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill a buffer; fewer bytes only at the end of the place."""
        view = memoryview(buffer).cast("B")
        stop = min(self._at + len(view), self._place.nbytes)
        numbers = range(self._at // self._nbytes, -(-stop // self._nbytes))
        missing = [number for number in numbers if number not in self._blocks]
        if missing and self._wanted is not None:
            self._wanted.update(dict.fromkeys(missing))
            raise OSError("these blocks are read after the rehearsal")
        if missing:
            self._read(self._around(missing[0], missing[-1]))
        filled = 0
        for number in numbers:
            part = self._blocks[number][self._at + filled - number * self._nbytes :]
            part = part[: stop - self._at - filled]
            view[filled : filled + len(part)] = part
            filled += len(part)
        self._at += filled
        return filled

    def look_ahead(self, rehearsal: Callable[[], object]) -> None:
        """Read what a function needs, with few requests one after the other.

        The function is called several times. A read of blocks that are not there raises OSError;
        the function goes on with what does not depend on it. Then all of these are read at once.
        """
        for _ in range(_MOST_REHEARSALS):
            self._wanted = dict[int, None]()
            self.seek(0)
            with suppress(Exception):  # of any kind: the caller meets it again
                rehearsal()
            wanted, self._wanted = self._wanted, None
            if not wanted:
                break
            self._read(dict.fromkeys(one for n in wanted for one in self._around(n, n)))
        self.seek(0)

    def _around(self, first: int, last: int) -> range:
        """Return the blocks to read if these are missing."""
        end = min(last + _AFTER, (self._place.nbytes - 1) // self._nbytes)
        return range(max(0, first - _BEFORE), end + 1)

    def _read(self, numbers: Iterable[int]) -> None:
        """Read those blocks that are not there yet, at the same time."""
        missing = [number for number in numbers if number not in self._blocks]
        for number in missing:
            left = self._place.nbytes - number * self._nbytes
            self._blocks[number] = memoryview(bytearray(min(self._nbytes, left)))
        self._place.read_many([(n * self._nbytes, self._blocks[n]) for n in missing])


@contextmanager
def file_object(
    place: Place, start: int = 0, before: bytes = b"", block: int = 1, buffer: int = _BUFFER
) -> Iterator[tuple[BinaryIO, Callable[[], int]]]:
    """Yield a file object over an open place, and a function that returns the number of bytes read.

    The file consists of the bytes `before`, the place from `start` on, and zeros that fill the last
    block. At least `buffer` bytes are read at a time.
    """
    raw = _Raw(place, start, before, block)
    with io.BufferedReader(raw, buffer) as file:
        yield file, lambda: raw.nbytes_read
