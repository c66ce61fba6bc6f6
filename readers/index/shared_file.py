"""An open file that reader processes share with the process that opened it."""

from __future__ import annotations

import os
import weakref
from functools import cached_property
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from readers.errors import ReadError


class SharedFile:
    """An open file that this process and others read without copying it.

    The pickle holds the path of the file descriptor under /proc. So while this object lives, other
    processes read the file that was opened here, even if another file takes its name.

    Parameters
    ----------
    file : binary file
        Closed when this object is deleted.
    path : str, optional
        Its path, if it has one, so that other programs may write to it: `check` detects that.
    """

    def __init__(self, file: IO[bytes], path: str | None = None) -> None:
        self._location = f"/proc/{os.getpid()}/fd/{file.fileno()}"
        self.path = path or self._location
        self._file = file
        weakref.finalize(self, file.close)
        self._written = None if path is None else self._last_written()

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("path", "_location", "_written")}

    @cached_property
    def _file(self) -> IO[bytes]:
        """The owner's file, opened on first use in each process."""
        file = open(self._location, "rb", buffering=0)  # noqa: SIM115
        weakref.finalize(self, file.close)
        return file

    @cached_property
    def fileno(self) -> int:
        """File descriptor in this process."""
        return self._file.fileno()

    def read(self, start: int, nbytes: int) -> bytes:
        """Read some bytes, or raise ReadError; call `check` after reads that belong together.

        This is a system call: pages of a memory map would count as memory of each process, and
        SIGBUS would kill the process if the file has been truncated.
        """
        try:
            found = os.pread(self.fileno, nbytes, start)
        except OSError as error:
            raise ReadError(self.path, str(error)) from error
        if len(found) < nbytes:
            raise self.damaged(f"expected {nbytes} bytes at {start}, it ends before")
        return found

    def check(self) -> None:
        """Raise ReadError if the file was written to since it was opened."""
        if self._written is not None and self._last_written() != self._written:
            raise ReadError(
                self.path,
                "the file was written to while it was in use: start again, and replace files by "
                "renaming new ones, as Index.save does",
            )

    def damaged(self, reason: str) -> ReadError:
        """Return the error for invalid content, unless `check` raises a better one."""
        self.check()
        return ReadError(self.path, f"damaged: {reason}")

    def _last_written(self) -> tuple[int, int]:
        status = os.fstat(self.fileno)
        return status.st_size, status.st_mtime_ns

    @cached_property
    def _mapped(self) -> NDArray[np.uint8]:
        return np.memmap(self._file, np.uint8, mode="r")

    def view(self, dtype: str, start: int, count: int) -> NDArray[Any]:
        """Map some numbers from the byte `start` on, read-only."""
        kind = np.dtype(dtype)
        stop = start + count * kind.itemsize
        return self._mapped[start:stop].view(kind.base).reshape(-1, *kind.shape)
