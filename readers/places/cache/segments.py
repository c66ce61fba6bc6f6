"""Segments: immutable files, each with some bytes of one cell of an object.

Their names say all that is needed to read them: the range in the object, the CRC-32 of the bytes,
and the boot of the machine in which they were written or checked last. What this boot has written
is as good as the system's page cache; anything older, which a power cut may have spoilt, is checked
once, and renamed.
"""

from __future__ import annotations

import os
import re
import time
import uuid
import zlib
from contextlib import suppress
from typing import NamedTuple

NEW = "new-"
"""How the names of segments begin while they are written."""
_NAME = re.compile(r"[0-9a-f]+-[0-9a-f]+-[0-9a-f]{8}-[0-9a-f]{16}")
_TOUCH_S = 60
"""Seconds between two notes that a segment was used: each is a write to its inode."""


def boot_id() -> str:
    """Return what distinguishes this boot of the machine; where that is unknown, this process."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return uuid.UUID(file.read().strip()).hex[:16]
    except (OSError, ValueError):
        return uuid.uuid4().hex[:16]


def is_segment(name: str) -> bool:
    """Return whether a file of that name is a segment, whole or being written."""
    return name.startswith(NEW) or _NAME.fullmatch(name) is not None


def segment_name(start: int, data: memoryview, boot: str) -> str:
    """Return the name of the file for the bytes of an object from `start` on."""
    return f"{start:x}-{start + len(data):x}-{zlib.crc32(data):08x}-{boot}"


def segments_in(folder: str) -> list[Segment]:
    """List the segments of a cell, sorted by start; none if there is no such folder."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    found = []
    for name in names:
        if _NAME.fullmatch(name):
            start, stop, _ = name.split("-", 2)
            found.append(Segment(int(start, 16), int(stop, 16), folder, name))
    found.sort()
    return found


class Segment(NamedTuple):
    """The bytes from `start` up to `stop` of an object, in a file of the folder of a cell."""

    start: int
    stop: int
    folder: str
    name: str

    def read(self, boot: str, start: int, stop: int) -> bytes | None:
        """Read a range of the object; None if the segment was evicted or is broken."""
        file = self._open(boot)
        if file is None:
            return None
        try:
            found = os.pread(file, stop - start, start - self.start)
        finally:
            os.close(file)
        return found if len(found) == stop - start else None

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
        path = f"{self.folder}/{self.name}"
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            status = os.fstat(file)
            whole = status.st_size == self.stop - self.start
            if whole and not self.name.endswith(boot):
                whole = self._check(file, path, boot)
            if whole and abs(time.time() - status.st_mtime) > _TOUCH_S:
                os.utime(file)
        except BaseException:
            os.close(file)
            raise
        if whole:
            return file
        os.close(file)
        with suppress(FileNotFoundError):
            os.unlink(path)
        return None

    def _check(self, file: int, path: str, boot: str) -> bool:
        """Compare the bytes with their CRC; if they are right, this boot relies on them."""
        data = memoryview(os.pread(file, self.stop - self.start, 0))
        name = segment_name(self.start, data, boot)
        if name.rpartition("-")[0] != self.name.rpartition("-")[0]:
            return False
        with suppress(FileNotFoundError):
            os.rename(path, f"{self.folder}/{name}")
        return True
