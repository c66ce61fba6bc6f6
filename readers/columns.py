"""Columns of the Index as the reader processes see them: mapped, not copied.

The owner writes each column once into a temporary file without a name, so that nothing is left
behind however the processes end. What is pickled is only where the columns lie; a reader process
maps the owner's open file and touches just the pages of the rows that it reads. Strings are stored
as Arrow stores them: n + 1 offsets, then one run of UTF-8.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Row:
    """What a Reader is told of one row."""

    number: int
    """Row of the Index."""
    path: str
    hdu: int | None = None
    """FITS HDU, 0 for the primary; None for the first HDU that holds an image."""


@dataclass(frozen=True, slots=True)
class Strings:
    """A column of text."""

    offsets: NDArray[np.int64]
    """Shape (n + 1,): text i is ``blob[offsets[i]:offsets[i + 1]]``."""
    blob: NDArray[np.uint8]
    """UTF-8 of all texts."""


Column = NDArray[Any] | Strings


class Columns:
    """Read-only columns of equal length, mapped from the file of the process that wrote them.

    Parameters
    ----------
    columns : mapping of str to ndarray or Strings
        The owner's columns. Rows need ``path``; ``hdu`` (int64, -1 for none) is understood.
    """

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self._file: IO[bytes] | None = tempfile.TemporaryFile(prefix="dali-pipelines-")  # noqa: SIM115
        self._parts: dict[str, tuple[tuple[str, int, int], ...]] = {}
        for name, column in columns.items():
            arrays = (column.offsets, column.blob) if isinstance(column, Strings) else (column,)
            self._parts[name] = tuple(self._append(array) for array in arrays)
        self._file.flush()
        weakref.finalize(self, self._file.close)
        self._location = f"/proc/{os.getpid()}/fd/{self._file.fileno()}"
        self._mapped: NDArray[np.uint8] | None = None

    def _append(self, array: NDArray[Any]) -> tuple[str, int, int]:
        assert self._file is not None  # only the owner writes
        self._file.write(bytes(-self._file.tell() % _ALIGNMENT))
        start = self._file.tell()
        self._file.write(np.ascontiguousarray(array).data)
        return array.dtype.str, start, array.size

    def __getstate__(self) -> dict[str, Any]:
        # The mapping is made anew, lazily and once, in each process.
        return {"_parts": self._parts, "_location": self._location}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _file=None, _mapped=None)

    def __len__(self) -> int:
        return self._parts["path"][0][2] - 1

    def array(self, name: str) -> NDArray[Any]:
        """Give a numeric column as a read-only view of the file, shape (len,)."""
        return self._array(name, 0)

    def text(self, name: str, row: int) -> str:
        """Give one value of a column of text."""
        start, stop = self._array(name, 0)[row : row + 2]
        return self._array(name, 1)[start:stop].tobytes().decode()

    def row(self, number: int) -> Row:
        """Give what a Reader needs to know of a row."""
        hdu = int(self.array("hdu")[number]) if "hdu" in self._parts else -1
        return Row(number, self.text("path", number), None if hdu < 0 else hdu)

    def _array(self, name: str, part: int) -> NDArray[Any]:
        dtype, start, size = self._parts[name][part]
        if self._mapped is None:
            self._mapped = np.memmap(self._location, np.uint8, mode="r")
        stop = start + size * np.dtype(dtype).itemsize
        return self._mapped[start:stop].view(dtype)
