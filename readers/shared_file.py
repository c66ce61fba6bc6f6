"""A file that this process has open, and that its reader processes read, too."""

from __future__ import annotations

import os
import weakref
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
        Its path, if it has one, by which others may come and write to it. Then each `read` makes
        sure that nobody has.
    """

    def __init__(self, file: IO[bytes], path: str | None = None) -> None:
        self._location = f"/proc/{os.getpid()}/fd/{file.fileno()}"
        self.path = path or self._location
        self._hold(file)
        self._mapped: NDArray[np.uint8] | None = None
        self._written = None if path is None else self._last_written()

    def _hold(self, file: IO[bytes]) -> None:
        self._file: IO[bytes] | None = file
        weakref.finalize(self, file.close)

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("path", "_location", "_written")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _file=None, _mapped=None)

    def _opened(self) -> IO[bytes]:
        """Open the owner's file, lazily and once in each process."""
        if self._file is None:
            self._hold(open(self._location, "rb", buffering=0))  # noqa: SIM115
        assert self._file is not None
        return self._file

    def fileno(self) -> int:
        """Give the file descriptor of this process."""
        return self._opened().fileno()

    def read(self, start: int, nbytes: int) -> bytes:
        """Read some bytes.

        By a system call: the pages of a map would count as memory of each process, and one that
        is cut off would end it.

        Raises
        ------
        ReadError
            If the file was written to since it was opened, or cannot be read.
        """
        try:
            found = os.pread(self.fileno(), nbytes, start)
        except OSError as error:
            raise ReadError(self.path, str(error)) from error
        self.check()  # behind the read, so that what was read is of before any write
        if len(found) < nbytes:
            raise ReadError(self.path, f"expected {nbytes} bytes at {start}, it is cut off")
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

    def _last_written(self) -> tuple[int, int]:
        status = os.fstat(self.fileno())
        return status.st_size, status.st_mtime_ns

    def view(self, dtype: str, start: int, size: int) -> NDArray[Any]:
        """Map `size` numbers from the byte `start` on, read-only."""
        if self._mapped is None:
            self._mapped = np.memmap(self._opened(), np.uint8, mode="r")
        stop = start + size * np.dtype(dtype).itemsize
        return self._mapped[start:stop].view(dtype)
