"""Columns in a file that reader processes share: mapped into each of them, and read row by row.

The file is in Arrow's format, see `readers.index.arrow_file`. NumPy reads its buffers in place, so
that reader processes need no PyArrow, and no damage makes them read beyond the file.
"""

from __future__ import annotations

import mmap
import os
import weakref
from dataclasses import dataclass
from functools import cached_property
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from readers.errors import ReadError


class SharedFile:
    """An open file that this process and others map.

    The pickle holds the path of the file descriptor under /proc. So while this object lives, other
    processes map the file that was opened here, even if another file takes its name.

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
        try:
            file = open(self._location, "rb", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise ReadError(self.path, str(error)) from error
        weakref.finalize(self, file.close)
        return file

    @cached_property
    def fileno(self) -> int:
        """File descriptor in this process."""
        return self._file.fileno()

    @cached_property
    def content(self) -> NDArray[np.uint8]:
        """All bytes of the file, read-only: `check_length` before they are read, `check` after."""
        return np.frombuffer(mmap.mmap(self.fileno, 0, prot=mmap.PROT_READ), np.uint8)

    def check_length(self) -> None:
        """Raise like `check` if the file was cut off: touching what was there ends the process."""
        if self._written is not None and os.lseek(self.fileno, 0, os.SEEK_END) < self._written[0]:
            self.check()

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


Kind = Literal["numbers", "text", "bytes", "lists"]


@dataclass(frozen=True)
class Column:
    """A column of a file: where its buffers are, in batches of equally many rows.

    The last batch may be shorter. The pickle holds the positions alone.
    """

    file: SharedFile
    kind: Kind
    dtype: str
    """NumPy's name of a value, with the byte order. For several numbers in a row, or in an item of
    a list, with their shape: ``(3,)<f4``."""
    num_rows: int
    batch_rows: int
    batches: tuple[tuple[int, int, int], ...]
    """First byte of the offsets (int64, one more than rows; -1 if each row is one value), first
    byte of the values, and their number."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in self.__dataclass_fields__}

    @cached_property
    def _mapped(self) -> list[tuple[memoryview | None, NDArray[Any]]]:
        """Offsets and values of each batch."""
        content, dtype = self.file.content, np.dtype(self.dtype)
        mapped = []
        for number, (offsets, start, count) in enumerate(self.batches):
            found = content[start : start + count * dtype.itemsize]
            values = found.view(dtype.base).reshape(-1, *dtype.shape)
            rows = min(self.batch_rows, self.num_rows - number * self.batch_rows)
            stop = offsets + 8 * (rows + 1)
            mapped.append((None if offsets < 0 else content[offsets:stop].data.cast("q"), values))
        return mapped

    def value(self, row: int) -> Any:
        """Return a copy of the number of a row, its numbers, or its list; or its bytes.

        The caller checks the file, see `SharedFile.content`, once for values that belong together.

        Raises
        ------
        IndexError
            If there is no such row.
        ReadError
            If the file is damaged.
        """
        if not 0 <= row < self.num_rows:
            raise IndexError(f"row must lie in [0, {self.num_rows}), got {row}")
        batch, number = divmod(row, self.batch_rows)
        offsets, values = self._mapped[batch]
        if offsets is None:
            return values[number].copy()
        start, stop = offsets[number], offsets[number + 1]
        if not 0 <= start <= stop <= len(values):
            what, of = ("list", "item") if self.kind == "lists" else ("text", "byte")
            raise self.file.damaged(f"{what} {row} from {of} {start} to {stop} of {len(values)}")
        found = values[start:stop]
        return found.copy() if self.kind == "lists" else found.tobytes()

    def text(self, row: int) -> str:
        """Return the text of a row. Raises like `value`."""
        # Invalid UTF-8, in a damaged file, names no file either: the Reader raises the error.
        return str(self.value(row), "utf-8", "replace")

    @cached_property
    def array(self) -> NDArray[Any]:
        """All numbers, shape (rows,) or (rows, ...): mapped, or a copy of several batches."""
        batches = [values for _, values in self._mapped]
        dtype = np.dtype(self.dtype)
        empty = np.empty((0, *dtype.shape), dtype.base)
        return batches[0] if len(batches) == 1 else np.concatenate([empty, *batches])
