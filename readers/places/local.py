"""Regular files of the file system; others are rejected."""

from __future__ import annotations

import os
import re
import stat
import time
import zlib
from collections.abc import Hashable, Sequence
from typing import Self

from readers.places.contract import too_short

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
_SETTLED_NS = 2_000_000_000
"""Time after a write without a stamp: another write may leave the same modification time."""

_PIECES, _PIECE_BYTES = 16, 4 << 10
"""Number and size of the pieces of a file that the checksum of its version covers."""
_ETAG = re.compile(r"\d+-[0-9a-f]{8}")
"""Form of the version of a file. The Index may have an ETag instead, for a copy of an object."""
_SEEN: set[tuple[Hashable, str]] = set()
"""Stamps and versions of files that this process has already compared."""
_MOST_SEEN = 1 << 16


class LocalPlace:
    """A file, which ``with`` opens and closes; or an open descriptor, which ``with`` closes.

    Parameters
    ----------
    path : str
        Path of the file.
    file : int, optional
        Open descriptor of its content.
    etag : str, optional
        Version in the Index, which the file must have. The ETag of an object is ignored.
    """

    __slots__ = ("_file", "_status", "_wanted", "name")

    def __init__(self, path: str, file: int | None = None, etag: str | None = None) -> None:
        self.name, self._wanted = path, etag
        self._file = -1 if file is None else file
        self._status: os.stat_result | None = None

    def __enter__(self) -> Self:
        """Open the file. FIFOs and devices are rejected: ``open`` may wait for them forever.

        Raises
        ------
        OSError
            If the file is missing, unreadable, not a regular file, or of another version. The
            message ends with the path, as with ``open``.
        """
        if self._file < 0:
            self._file, self._status = _opened(self.name)
        if self._wanted and _ETAG.fullmatch(self._wanted) and not self._is_wanted(self._wanted):
            self.__exit__()
            raise OSError(
                f"the file has changed since it was indexed, index it again: {self.name!r}"
            )
        return self

    def _is_wanted(self, etag: str) -> bool:
        seen = self.stamp, etag
        if seen in _SEEN:
            return True
        if self.etag != etag:
            return False
        if seen[0] is not None:
            if len(_SEEN) >= _MOST_SEEN:
                _SEEN.clear()
            _SEEN.add(seen)
        return True

    def __exit__(self, *_: object) -> None:
        os.close(self._file)
        self._file = -1

    @property
    def nbytes(self) -> int:
        """Length of the file when it was opened, or the present length of a descriptor."""
        return (self._status or os.fstat(self._file)).st_size

    @property
    def stamp(self) -> Hashable | None:
        """Path, inode, size and times; None for a file written to in the last two seconds."""
        status = self._status or os.fstat(self._file)
        changed = max(status.st_mtime_ns, status.st_ctime_ns)
        if time.time_ns() - changed < _SETTLED_NS:
            return None
        numbers = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
        return (self.name, *numbers, status.st_ctime_ns)

    @property
    def etag(self) -> str:
        """Length, and CRC-32 of pieces. The first is 8 KiB: an LMDB commit always changes it."""
        nbytes, crc = self.nbytes, zlib.crc32(self.read(0, 2 * _PIECE_BYTES))
        for piece in range(1, _PIECES + 1):
            start = max(0, nbytes - _PIECE_BYTES) * piece // _PIECES
            crc = zlib.crc32(self.read(start, start + _PIECE_BYTES), crc)
        return f"{nbytes}-{crc:08x}"

    def fileno(self) -> int:
        """Return the open descriptor, for libraries that read it themselves."""
        return self._file

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Do nothing: the kernel reads ahead."""

    def read(self, start: int, stop: int) -> bytes:
        """Read the bytes from `start` up to `stop`, fewer only at the end of the file."""
        parts: list[bytes] = []
        while start < stop and (found := os.pread(self._file, stop - start, start)):
            parts.append(found)  # Linux reads at most 2 GiB at a time
            start += len(found)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_many(self, pieces: Sequence[tuple[int, memoryview]]) -> None:
        """Fill buffers, each from its own position. Raises ValueError if the file is too short."""
        for start, buffer in pieces:
            found = 0
            while found < len(buffer):
                nbytes = os.preadv(self._file, [buffer[found:]], start + found)
                if nbytes == 0:
                    raise too_short(start + found, len(buffer), start)
                found += nbytes


def _opened(path: str) -> tuple[int, os.stat_result]:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError as error:
        reason = f"{error.strerror}; if the archive was moved, use Index.moved"
        raise FileNotFoundError(error.errno, reason, path) from None
    status = os.fstat(file)
    if (kind := stat.S_IFMT(status.st_mode)) != stat.S_IFREG:
        os.close(file)
        raise OSError(f"it is {_KINDS.get(kind, 'of another type')}, expected a file: {path!r}")
    return file, status
