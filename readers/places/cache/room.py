"""Room for segments: the bytes that are used, counted over all processes, and eviction.

A file has a counter for each of 256 shelves, which are 16 folders each. It is changed under a lock,
in which the file of the new segment is made at its full length, so that to list a shelf is to know
what it uses. Where there is no room, shelves are listed in turn, which corrects their counters, and
some of their segments are evicted. The name of the file has the boot of the machine: after a power
cut all is counted again.
"""

from __future__ import annotations

import fcntl
import os
from array import array
from contextlib import suppress
from typing import NamedTuple

from readers.cache.locks import locked
from readers.places.cache.folder import LOCKS
from readers.places.cache.segments import NEW
from readers.places.cache.shelves import (
    SHELVES,
    Listed,
    bytes_on_disk,
    listed,
    shelf_of,
    to_evict,
)

_SAMPLE = 4096
"""Segments that are compared at least before some are evicted, if there are as many."""
_PATIENCE_S = 10
"""Seconds to wait for another process that stores something: only to count all takes as long."""


class _New(NamedTuple):
    """The file of a segment that is to be written and renamed."""

    file: int
    path: str


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

    def put(self, name: str, data: memoryview) -> bool:
        """Write a segment; return False if there is no room for it.

        Raises
        ------
        OSError
            If it cannot be written, e.g. because the disk is full. Nothing is left of it.
        """
        new = self._reserve(name, len(data))
        if new is None:
            return False
        try:
            done = 0
            while done < len(data):
                done += os.write(new.file, data[done:])
            os.rename(new.path, f"{self._folder}/{name}")
        except BaseException:
            with suppress(OSError):
                os.unlink(new.path)
                self._release(name, len(data))
            raise
        finally:
            os.close(new.file)
        return True

    def _reserve(self, name: str, nbytes: int) -> _New | None:
        """Make the file of a new segment at its full length, once there is room for it.

        It is locked while it is open, so that nobody takes it for one that was left behind.
        """
        taken = bytes_on_disk(nbytes)
        if taken > self._nbytes:
            return None
        with locked(f"{self._folder}/{LOCKS}", 0, 1, _PATIENCE_S):
            used = self._read()
            has_room = sum(used) + taken <= self._nbytes or self._make_room(used, taken)
            used[shelf_of(name)] += taken * has_room
            self._write(used)  # before the file is there: never less than there is
            if not has_room:
                return None
            try:
                return self._new_file(name[:3], nbytes)
            except OSError:
                used[shelf_of(name)] -= taken
                self._write(used)
                raise

    def _release(self, name: str, nbytes: int) -> None:
        with locked(f"{self._folder}/{LOCKS}", 0, 1, _PATIENCE_S):
            used = self._read()
            used[shelf_of(name)] -= bytes_on_disk(nbytes)
            self._write(used)

    def _new_file(self, folder: str, nbytes: int) -> _New:
        path = f"{self._folder}/{folder}/{NEW}{os.urandom(8).hex()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            file = os.open(path, flags, 0o600)
        except FileNotFoundError:
            os.mkdir(os.path.dirname(path), 0o700)
            file = os.open(path, flags, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            os.ftruncate(file, nbytes)
        except BaseException:
            os.close(file)
            os.unlink(path)
            raise
        return _New(file, path)

    def _read(self) -> array[int]:
        used = array("q")
        try:
            with open(f"{self._folder}/{self._usage}", "rb") as file:
                used.frombytes(file.read())
        except (FileNotFoundError, ValueError):
            used = array("q")
        if len(used) != SHELVES:
            used = array("q", bytes(8 * SHELVES))
            for shelf in range(SHELVES):
                used[shelf] = sum(found.nbytes for found in listed(self._folder, shelf))
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
        first, sample = os.urandom(1)[0], list[Listed]()
        for turn in range(SHELVES):
            shelf = (first + turn) % SHELVES
            found = listed(self._folder, shelf)
            used[shelf] = sum(one.nbytes for one in found)
            sample += found
            if len(sample) >= _SAMPLE or turn == SHELVES - 1:
                self._evict(used, sample, taken)
                if sum(used) + taken <= self._nbytes:
                    return True
                sample.clear()
        return False

    def _evict(self, used: array[int], sample: list[Listed], taken: int) -> None:
        """Remove some segments of a sample: a fifth, or until there is enough room."""
        most = len(sample) // 5 if len(sample) >= _SAMPLE else len(sample)
        excess = sum(used) - min(self._nbytes - taken, self._nbytes // 100 * 95)
        for one in to_evict(sample)[:most]:
            if excess <= 0:
                break
            with suppress(FileNotFoundError):
                os.unlink(one.path)
            used[one.shelf] -= one.nbytes
            excess -= one.nbytes
