"""Opening files of an archive, whatever lies there under their names."""

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
    """Open a file for reading; what is no file is refused, where ``open`` might wait for ever.

    Raises
    ------
    OSError
        If there is no file, it may not be read, or it is something else. Its text ends in the path,
        as that of ``open`` does.
    """
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    kind = stat.S_IFMT(os.fstat(file).st_mode)
    if kind != stat.S_IFREG:
        os.close(file)
        raise OSError(f"it is {_KINDS.get(kind, 'no file')}, expected a file: {path!r}")
    return os.fdopen(file, "rb")
