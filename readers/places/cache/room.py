"""Room for segments: the bytes that are used, counted over all processes, and eviction.

A file has a counter for each of the 256 shelves. It is changed under a lock, in which the file of
the new segment is made at its full length, so that to list a shelf is to know what it uses. Where
there is no room, shelves are listed in turn, which corrects their counters, and the segments that
were not used for longest are removed. The name of the file has the boot of the machine: after a
power cut all is counted anew.
"""

from __future__ import annotations

import fcntl
import os
from array import array
from contextlib import suppress
from typing import NamedTuple

from readers.places.cache.folder import LOCKS
from readers.places.cache.locks import locked
from readers.places.cache.ranges import BLOCK
from readers.places.cache.segments import NEW, is_segment

_SHELVES = 256
_SAMPLE = 4096
"""Segments that are compared at least before some are evicted, if there are as many."""
_PATIENCE_S = 10


class _Found(NamedTuple):
    """A segment in a list of a shelf, sorted by when it was used."""

    used_ns: int
    nbytes: int
    shelf: int
    folder: str
    name: str


class _New(NamedTuple):
    """The file of a segment that is to be written and renamed."""

    file: int
    folder: str
    name: str


class Room:
    """Bytes of a cache that are used, and that are free.

    Parameters
    ----------
    folder : str
        Folder of the cache.
    nbytes : int
        Bytes that its segments may take, each rounded up to 4 KiB.
    boot : str
        What distinguishes this boot of the machine.
    """

    def __init__(self, folder: str, nbytes: int, boot: str) -> None:
        self._folder, self._nbytes, self._usage = folder, nbytes, f"usage-{boot}"

    def put(self, cell: str, name: str, data: memoryview) -> bool:
        """Write a segment into the folder of a cell; return False if there is no room for it.

        Raises
        ------
        OSError
            If it cannot be written, e.g. because the disk is full. Nothing is left of it.
        """
        new = self._reserve(cell, len(data))
        if new is None:
            return False
        path = f"{new.folder}/{new.name}"
        try:
            done = 0
            while done < len(data):
                done += os.write(new.file, data[done:])
            os.rename(path, f"{new.folder}/{name}")
        except BaseException:
            with suppress(OSError):
                os.unlink(path)
                self._release(cell, len(data))
            raise
        finally:
            os.close(new.file)
        return True

    def _reserve(self, cell: str, nbytes: int) -> _New | None:
        """Make the file of a new segment at its full length, once there is room for it.

        It is locked while it is open, so that nobody takes it for one that was left behind.
        """
        taken = _on_disk(nbytes)
        if taken > self._nbytes:
            return None
        with locked(f"{self._folder}/{LOCKS}", 0, 1, _PATIENCE_S) as held:
            if not held:
                return None
            used = self._read()
            has_room = sum(used) + taken <= self._nbytes or self._make_room(used, taken)
            used[int(cell[:2], 16)] += taken * has_room
            self._write(used)  # before the file is there: never less than there is
            return self._new_file(cell, nbytes) if has_room else None

    def _release(self, cell: str, nbytes: int) -> None:
        with locked(f"{self._folder}/{LOCKS}", 0, 1, _PATIENCE_S) as held:
            if held:
                used = self._read()
                used[int(cell[:2], 16)] -= _on_disk(nbytes)
                self._write(used)

    def _new_file(self, cell: str, nbytes: int) -> _New:
        folder = f"{self._folder}/{cell}"
        for each in (os.path.dirname(folder), folder):
            with suppress(FileExistsError):
                os.mkdir(each, 0o700)
        name = f"{NEW}{os.urandom(8).hex()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        file = os.open(f"{folder}/{name}", flags, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            os.ftruncate(file, nbytes)
        except BaseException:
            os.close(file)
            raise
        return _New(file, folder, name)

    def _read(self) -> array[int]:
        used = array("q")
        try:
            with open(f"{self._folder}/{self._usage}", "rb") as file:
                used.frombytes(file.read())
        except (FileNotFoundError, ValueError):
            used = array("q")
        if len(used) != _SHELVES:
            used = array("q", bytes(8 * _SHELVES))
            for shelf in range(_SHELVES):
                used[shelf] = sum(found.nbytes for found in self._list(shelf))
            for name in os.listdir(self._folder):
                if name.startswith("usage-"):
                    os.unlink(f"{self._folder}/{name}")
        return used

    def _write(self, used: array[int]) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        file = os.open(f"{self._folder}/{self._usage}", flags, 0o600)
        try:
            os.pwrite(file, used.tobytes(), 0)
        finally:
            os.close(file)

    def _make_room(self, used: array[int], taken: int) -> bool:
        """Evict segments until there is room; return whether there is."""
        first, sample = os.urandom(1)[0], list[_Found]()
        for turn in range(_SHELVES):
            shelf = (first + turn) % _SHELVES
            found = self._list(shelf)
            used[shelf] = sum(one.nbytes for one in found)
            sample += found
            if len(sample) >= _SAMPLE or turn == _SHELVES - 1:
                self._evict(used, sample, taken)
                if sum(used) + taken <= self._nbytes:
                    return True
                sample.clear()
        return False

    def _evict(self, used: array[int], sample: list[_Found], taken: int) -> None:
        """Remove the segments of a sample that were not used for longest: a fifth, or enough."""
        goal = min(self._nbytes - taken, self._nbytes // 100 * 95)
        most = len(sample) // 5 if len(sample) >= _SAMPLE else len(sample)
        excess = sum(used) - goal
        for one in sorted(sample)[:most]:
            if excess <= 0:
                break
            if one.name.startswith(NEW):  # it is being written
                continue
            with suppress(FileNotFoundError):
                os.unlink(f"{one.folder}/{one.name}")
            with suppress(OSError):  # it holds others
                os.rmdir(one.folder)
            used[one.shelf] -= one.nbytes
            excess -= one.nbytes

    def _list(self, shelf: int) -> list[_Found]:
        """List the segments of a shelf, and remove what killed processes have left."""
        folder = f"{self._folder}/{shelf:02x}"
        try:
            cells = os.listdir(folder)
        except FileNotFoundError:
            return []
        return [found for cell in cells for found in _listed(f"{folder}/{cell}", shelf)]


def _listed(folder: str, shelf: int) -> list[_Found]:
    """List the segments of a cell: again, if one is renamed or removed meanwhile."""
    while True:
        found = []
        try:
            with os.scandir(folder) as files:
                for file in files:
                    if is_segment(file.name) and not _was_left(file):
                        status = file.stat()
                        nbytes = _on_disk(status.st_size)
                        found.append(_Found(status.st_mtime_ns, nbytes, shelf, folder, file.name))
        except FileNotFoundError:
            if os.path.isdir(folder):
                continue
        except NotADirectoryError:
            pass
        return found


def _on_disk(nbytes: int) -> int:
    return -(-nbytes // BLOCK) * BLOCK


def _was_left(entry: os.DirEntry[str]) -> bool:
    """Return whether a file was being written by a process that is gone; it is removed."""
    if not entry.name.startswith(NEW):
        return False
    file = os.open(entry.path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        os.unlink(entry.path)
        return True
    finally:
        os.close(file)
