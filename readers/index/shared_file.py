"""A file that this process has open, and that its reader processes read, too."""

from __future__ import annotations

import os
import weakref
from functools import cached_property
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from readers.errors import ReadError


class SharedFile:
    """An open file that is read, and not copied, by this process and by others.

    Pickled, it is only where this process has the file open, under /proc. So others read the file
    that was opened here, whatever has taken its name since, for as long as this object lives.

    Parameters
    ----------
    file : binary file
        It is closed when this object goes.
    path : str, optional
        Its path, if it has one, by which others may come and write to it: then `check` looks.
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
        """The owner's file, opened lazily and once in each process."""
        file = open(self._location, "rb", buffering=0)  # noqa: SIM115
        weakref.finalize(self, file.close)
        return file

    @cached_property
    def fileno(self) -> int:
        """File descriptor of this process."""
        return self._file.fileno()

    def read(self, start: int, nbytes: int) -> bytes:
        """Read some bytes; `check` them behind the last read of what belongs together.

        By a system call: the pages of a map would count as memory of each process, and where the
        file was cut off meanwhile, a map would end the process.

        Raises
        ------
        ReadError
            If they cannot be read.
        """
        try:
            found = os.pread(self.fileno, nbytes, start)
        except OSError as error:
            raise ReadError(self.path, str(error)) from error
        if len(found) < nbytes:
            raise self.damaged(f"expected {nbytes} bytes at {start}, it ends before")
        return found

    def check(self) -> None:
        """Make sure that the file is as it was when it was opened.

        Raises
        ------
        ReadError
            If it was written to.
        """
        if self._written is not None and self._last_written() != self._written:
            raise ReadError(
                self.path,
                "the file was written to while it was in use: start again, and let new files take "
                "the place of old ones by renaming, as Index.save does",
            )

    def damaged(self, reason: str) -> ReadError:
        """Return the error for content that cannot be, unless `check` has a better one."""
        self.check()
        return ReadError(self.path, f"damaged: {reason}")

    def _last_written(self) -> tuple[int, int]:
        status = os.fstat(self.fileno)
        return status.st_size, status.st_mtime_ns

    @cached_property
    def _mapped(self) -> NDArray[np.uint8]:
        return np.memmap(self._file, np.uint8, mode="r")

    def view(self, dtype: str, start: int, size: int) -> NDArray[Any]:
        """Map `size` numbers from the byte `start` on, read-only."""
        stop = start + size * np.dtype(dtype).itemsize
        return self._mapped[start:stop].view(dtype)
