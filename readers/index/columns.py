"""Columns of the Index in reader processes: read from a shared file, row by row, without a copy.

If the Index file is an Arrow file (see `readers.index.arrow_file`), that is the file. Otherwise the
owner writes each column once into a temporary file without a name, which disappears however the
processes end. Pickles hold only the positions of the columns. Strings are stored as in Arrow:
n + 1 offsets, then the UTF-8 of all texts.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from readers.contract import Row
from readers.index.shared_file import SharedFile

PART = "path_"
"""Prefix of columns that hold the paths of a part, for samples of several files."""

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
    """NumPy's name, with the byte order."""
    num_rows: int
    batch_rows: int
    starts: tuple[int, ...]
    """First byte of each batch."""

    def value(self, row: int) -> np.generic:
        """Read one number."""
        found: np.generic = self.values(row, row + 1)[0]
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


class Columns:
    """Read-only columns of equal length, in files of the process that made them.

    Parameters
    ----------
    columns : mapping of str to ndarray, Strings, Lists, or where they are stored
        The owner's columns; those not stored are written into a temporary file. ``path`` is
        needed. Optional are ``hdu`` and ``plane`` (int64, -1 for none), and ``path_{part}`` (text,
        empty if the part is missing) with ``hdu_{part}`` and ``plane_{part}``.
    notes : sequence of str
        Columns that rows pass on to their Reader, as `Row.notes`.
    """

    def __init__(self, columns: Mapping[str, Column | Stored], notes: Sequence[str] = ()) -> None:
        new = {name: found for name, found in columns.items() if not isinstance(found, Stored)}
        stored = {name: found for name, found in columns.items() if isinstance(found, Stored)}
        self._stored = stored | (store(new) if new else {})
        self._parts = tuple(
            name.removeprefix(PART)
            for name, column in columns.items()
            if isinstance(column, Strings | StoredStrings) and name.startswith(PART)
        )
        self._notes = tuple(notes)
        self._arrays: dict[str, NDArray[Any]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_arrays": {}}

    def __len__(self) -> int:
        return self._stored["path"].num_rows

    def array(self, name: str) -> NDArray[Any]:
        """Return a whole numeric column, shape (len,), read-only.

        It is a view of the file, or a copy if the file has several batches of rows.
        """
        if name not in self._arrays:
            column = self._numbers(name)
            counts = [column.batch_rows] * len(column.starts)
            counts[-1] = column.num_rows - sum(counts[:-1])
            batches = [
                column.file.view(column.dtype, start, count)
                for start, count in zip(column.starts, counts, strict=True)
            ]
            self._arrays[name] = batches[0] if len(batches) == 1 else np.concatenate(batches)
            self._arrays[name].flags.writeable = False
        return self._arrays[name]

    def dtype(self, name: str) -> np.dtype[Any]:
        """Return the type of a numeric column."""
        return np.dtype(self._numbers(name).dtype)

    def value(self, name: str, row: int) -> np.generic:
        """Return one value of a numeric column.

        Raises
        ------
        ReadError
            If its file cannot be read, or was written to since it was opened.
        """
        column = self._numbers(name)
        found = column.value(row)
        column.file.check()
        return found

    def text(self, name: str, row: int) -> str:
        """Return one value of a column of text. Raises like `value`."""
        column = self._strings(name)
        found = column.text(row)
        column.file.check()
        return found

    def get(self, name: str, row: int) -> str | np.generic | NDArray[Any]:
        """Return one value: text, a number, or a list as an array. Raises like `value`."""
        column = self._stored[name]
        found: str | np.generic | NDArray[Any]
        if isinstance(column, StoredLists):
            found = column.array(row)
        else:
            found = column.text(row) if isinstance(column, StoredStrings) else column.value(row)
        column.file.check()
        return found

    def row(self, number: int) -> Row:
        """Return a row for a Reader. Raises like `value`."""
        parts = {part: self._part(number, part) for part in self._parts}
        notes = {name: self._strings(name).raw(number) for name in self._notes}
        path, hdu, plane = self._located(number, "")
        self._stored["path"].file.check()
        return Row(number, path, hdu, parts, notes, plane)

    def _part(self, number: int, part: str) -> Row | None:
        path, hdu, plane = self._located(number, f"_{part}")
        return Row(number, path, hdu, plane=plane) if path else None

    def _located(self, number: int, suffix: str) -> tuple[str, int | None, int | None]:
        path = self._strings(f"path{suffix}").text(number)
        hdu = self._hdu_or_plane(number, f"hdu{suffix}")
        return path, hdu, self._hdu_or_plane(number, f"plane{suffix}")

    def _hdu_or_plane(self, number: int, name: str) -> int | None:
        found = int(self._numbers(name).value(number)) if name in self._stored else -1
        return None if found < 0 else found

    def _numbers(self, name: str) -> StoredNumbers:
        column = self._stored[name]
        if not isinstance(column, StoredNumbers):
            raise TypeError(f"column {name!r} is not numeric")
        return column

    def _strings(self, name: str) -> StoredStrings:
        column = self._stored[name]
        if not isinstance(column, StoredStrings):
            raise TypeError(f"column {name!r} is not text")
        return column


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
            dtype = column.dtype.str
            stored[name] = StoredNumbers(shared, dtype, rows, max(rows, 1), (start,))
    file.flush()
    return stored


def _append(file: IO[bytes], array: NDArray[Any]) -> int:
    """Append an array to a file; return the position of its first byte."""
    file.write(bytes(-file.tell() % _ALIGNMENT))
    start = file.tell()
    file.write(np.ascontiguousarray(array).data)
    return start
