"""Open files of an archive, rejecting everything that is not a regular file."""

from __future__ import annotations

import os
import stat
from typing import BinaryIO

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def open_regular(path: str) -> BinaryIO:
    """Open a file for reading, see `descriptor_of`."""
    return os.fdopen(descriptor_of(path), "rb")


def descriptor_of(path: str) -> int:
    """Open a file for reading; a FIFO or device is rejected, where ``open`` might wait forever.

    Raises
    ------
    OSError
        If the file is missing, unreadable, or not a regular file. The message ends in the path, as
        with ``open``.
    """
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    kind = stat.S_IFMT(os.fstat(file).st_mode)
    if kind != stat.S_IFREG:
        os.close(file)
        raise OSError(f"it is {_KINDS.get(kind, 'of another type')}, expected a file: {path!r}")
    return file
