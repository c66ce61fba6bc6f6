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
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

PART = "path_"
"""How the names of columns begin that hold the paths of a part, of samples of several files."""

_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Row:
    """What a Reader is told of one row."""

    number: int
    """Row of the Index."""
    path: str
    hdu: int | None = None
    """FITS HDU, 0 for the primary; None for the first HDU that holds an image."""
    parts: Mapping[str, Row | None] = field(default_factory=dict, hash=False)
    """Files that belong to one sample, by name; None for one that is missing."""

    def part(self, name: str) -> Row | None:
        """Give one of several files of the row, under the row's number; None if it is missing.

        Raises
        ------
        KeyError
            If the row was made without that part.
        """
        if name not in self.parts:
            raise KeyError(
                f"row {self.number} was made without the part {name!r}, it has "
                f"{', '.join(self.parts) or 'none'}: a Reader names what it needs in `parts`"
            )
        return self.parts[name]


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
        The owner's columns. Rows need ``path``; ``hdu`` (int64, -1 for none) is understood, and so
        are ``path_{part}`` (text, empty where the part is missing) with ``hdu_{part}``.
    """

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self._file: IO[bytes] | None = tempfile.TemporaryFile(prefix="dali-pipelines-")  # noqa: SIM115
        self._places: dict[str, tuple[tuple[str, int, int], ...]] = {}
        for name, column in columns.items():
            arrays = (column.offsets, column.blob) if isinstance(column, Strings) else (column,)
            self._places[name] = tuple(self._append(array) for array in arrays)
        self._parts = tuple(
            name.removeprefix(PART)
            for name, column in columns.items()
            if isinstance(column, Strings) and name.startswith(PART)
        )
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
        return {name: getattr(self, name) for name in ("_places", "_parts", "_location")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _file=None, _mapped=None)

    def __len__(self) -> int:
        return self._places["path"][0][2] - 1

    def array(self, name: str) -> NDArray[Any]:
        """Give a numeric column as a read-only view of the file, shape (len,)."""
        return self._array(name, 0)

    def text(self, name: str, row: int) -> str:
        """Give one value of a column of text."""
        start, stop = self._array(name, 0)[row : row + 2]
        return self._array(name, 1)[start:stop].tobytes().decode()

    def row(self, number: int) -> Row:
        """Give what a Reader needs to know of a row."""
        parts = {part: self._file_of(number, f"_{part}") for part in self._parts}
        return Row(number, self.text("path", number), self._hdu(number, ""), parts)

    def _file_of(self, number: int, suffix: str) -> Row | None:
        path = self.text(f"path{suffix}", number)
        return Row(number, path, self._hdu(number, suffix)) if path else None

    def _hdu(self, number: int, suffix: str) -> int | None:
        if f"hdu{suffix}" not in self._places:
            return None
        hdu = int(self.array(f"hdu{suffix}")[number])
        return None if hdu < 0 else hdu

    def _array(self, name: str, part: int) -> NDArray[Any]:
        dtype, start, size = self._places[name][part]
        if self._mapped is None:
            self._mapped = np.memmap(self._location, np.uint8, mode="r")
        stop = start + size * np.dtype(dtype).itemsize
        return self._mapped[start:stop].view(dtype)
