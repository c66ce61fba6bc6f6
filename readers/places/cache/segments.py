"""Segments: immutable files, each with some bytes of one cell of an object.

Their names say all that is needed to read them: the range in the object, the CRC-32 of the bytes,
and the boot of the machine in which they were written or checked last. What this boot has written
is as good as the system's page cache; anything older, which a power cut may have spoilt, is checked
once, and renamed.
"""

from __future__ import annotations

import bisect
import os
import re
import time
import uuid
import zlib
from contextlib import suppress
from typing import NamedTuple

NEW = "new-"
"""Start of the names of segments while they are written."""
_NAME = re.compile(r"[0-9a-f]{21}-([0-9a-f]{12})-([0-9a-f]{12})-[0-9a-f]{8}-[0-9a-f]{8}")
_TOUCH_S = 60
"""Seconds between two notes that a segment was used: each is a write to its inode."""

_SETTLED_NS = 3_000_000_000
"""Age of a folder's last change from which its time is relied on: FAT counts in steps of 2 s."""
_MOST_KNOWN = 50_000
"""Names that a process keeps: some 6 MB."""


def boot_id() -> str:
    """Return what distinguishes this boot of the machine; where that is unknown, this process."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return uuid.UUID(file.read().strip()).hex[:8]
    except (OSError, ValueError):
        return uuid.uuid4().hex[:8]


def is_segment(name: str) -> bool:
    """Return whether a file of that name is a segment, whole or being written."""
    return name.startswith(NEW) or _NAME.fullmatch(name) is not None


def was_used_again(status: os.stat_result) -> bool:
    """Return whether a segment was read later than it was written.

    The time of modification says when it was used; that of access is left as it was made.
    """
    return status.st_mtime - status.st_atime > _TOUCH_S / 2


def segment_name(cell: str, start: int, data: memoryview, boot: str) -> str:
    """Return the path in the cache of a segment: the bytes of an object from `start` on."""
    return f"{cell}-{start:012x}-{start + len(data):012x}-{zlib.crc32(data):08x}-{boot}"


class Segment(NamedTuple):
    """The bytes from `start` up to `stop` of an object, in a file."""

    start: int
    stop: int
    path: str

    def read_into(self, boot: str, start: int, buffer: memoryview) -> bool:
        """Fill a buffer from `start` on; return False if the segment was evicted or is broken."""
        file = self._open(boot)
        if file is None:
            return False
        try:
            return os.preadv(file, [buffer], start - self.start) == len(buffer)
        finally:
            os.close(file)

    def _open(self, boot: str) -> int | None:
        """Open the file and note that it is used; None, and it is removed, if it is not whole."""
        try:
            file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOATIME)
        except FileNotFoundError:
            return None
        try:
            status = os.fstat(file)
            whole = status.st_size == self.stop - self.start
            if whole and not self.path.endswith(boot):
                whole = self._check(file, boot)
            if whole and abs(time.time() - status.st_mtime) > _TOUCH_S:
                os.utime(file, ns=(status.st_atime_ns, time.time_ns()))
        except BaseException:
            os.close(file)
            raise
        if whole:
            return file
        os.close(file)
        with suppress(FileNotFoundError):
            os.unlink(self.path)
        return None

    def _check(self, file: int, boot: str) -> bool:
        """Compare the bytes with their CRC; if they are right, this boot relies on them."""
        known, crc, _ = self.path.rsplit("-", 2)
        if f"{zlib.crc32(os.pread(file, self.stop - self.start, 0)):08x}" != crc:
            return False
        with suppress(FileNotFoundError):
            os.rename(self.path, f"{known}-{crc}-{boot}")
        return True


class Listing:
    """Content of a cache's folders, each listed when it is asked for and has changed."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._known, self._num_known = dict[str, tuple[int, list[str]]](), 0

    def segments(self, cell: str, start: int, stop: int) -> list[Segment]:
        """Return the segments of a cell that hold bytes of a range, sorted by start.

        Of segments that overlap, some may be left out: these are seldom, and hold the same bytes.
        """
        folder, _, prefix = cell.partition("/")
        names = self._in(f"{self._root}/{folder}")  # by cell and start, which have one length
        end = bisect.bisect_left(names, f"{prefix}-{stop:012x}")
        first = max(bisect.bisect_right(names, f"{prefix}-{start:012x}~", hi=end) - 1, 0)
        matches = [_NAME.fullmatch(name) for name in names[first:end] if name.startswith(prefix)]
        return [
            Segment(int(match[1], 16), int(match[2], 16), f"{self._root}/{folder}/{match[0]}")
            for match in matches
            if match
        ]

    def _in(self, folder: str) -> list[str]:
        """Return the sorted names in a folder; they are kept if its time tells when it changes."""
        try:
            changed_ns = os.stat(folder).st_mtime_ns
            known_ns, names = self._known.get(folder, (None, []))
            if known_ns == changed_ns:
                return names
            names = sorted(os.listdir(folder))
        except FileNotFoundError:
            return []
        if time.time_ns() - changed_ns > _SETTLED_NS:
            self._num_known += len(names)
            if self._num_known > _MOST_KNOWN:
                self._known, self._num_known = {}, len(names)
            self._known[folder] = changed_ns, names
        return names
