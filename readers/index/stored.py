"""Columns of an Index in a file: where they are stored, and how they are read row by row.

Strings are stored as in Arrow: n + 1 offsets, then the UTF-8 of all texts.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from readers.index.shared_file import SharedFile

_ALIGNMENT = 64
_OFFSETS = struct.Struct("=2q")


@dataclass(frozen=True, slots=True)
class Strings:
    """A column of text, or of bytes."""

    offsets: NDArray[np.int64]
    """Shape (n + 1,): text i is ``blob[offsets[i]:offsets[i + 1]]``."""
    blob: NDArray[np.uint8]
    """UTF-8 of all texts."""


@dataclass(frozen=True, slots=True)
class StoredNumbers:
    """Position of a column of numbers, in batches of equally many rows; the last may be shorter."""

    file: SharedFile
    dtype: str
    """NumPy's name, with the byte order; of rows of several numbers with their shape: (3,)<f4."""
    num_rows: int
    batch_rows: int
    starts: tuple[int, ...]
    """First byte of each batch."""

    def value(self, row: int) -> np.generic | NDArray[Any]:
        """Read one number, or those of one row."""
        found: np.generic | NDArray[Any] = self.values(row, row + 1)[0]
        return found

    def values(self, start: int, stop: int) -> NDArray[Any]:
        """Read the numbers of some rows of one batch."""
        batch, number = _locate(self, start)
        dtype = np.dtype(self.dtype)
        first = self.starts[batch] + number * dtype.itemsize
        return np.frombuffer(self.file.read(first, (stop - start) * dtype.itemsize), dtype)


@dataclass(frozen=True, slots=True)
class StoredStrings:
    """Position of a column of text, or of bytes, in such batches."""

    file: SharedFile
    num_rows: int
    batch_rows: int
    offsets: tuple[int, ...]
    """First byte of the n + 1 offsets (int64) of each batch."""
    blobs: tuple[tuple[int, int], ...]
    """First byte, and number of bytes, of the UTF-8 of each batch."""

    def text(self, row: int) -> str:
        """Read one text."""
        # Invalid UTF-8, in a damaged file, names no file either: the Reader raises the error.
        return self.raw(row).decode(errors="replace")

    def raw(self, row: int) -> bytes:
        """Read the bytes of one text."""
        batch, number = _locate(self, row)
        start, stop = _OFFSETS.unpack(self.file.read(self.offsets[batch] + 8 * number, 16))
        blob, nbytes = self.blobs[batch]
        if not 0 <= start <= stop <= nbytes:
            raise self.file.damaged(f"text {row} from byte {start} to {stop} of {nbytes}")
        return self.file.read(blob + start, stop - start)


@dataclass(frozen=True, slots=True)
class Lists:
    """A column of lists of numbers, or of lists of equally many numbers."""

    offsets: NDArray[np.int64]
    """Shape (n + 1,): list i is ``values[offsets[i]:offsets[i + 1]]``."""
    values: NDArray[Any]
    """Shape (m,) or (m, k)."""


@dataclass(frozen=True, slots=True)
class StoredLists:
    """Position of a column of lists, in such batches."""

    file: SharedFile
    dtype: str
    """NumPy's name, with the byte order."""
    width: int | None
    """Numbers of each item; None if it is a single one."""
    num_rows: int
    batch_rows: int
    offsets: tuple[int, ...]
    """First byte of the n + 1 offsets (int64) of each batch."""
    values: tuple[tuple[int, int], ...]
    """First byte, and number of items, of the values of each batch."""

    def array(self, row: int) -> NDArray[Any]:
        """Read one list, shape (n,) or (n, width)."""
        batch, number = _locate(self, row)
        start, stop = _OFFSETS.unpack(self.file.read(self.offsets[batch] + 8 * number, 16))
        first, count = self.values[batch]
        if not 0 <= start <= stop <= count:
            raise self.file.damaged(f"list {row} from item {start} to {stop} of {count}")
        shape = (stop - start,) if self.width is None else (stop - start, self.width)
        dtype, width = np.dtype(self.dtype), self.width or 1
        nbytes = width * dtype.itemsize
        found = self.file.read(first + start * nbytes, (stop - start) * nbytes)
        return np.frombuffer(found, dtype).reshape(shape)


def _locate(column: Stored, row: int) -> tuple[int, int]:
    if not 0 <= row < column.num_rows:
        raise IndexError(f"row must lie in [0, {column.num_rows}), got {row}")
    return divmod(row, column.batch_rows)


Column = NDArray[Any] | Strings | Lists
Stored = StoredNumbers | StoredStrings | StoredLists


def store(columns: Mapping[str, Column]) -> dict[str, Stored]:
    """Write columns into a temporary file, each in one batch; an OSError names its folder."""
    try:
        return _stored(columns)
    except OSError as error:
        where = f"the folder of temporary files, TMPDIR={tempfile.gettempdir()}"
        raise OSError(error.errno, error.strerror, where) from error


def _stored(columns: Mapping[str, Column]) -> dict[str, Stored]:
    file = tempfile.TemporaryFile(prefix="dali-pipelines-")  # noqa: SIM115
    shared = SharedFile(file)
    stored: dict[str, Stored] = {}
    for name, column in columns.items():
        if isinstance(column, Strings):
            rows = len(column.offsets) - 1
            offsets, blob = _append(file, column.offsets), _append(file, column.blob)
            blobs = ((blob, column.blob.nbytes),)
            stored[name] = StoredStrings(shared, rows, max(rows, 1), (offsets,), blobs)
        elif isinstance(column, Lists):
            rows, values = len(column.offsets) - 1, column.values
            offsets, first = _append(file, column.offsets), _append(file, values)
            width = None if values.ndim == 1 else values.shape[1]
            places = (offsets,), ((first, len(values)),)
            stored[name] = StoredLists(shared, values.dtype.str, width, rows, max(rows, 1), *places)
        else:
            start, rows = _append(file, column), len(column)
            dtype = f"{column.shape[1:]}{column.dtype.str}"
            stored[name] = StoredNumbers(shared, dtype, rows, max(rows, 1), (start,))
    file.flush()
    return stored


def _append(file: IO[bytes], array: NDArray[Any]) -> int:
    """Append an array to a file; return the position of its first byte."""
    file.write(bytes(-file.tell() % _ALIGNMENT))
    start = file.tell()
    file.write(np.ascontiguousarray(array).data)
    return start
