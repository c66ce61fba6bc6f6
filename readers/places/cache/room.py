"""The folder of a cache: counts the bytes of all processes, and evicts files.

The folder has 256 subfolders. One file has a counter for each: the bytes that its files take. A
process that stores blocks first takes a lock, changes the counters, and gives the files their new
lengths; then it writes without the lock. So lengths include unfinished writes. A full cache lists
one subfolder after the other, which corrects its counter, and removes some of its files. After a
restart of the machine everything is counted again.
"""

from __future__ import annotations

import os
import re
import time
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from readers.cache.locks import locked
from readers.places.cache.cells import BLOCK, Cell, Piece, was_used_again

LOCKS = "locks"
_MARK = "CACHEDIR.TAG"
_TEXT = """Signature: 8a477f597d28d172789f06886806bc55
# Cache of byte ranges, version 2, made by dali-pipelines. It may be deleted at any time.
# This file makes backup programs leave the folder out: https://bford.info/cachedir/
"""
_FOLDERS = 256
_NAME = re.compile(r"[0-9a-f]{22}")
_SAMPLE = 4096
"""Minimum number of files to compare before an eviction, unless the cache has fewer."""
_RECENT_NS = 60 * 10**9
"""Files used within this time are evicted last, because they may have been read ahead."""
_PATIENCE_S = 10
"""Seconds to wait while another process stores blocks. Only a count of all files takes long."""


class CellFile(NamedTuple):
    """File of a cell. Files are sorted by their last use."""

    used_ns: int
    nbytes: int
    """Bytes on disk."""
    folder: int
    path: str
    is_used_again: bool
    """Whether it was read after it was made."""


def prepare(folder: str) -> None:
    """Make the folder of a cache, or check an existing folder.

    Raises
    ------
    ValueError
        If the folder has other files, or is a cache of another version.
    OSError
        If the folder cannot be made or written, or does not support locks.
    """
    os.makedirs(folder, mode=0o700, exist_ok=True)
    others = set(os.listdir(folder)) - {LOCKS}
    if _MARK not in others and others:
        raise ValueError(
            f"the folder of the cache has other files, e.g. {min(others)!r}: {folder!r}. Choose a "
            "new or an empty folder"
        )
    with locked(f"{folder}/{LOCKS}", 0, 1, patience_s=60):
        mark = Path(folder, _MARK)
        mark.touch(0o600)
        text = mark.read_text(encoding="ascii", errors="replace")
        if not text:  # new, or truncated by a power cut
            os.chmod(folder, 0o700)
            mark.write_text(_TEXT, encoding="ascii")
        elif text != _TEXT:
            raise ValueError(
                f"the folder of the cache belongs to another program or version: {folder!r}. "
                "Choose another folder, or delete this one"
            )


