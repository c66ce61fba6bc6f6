"""Locks between threads and processes of one machine, on ranges of an empty file.

They belong to the open file description (``F_OFD_SETLK``). So threads exclude each other, and the
kernel releases the locks of a killed process.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

_FLOCK = "hhqqi0q"  # struct flock: l_type, l_whence, l_start, l_len, l_pid
_LONGEST_SLEEP_S = 0.01


@contextmanager
def locked(path: str, start: int, nbytes: int, patience_s: float) -> Iterator[None]:
    """Lock a range of a file. A missing file is created.

    Raises
    ------
    TimeoutError
        If another thread or process, e.g. a stopped one, holds the lock longer than `patience_s`.
    OSError
        If the file cannot be opened, or its file system does not support these locks.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _wait(file, start, nbytes, patience_s)
        try:
            yield
        finally:  # closing is not enough: a process forked meanwhile may keep the file open
            _set(file, fcntl.F_UNLCK, start, nbytes)
    finally:
        os.close(file)


def _wait(file: int, start: int, nbytes: int, patience_s: float) -> None:
    sleep_s, end_s = 0.0005, time.monotonic() + patience_s
    while True:
        try:
            return _set(file, fcntl.F_WRLCK, start, nbytes)
        except (BlockingIOError, PermissionError):  # POSIX allows either
            if time.monotonic() >= end_s:
                raise TimeoutError(f"another process held the lock for {patience_s} s") from None
        time.sleep(sleep_s)
        sleep_s = min(2 * sleep_s, _LONGEST_SLEEP_S)


def _set(file: int, kind: int, start: int, nbytes: int) -> None:
    fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, kind, os.SEEK_SET, start, nbytes, 0))
