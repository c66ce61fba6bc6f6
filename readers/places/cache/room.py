"""The folder of a cache, and the room in it: bytes are counted over all processes, and evicted.

A file has a counter for each of 256 folders, the bytes that its files take. It is changed under a
lock, in which a file gets the length that it will have. So to list a folder is to know what its
files take, also those that are being written. Where there is no room, folders are listed in turn,
which corrects their counters, and some of their files are removed. After a restart of the machine
all is counted again.
"""

from __future__ import annotations

import os
import re
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from readers.cache.locks import locked
from readers.places.cache.cells import BLOCK, Cell, was_used_again

LOCKS = "locks"
_MARK = "CACHEDIR.TAG"
_TEXT = """Signature: 8a477f597d28d172789f06886806bc55
# Cache of byte ranges, version 2, made by dali-pipelines. It may be deleted at any time.
# This file makes backup programs leave the folder out: https://bford.info/cachedir/
"""
_FOLDERS = 256
_NAME = re.compile(r"[0-9a-f]{22}")
_SAMPLE = 4096
"""Files that are compared at least before some are evicted, if there are as many."""
_RECENT_NS = 60 * 10**9
"""A file that was used since is evicted last: it may be one that was read ahead."""
_PATIENCE_S = 10
"""Seconds to wait for another process that stores something: only to count all takes as long."""


class Listed(NamedTuple):
    """File of a cell; sorted by when it was used."""

    used_ns: int
    nbytes: int
    """Bytes on disk."""
    folder: int
    path: str
    is_used_again: bool
    """Whether it was read later than it was made."""


def prepare(folder: str) -> None:
    """Make the folder of a cache, or check that it is one.

    Raises
    ------
    ValueError
        If it holds other files, or is a cache of another version.
    OSError
        If it cannot be made or written, or has no locks.
    """
    os.makedirs(folder, mode=0o700, exist_ok=True)
    others = set(os.listdir(folder)) - {LOCKS}
    if _MARK not in others and others:
        raise ValueError(
            f"the folder of the cache holds other files, e.g. {min(others)!r}: {folder!r}. Give a "
            "new or an empty folder"
        )
    with locked(f"{folder}/{LOCKS}", 0, 1, patience_s=60):
        mark = Path(folder, _MARK)
        mark.touch(0o600)
        text = mark.read_text(encoding="ascii", errors="replace")
        if not text:  # also after a power cut
            os.chmod(folder, 0o700)
            mark.write_text(_TEXT, encoding="ascii")
        elif text != _TEXT:
            raise ValueError(
                f"the folder of the cache is one of another program or version: {folder!r}. Give "
                "another folder, or delete this one"
            )


