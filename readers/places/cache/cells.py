"""Cells: parts of 1 MiB of an object. Each has a file with its stored blocks.

A file begins with the id of a boot of the machine, and a table. The table has for each block of the
cell the number of its slot, counted from 1, and its CRC-32; both are 0 for missing blocks. Then
come slots of 4 KiB, in the order in which blocks were stored. Files are not sparse, because file
systems count holes in different ways. So the length of a file is its size on disk.

A block is entered into the table after its bytes were written. So if a process is killed while it
writes a block, the block is missing. A power cut may damage files: reads after another boot compare
the CRCs.
"""

from __future__ import annotations

import hashlib
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from isal.isal_zlib import crc32
from numpy.typing import NDArray

BLOCK = 4 << 10
"""Only whole blocks are fetched. For a window of 450 kB in five rows of tiles, this adds 4 % to the
bytes; blocks of 64 KiB would add 70 %."""
CELL = 1 << 20
"""Only whole cells are evicted. Larger cells would keep more useless bytes beside useful ones, such
as the header of a frame."""
_ENTRY = np.dtype([("slot", "<u4"), ("crc", "<u4")])
_TOUCH_S = 60
"""Seconds between updates of the time of use of a file. Each update writes to its inode."""

Piece: TypeAlias = tuple[int, memoryview]
"""Position in an object, and a buffer with the bytes from there on, or to be filled with them."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A part of an object of a certain version, which never changes."""

    name: str
    """Path of its file in the folder of the cache."""
    start: int
    """First byte of the cell in the object."""
    nbytes: int
    """Length of the cell: 1 MiB, or less at the end of the object."""

    @property
    def table_bytes(self) -> int:
        """Bytes before the first slot in its file."""
        return (1 + -(-self.nbytes // BLOCK)) * _ENTRY.itemsize

    def read(self, folder: str, boot: bytes, start: int, buffer: memoryview) -> list[Piece]:
        """Fill a buffer with bytes of the cell, and return the missing parts.

        A damaged file is removed, and then the whole buffer is missing.
        """
        path = f"{folder}/{self.name}"
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOATIME)
        except FileNotFoundError:
            return [(start, buffer)]
        try:
            gaps = self._read(file, boot, start, buffer)
            if gaps is None:
                with suppress(FileNotFoundError):
                    os.unlink(path)
                return [(start, buffer)]
            if sum(len(part) for _, part in gaps) < len(buffer):
                _note_use(file)
        finally:
            os.close(file)
        return gaps

    def _read(self, file: int, boot: bytes, start: int, buffer: memoryview) -> list[Piece] | None:
        """Fill a buffer, and return the missing parts; None if the file is damaged."""
        at, gaps = start - self.start, list[Piece]()
        stop = at + len(buffer)
        first, last = at // BLOCK, -(-stop // BLOCK)
        size = _ENTRY.itemsize
        table = os.pread(file, (1 + last) * size, 0)
        if len(table) != (1 + last) * size:  # another process is making it
            return [(start, buffer)]
        entries, is_of_boot = np.frombuffer(table, _ENTRY)[1 + first :], table[:size] == boot
        for begin, end, slot in _runs(entries["slot"]):
            low, high = (first + begin) * BLOCK, min((first + end) * BLOCK, self.nbytes)
            wanted = max(low, at), min(high, stop)
            part = buffer[wanted[0] - at : wanted[1] - at]
            if not slot:
                gaps.append((self.start + wanted[0], part))
            elif is_of_boot:
                if os.preadv(file, [part], self._position(slot) + wanted[0] - low) != len(part):
                    return None
            else:
                head, tail = bytearray(wanted[0] - low), bytearray(high - wanted[1])
                found = os.preadv(file, [head, part, tail], self._position(slot))
                crcs = _crcs(head, part, tail)
                if found != high - low or crcs != entries["crc"][begin:end].tolist():
                    return None
        return gaps

    def write(self, file: int, slot: int, data: memoryview) -> None:
        """Write whole blocks into consecutive slots; `slot` is the first, counted from 1."""
        done = 0
        while done < len(data):
            done += os.pwrite(file, data[done:], self._position(slot) + done)

    def enter(self, file: int, slot: int, start: int, data: memoryview) -> None:
        """Enter written blocks into the table."""
        crcs = _crcs(b"", data, b"")
        entries = np.empty(len(crcs), _ENTRY)
        entries["slot"], entries["crc"] = range(slot, slot + len(crcs)), crcs
        os.pwrite(file, entries.tobytes(), (1 + (start - self.start) // BLOCK) * _ENTRY.itemsize)

    def _position(self, slot: int) -> int:
        return self.table_bytes + (slot - 1) * BLOCK


def boot_id() -> bytes:
    """Return an id of this boot of the machine; if it is unknown, an id of this process."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return uuid.UUID(file.read().strip()).bytes[:8]
    except (OSError, ValueError):
        return os.urandom(8)


def cells(key: str, size: int, start: int, stop: int) -> Iterator[tuple[Cell, int, int]]:
    """Split a range of an object at the ends of cells; yield cell, start and stop of each part.

    `key` identifies the object and its version; `size` is its length.
    """
    while start < stop:
        cell = _cell(key, size, start // CELL)
        end = min(stop, cell.start + cell.nbytes)
        yield cell, start, end
        start = end


@lru_cache(maxsize=64)
def _cell(key: str, size: int, number: int) -> Cell:
    text = f"{key}\0{size}\0{number}".encode("utf-8", "surrogatepass")
    name = hashlib.blake2b(text, digest_size=12).hexdigest()
    start = number * CELL
    return Cell(f"{name[:2]}/{name[2:]}", start, min(CELL, size - start))


def was_used_again(status: os.stat_result) -> bool:
    """Return whether the file of a cell was read after it was made.

    Its modification time is the last use, and its access time is the creation.
    """
    return status.st_mtime - status.st_atime > _TOUCH_S / 2


def _note_use(file: int) -> None:
    status = os.fstat(file)
    if abs(time.time() - status.st_mtime) > _TOUCH_S:
        os.utime(file, ns=(status.st_atime_ns, time.time_ns()))


def _runs(slots: NDArray[np.uint32]) -> Iterator[tuple[int, int, int]]:
    """Yield the first block, end and first slot of runs of blocks in consecutive slots.

    Missing blocks are runs, too, with slot 0.
    """
    before, after = slots[:-1], slots[1:]
    ends = np.flatnonzero(after - before != (before != 0)) + 1
    for begin, end in pairwise([0, *ends.tolist(), len(slots)]):
        yield begin, end, int(slots[begin])


def _crcs(head: bytes | bytearray, part: memoryview, tail: bytes | bytearray) -> list[int]:
    """Return the CRC-32 of each block of ``head + part + tail``.

    `head` and `tail` are shorter than a block.
    """
    inner = range(BLOCK - len(head), len(part), BLOCK)
    found = [crc32(part[: inner.start], crc32(head))]
    found += [crc32(part[at : at + BLOCK]) for at in inner]
    found[-1] = crc32(tail, found[-1])
    return found