class Room:
    """Stores blocks in the folder of a cache, counts bytes, and makes room.

    Files may take `nbytes`, each rounded up to 4 KiB. `boot` identifies this start of the machine.
    """

    def __init__(self, folder: str, nbytes: int, boot: bytes) -> None:
        self._folder, self._nbytes, self._boot = folder, nbytes, boot
        self._usage = f"{folder}/usage-{boot.hex()}"

    def put(self, blocks: Iterable[tuple[Cell, int, memoryview]]) -> None:
        """Store whole blocks of cells if there is room.

        Each has its cell, the position of its first byte in the object, and bytes. OSError if they
        cannot be written, e.g. because the disk is full.
        """
        pieces: dict[Cell, list[Piece]] = {}
        for cell, start, data in blocks:
            pieces.setdefault(cell, []).append((start, data))
        while (needed := sum(_most(*each) for each in pieces.items())) > self._nbytes:
            pieces.popitem()
        with ExitStack() as files:
            with self._counted() as (used, counters):
                if sum(used) + needed > self._nbytes and not self._make_room(used, needed):
                    os.pwrite(counters, used, 0)
                    return
                new = [self._slots(files, *each) for each in pieces.items()]
                _resize(used, counters, [(one, one.end) for one in new])
            for number, one in enumerate(new):
                try:
                    self._fill(one)
                except BaseException:
                    self._give_back(new[number:])
                    raise

    def _slots(self, files: ExitStack, cell: Cell, pieces: list[Piece]) -> _Slots:
        """Open the file of a cell, and return its next slots."""
        file = _opened(f"{self._folder}/{cell.name}")
        files.callback(os.close, file)
        status = os.fstat(file)
        if 0 < status.st_size < cell.table_bytes:  # truncated
            os.ftruncate(file, 0)
        before = -(-max(0, status.st_size - cell.table_bytes) // BLOCK)
        return _Slots(cell, file, status, before, pieces)

    def _fill(self, new: _Slots) -> None:
        if not new.before:
            os.pwrite(new.file, self._boot, 0)
        slot = new.before + 1
        for start, data in new.pieces:
            new.cell.write(new.file, slot, data)
            new.cell.enter(new.file, slot, start, data)
            slot += -(-len(data) // BLOCK)
        os.utime(new.file, ns=(new.status.st_atime_ns, new.status.st_mtime_ns))  # this was no read

    def _give_back(self, new: Sequence[_Slots]) -> None:
        """Remove slots that were not filled, unless other slots follow them."""
        with suppress(OSError), self._counted() as (used, counters):
            now = [(one, os.fstat(one.file)) for one in new]
            last = [one for one, found in now if found.st_nlink and found.st_size == one.end]
            _resize(used, counters, [(one, one.begin) for one in last])

    @contextmanager
    def _counted(self) -> Iterator[tuple[array[int], int]]:
        """Lock the counters; yield them, and the file to write them to."""
        with locked(f"{self._folder}/{LOCKS}", 0, 1, _PATIENCE_S):
            file = os.open(self._usage, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                content = os.pread(file, 8 * _FOLDERS + 1, 0)
                yield array("q", content if len(content) == 8 * _FOLDERS else self._count()), file
            finally:
                os.close(file)

    def _count(self) -> list[int]:
        """Count the bytes of the files in each folder, and remove counts of earlier boots."""
        for path in Path(self._folder).glob("usage-*"):
            if str(path) != self._usage:
                path.unlink()
        return [sum(one.nbytes for one in self._listed(n)) for n in range(_FOLDERS)]

    def _listed(self, folder: int) -> list[CellFile]:
        """List the files of a folder."""
        found = list[CellFile]()
        with suppress(FileNotFoundError), os.scandir(f"{self._folder}/{folder:02x}") as files:
            for file in files:
                with suppress(FileNotFoundError):  # a reader has removed a damaged file
                    if _NAME.fullmatch(file.name):
                        status = file.stat(follow_symlinks=False)
                        used_ns, nbytes = status.st_mtime_ns, _on_disk(status.st_size)
                        again = was_used_again(status)
                        found.append(CellFile(used_ns, nbytes, folder, file.path, again))
        return found

    def _make_room(self, used: array[int], needed: int) -> bool:
        """Evict files until there is room; return whether this succeeded."""
        first, sample = os.urandom(1)[0], list[CellFile]()
        for turn in range(_FOLDERS):
            folder = (first + turn) % _FOLDERS
            found = self._listed(folder)
            used[folder] = sum(one.nbytes for one in found)
            sample += found
            if len(sample) >= _SAMPLE or turn == _FOLDERS - 1:
                self._evict(used, sample, needed)
                if sum(used) + needed <= self._nbytes:
                    return True
                sample.clear()
        return False

    def _evict(self, used: array[int], sample: list[CellFile], needed: int) -> None:
        """Remove files of a sample until there is room, at most a fifth of a large sample."""
        most = len(sample) // 5 if len(sample) >= _SAMPLE else len(sample)
        excess = sum(used) - min(self._nbytes - needed, self._nbytes // 100 * 95)
        for one in to_evict(sample)[:most]:
            if excess <= 0:
                break
            with suppress(FileNotFoundError):
                os.unlink(one.path)
            used[one.folder] -= one.nbytes
            excess -= one.nbytes


class _Slots(NamedTuple):
    """New slots at the end of the file of a cell."""

    cell: Cell
    file: int
    status: os.stat_result
    """Status of the file before the new slots were added."""
    before: int
    """Number of slots before the new ones."""
    pieces: list[Piece]
    """Content of the new slots, in whole blocks."""

    @property
    def begin(self) -> int:
        """First byte in the file."""
        return self.cell.table_bytes + self.before * BLOCK

    @property
    def end(self) -> int:
        """End in the file."""
        return self.begin + sum(len(data) for _, data in self.pieces)


def to_evict(sample: list[CellFile]) -> list[CellFile]:
    """Return files in the order of eviction.

    An epoch uses each row once, so the most recently used bytes are needed last. Therefore nine
    bytes in ten are evicted from the newest files that were never read again. With a cache for half
    of the rows, 43 % of reads are then hits; with eviction of the least recently used files it is
    14 %. One byte in ten is evicted from the least recently used files, to remove archives that are
    no longer in use.
    """
    oldest = sorted(sample)
    recent_ns = time.time_ns() - _RECENT_NS
    once = [one for one in oldest if not one.is_used_again and one.used_ns < recent_ns][::-1]
    mixed: list[CellFile] = []
    number, nbytes = 0, 0
    for one in once:
        mixed.append(one)
        nbytes += one.nbytes
        if nbytes >= 9 * oldest[number].nbytes:
            nbytes -= 9 * oldest[number].nbytes
            mixed.append(oldest[number])
            number += 1
    return list(dict.fromkeys([*mixed, *oldest]))


def _opened(path: str) -> int:
    """Open the file of a cell, and create it if it is missing."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        os.mkdir(os.path.dirname(path), 0o700)
        return os.open(path, flags, 0o600)


def _most(cell: Cell, pieces: Iterable[Piece]) -> int:
    """Return an upper limit of the bytes on disk that pieces of a cell add."""
    return cell.table_bytes + sum(len(data) for _, data in pieces) + 2 * BLOCK


def _resize(used: array[int], counters: int, lengths: Sequence[tuple[_Slots, int]]) -> None:
    """Count the bytes of files, then set their lengths, so that counts are never too small."""
    for one, nbytes in lengths:
        used[int(one.cell.name[:2], 16)] += _on_disk(nbytes) - _on_disk(os.fstat(one.file).st_size)
    os.pwrite(counters, used, 0)
    for one, nbytes in lengths:
        os.ftruncate(one.file, nbytes)


def _on_disk(nbytes: int) -> int:
    """Return the bytes on disk of a file of this length."""
    return -(-nbytes // BLOCK) * BLOCK