class Room:
    """Bytes of a cache that are used, and that are free.

    Parameters
    ----------
    folder : str
        Folder of the cache.
    nbytes : int
        Bytes that its files may take, each rounded up to 4 KiB.
    boot : bytes
        What distinguishes this start of the machine.
    """

    def __init__(self, folder: str, nbytes: int, boot: bytes) -> None:
        self._folder, self._nbytes, self._boot = folder, nbytes, boot
        self._usage = f"{folder}/usage-{boot.hex()}"

    def put(self, cell: Cell, start: int, data: memoryview) -> None:
        """Store whole blocks of a cell, if there is room for them.

        Raises
        ------
        OSError
            If they cannot be written, e.g. because the disk is full.
        """
        most = cell.table_bytes + len(data) + 2 * BLOCK  # with what is rounded up
        with self._counted() as used:
            if sum(used) + most > self._nbytes and not self._make_room(used, most):
                self._write(used)
                return
            file = _opened(f"{self._folder}/{cell.name}")
            try:
                status = os.fstat(file)
                if is_new := status.st_size < cell.table_bytes:
                    os.ftruncate(file, 0)  # if it was cut off, its slots are used again
                begin = cell.table_bytes if is_new else status.st_size
                slot = 1 + -((cell.table_bytes - begin) // BLOCK)
                end = cell.table_bytes + (slot - 1) * BLOCK + len(data)
                self._resize(used, cell, file, end)
                if is_new:
                    os.pwrite(file, self._boot, 0)
            except BaseException:
                os.close(file)
                raise
        try:
            try:
                cell.write(file, slot, data)
            except BaseException:
                self._give_back(cell, file, begin, end)
                raise
            cell.enter(file, slot, start, data)
            os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))  # it was not read
        finally:
            os.close(file)

    def _give_back(self, cell: Cell, file: int, begin: int, end: int) -> None:
        """Cut off slots that were not written, unless there are others after them."""
        with suppress(OSError), self._counted() as used:
            status = os.fstat(file)
            if status.st_nlink and status.st_size == end:
                self._resize(used, cell, file, begin)

    @contextmanager
    def _counted(self) -> Iterator[array[int]]:
        """Lock the counters, and yield them."""
        with locked(f"{self._folder}/{LOCKS}", 0, 1, _PATIENCE_S):
            yield self._read()

    def _resize(self, used: array[int], cell: Cell, file: int, nbytes: int) -> None:
        used[int(cell.name[:2], 16)] += _on_disk(nbytes) - _on_disk(os.fstat(file).st_size)
        self._write(used)  # before the bytes are taken: never less than there are
        os.ftruncate(file, nbytes)

    def _read(self) -> array[int]:
        used = array("q")
        try:
            with open(self._usage, "rb") as file:
                used.frombytes(file.read())
        except (FileNotFoundError, ValueError):
            used = array("q")
        if len(used) != _FOLDERS:
            used = array("q", (sum(one.nbytes for one in self._listed(n)) for n in range(_FOLDERS)))
            for path in Path(self._folder).glob("usage-*"):
                path.unlink()
        return used

    def _write(self, used: array[int]) -> None:
        file = os.open(self._usage, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(file, used.tobytes(), 0)
        finally:
            os.close(file)

    def _listed(self, folder: int) -> list[Listed]:
        """List the files of a folder."""
        found = list[Listed]()
        with suppress(FileNotFoundError), os.scandir(f"{self._folder}/{folder:02x}") as files:
            for file in files:
                with suppress(FileNotFoundError):  # a reader has removed a damaged one
                    if _NAME.fullmatch(file.name):
                        status = file.stat(follow_symlinks=False)
                        used_ns, nbytes = status.st_mtime_ns, _on_disk(status.st_size)
                        again = was_used_again(status)
                        found.append(Listed(used_ns, nbytes, folder, file.path, again))
        return found

    def _make_room(self, used: array[int], needed: int) -> bool:
        """Evict files until there is room; return whether there is."""
        first, sample = os.urandom(1)[0], list[Listed]()
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

    def _evict(self, used: array[int], sample: list[Listed], needed: int) -> None:
        """Remove some files of a sample: a fifth, or until there is enough room."""
        most = len(sample) // 5 if len(sample) >= _SAMPLE else len(sample)
        excess = sum(used) - min(self._nbytes - needed, self._nbytes // 100 * 95)
        for one in to_evict(sample)[:most]:
            if excess <= 0:
                break
            with suppress(FileNotFoundError):
                os.unlink(one.path)
            used[one.folder] -= one.nbytes
            excess -= one.nbytes


def to_evict(sample: list[Listed]) -> list[Listed]:
    """Return files in the order of eviction.

    An epoch uses each row once, so what was used last is needed last. Hence nine bytes in ten are
    of the newest files that were never read again. Where the cache holds half of the rows, 43 % of
    reads are hits, and 14 % if the least recently used files are removed. One byte in ten is of
    these all the same, so that archives that are not used any more give way.
    """
    oldest = sorted(sample)
    recent_ns = time.time_ns() - _RECENT_NS
    once = [one for one in oldest if not one.is_used_again and one.used_ns < recent_ns][::-1]
    mixed: list[Listed] = []
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
    """Open the file of a cell, which is made if it is missing."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        os.mkdir(os.path.dirname(path), 0o700)
        return os.open(path, flags, 0o600)


def _on_disk(nbytes: int) -> int:
    """Return the bytes that a file of a length takes."""
    return -(-nbytes // BLOCK) * BLOCK
