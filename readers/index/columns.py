"""Columns of the Index in reader processes, which map shared Arrow files.

`readers.index.index_file` makes the files. Pickles hold only the positions of the columns. NumPy
reads Arrow's buffers in place, so reader processes do not import PyArrow. Offsets are checked
before they are used.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from readers.contract import Row
from readers.errors import ReadError
from readers.places.contract import Place
from readers.places.opener import LOCAL, Places

PART = "path_"
"""Prefix of columns with the paths of a part, for samples of several files."""
ETAG, FILE_BYTES = "etag", "file_bytes"
"""Columns of text and of whole numbers: versions and lengths of remote objects and containers."""
SPAN = ("offset", "nbytes")
LOCATING = ("hdu", "plane", *SPAN)
"""Columns of whole numbers that locate the data of a row in the file ``path``: HDU, plane, and span
of bytes in a container. Columns of a part end with its name, such as ``hdu_171``."""
OTHER_PATH, OFFSET, NBYTES = "_path", "_offset", "_nbytes"
"""Suffixes of columns with paths of other files, such as masks, and with spans of these files."""


class Columns:
    """Read-only columns of equal length, made by `readers.index.table.Index.columns`.

    They are in files of the process that made them.

    Parameters
    ----------
    columns : mapping of str to Column or FrameColumn
        Location of each column. ``path`` is required. Optional are ``hdu``, ``plane``, ``offset``
        and ``nbytes`` (int64, -1 for none), and ``path_{part}`` (text, empty if the part is
        missing) with ``hdu_{part}`` and so on.
    notes : sequence of str
        Columns that rows pass on to their Reader, as `Row.notes`. Columns of a part end with its
        name.
    """

    def __init__(
        self, columns: Mapping[str, Column | FrameColumn], notes: Sequence[str] = ()
    ) -> None:
        self._columns = {name: one for name, one in columns.items() if isinstance(one, Column)}
        self._of_frames = {
            name: one for name, one in columns.items() if isinstance(one, FrameColumn)
        }
        self._parts = tuple(
            name.removeprefix(PART)
            for name, column in self._columns.items()
            if column.kind == "text" and name.startswith(PART)
        )
        self._notes = tuple(notes)
        self._origin: Columns | None = None
        self.places = LOCAL

    def with_places(self, places: Places) -> Columns:
        """Return the same columns with `places`, which open the files of rows."""
        found = copy(self)
        found.places = places
        found._origin = self  # keeps it alive, so that the Index shares it
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_origin"}

    def __len__(self) -> int:
        return self._columns["path"].num_rows

    def array(self, name: str) -> NDArray[Any]:
        """Return a whole numeric column, shape (len,) or (len, ...), read-only.

        It is a view of the file, or a copy if the file has several batches of rows.
        """
        found = self._numbers(name).array
        found.flags.writeable = False
        return found

    def dtype(self, name: str) -> np.dtype[Any]:
        """Return the type of a row of a numeric column; a subarray type for several numbers."""
        return np.dtype(self._numbers(name).dtype)

    def value(self, name: str, row: int) -> np.generic | NDArray[Any]:
        """Return one value of a numeric column, or the numbers of a row.

        Raises
        ------
        ReadError
            If its file cannot be read, or was written to since it was opened.
        """
        return _checked_value(self._numbers(name), row)

    def text(self, name: str, row: int) -> str:
        """Return one value of a column of text. Raises like `value`."""
        return _checked_value(self._texts(name), row)

    def get(self, name: str, row: int, frame: int | None = None) -> str | np.generic | NDArray[Any]:
        """Return one value: text, a number, or a list as an array. Raises like `value`.

        If the column has a list for each row, with a value for each frame, pass `frame`. The value
        is empty if the list is null.
        """
        if frame is None:
            return _checked_value(self._columns[name], row)
        of_frames = self._of_frames[name]
        first, items = of_frames.first(row), of_frames.items
        if first is None:
            return "" if items.kind == "text" else items.empty
        return _checked_value(items, first + frame)

    def num_frames(self, name: str, row: int) -> int | None:
        """Return the number of values in the list of a row; None for a null list."""
        return self._of_frames[name].count(row)

    def row(self, number: int) -> Row:
        """Return a row for a Reader. Raises like `value`."""
        file = self._columns["path"].file
        file.check_length()
        parts = {part: self._part(number, part) for part in self._parts}
        notes = {name: self._columns[name].value(number) for name in self._notes}
        row = self._located(number, "", parts=parts, notes=notes)
        file.check()
        return row

    def place(self, name: str, row: int, frame: int | None = None) -> Place | None:
        """Return the file in a column like ``mask_path``, or None. Raises like `value`.

        With columns ``mask_offset`` and ``mask_nbytes`` it is a span of the file. With `frame` it
        is the whole file of a frame, see `get`.
        """
        path = self.text(name, row) if frame is None else str(self.get(name, row, frame))
        if not path:
            return None
        if frame is not None:
            return self.places.at(path)
        stem, image = name.removesuffix(OTHER_PATH), self._located(row, "")
        etag, nbytes = self._version(row, f"{stem}_{ETAG}", f"{stem}_{FILE_BYTES}")
        if path == image.path:
            etag, nbytes = image.etag, image.file_bytes
        span = (self._whole(row, stem + end) for end in (OFFSET, NBYTES))
        return self.places.at(path, *span, etag=etag, file_bytes=nbytes)

    def _part(self, number: int, part: str) -> Row | None:
        names = {name: f"{name}_{part}" for name in self._notes}
        notes = {
            name: self._columns[of_part].value(number)
            for name, of_part in names.items()
            if of_part in self._columns
        }
        row = self._located(number, f"_{part}", notes=notes)
        return row if row.path else None

    def _located(self, number: int, suffix: str, **others: Any) -> Row:
        hdu, plane, offset, nbytes = (self._whole(number, name + suffix) for name in LOCATING)
        etag, file_bytes = self._version(number, f"{ETAG}{suffix}", f"{FILE_BYTES}{suffix}")
        return Row(
            number,
            self._texts(f"path{suffix}").value(number),
            hdu,
            plane=plane,
            offset=offset,
            nbytes=nbytes,
            etag=etag,
            file_bytes=file_bytes,
            places=self.places,
            **others,
        )

    def _version(self, number: int, etag: str, nbytes: str) -> tuple[str | None, int | None]:
        """Return ETag and length of the object of a row, if there are such columns."""
        text = self._texts(etag).value(number) if etag in self._columns else None
        return text, self._whole(number, nbytes)

    def _whole(self, number: int, name: str) -> int | None:
        found = int(self._numbers(name).value(number)) if name in self._columns else -1
        return None if found < 0 else found

    def _numbers(self, name: str) -> Column:
        return self._of_kind(name, "numbers")

    def _texts(self, name: str) -> Column:
        return self._of_kind(name, "text")

    def _of_kind(self, name: str, kind: ColumnKind) -> Column:
        column = self._columns[name]
        if column.kind != kind:
            raise TypeError(f"column {name!r} must hold {kind}, got {column.kind}")
        return column


def _checked_value(column: Column, row: int) -> Any:
    """Return one value. ReadError if the file was written to since it was opened."""
    column.file.check_length()
    found = column.value(row)
    column.file.check()
    return found


# ---- Where they are stored -----------------------------------------------------------------------


class SharedFile:
    """An open file that this process and others map.

    A pickle holds the path of the file descriptor under /proc. So other processes map the file that
    was opened here, even if another file has its name by then. This object must be alive.

    Parameters
    ----------
    file : binary file
        Closed when this object is deleted.
    path : str, optional
        Its path, if it has one. Then other programs may write to it, which `check` detects.
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
        """All bytes, read-only. Call `check_length` before reading them, and `check` after it."""
        mapped = mmap.mmap(self.fileno, 0, prot=mmap.PROT_READ)
        # Rows are read in random order. Read-ahead read 40 times the bytes of a cold file of 2 GB.
        mapped.madvise(mmap.MADV_RANDOM)
        return np.frombuffer(mapped, np.uint8)

    def check_length(self) -> None:
        """Raise like `check` if the file was truncated: access to missing pages kills a process."""
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
        """Return an error for invalid content, after a `check` of the file."""
        self.check()
        return ReadError(self.path, f"damaged: {reason}")

    def _last_written(self) -> tuple[int, int]:
        status = os.fstat(self.fileno)
        return status.st_size, status.st_mtime_ns


ColumnKind = Literal["numbers", "text", "bytes", "lists"]


@dataclass(frozen=True)
class Column:
    """A column in a file: positions of its buffers, in batches with equal numbers of rows.

    The last batch may be shorter. A pickle holds only the positions.
    """

    file: SharedFile
    kind: ColumnKind
    dtype: str
    """NumPy's name of the type of a value, with byte order. For several numbers in a row, or in an
    item of a list, it has their shape: ``(3,)<f4``."""
    num_rows: int
    batch_rows: int
    batches: tuple[tuple[int, int, int], ...]
    """For each batch: first byte of the offsets (int64, one more than rows), or -1 if each row is
    one value; first byte of the values; number of values."""

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
        """Return a copy of the value of a row: a number, several numbers, a list, text or bytes.

        The caller checks the file before and after, see `SharedFile.content`.

        Raises
        ------
        IndexError
            If there is no such row.
        ReadError
            If the file is damaged.
        """
        if not 0 <= row < self.num_rows:
            raise IndexError(f"row must be in [0, {self.num_rows}), got {row}")
        batch, number = divmod(row, self.batch_rows)
        offsets, values = self._mapped[batch]
        if offsets is None:
            return values[number].copy()
        start, stop = offsets[number], offsets[number + 1]
        if not 0 <= start <= stop <= len(values):
            what, of = ("list", "item") if self.kind == "lists" else ("text", "byte")
            raise self.file.damaged(f"{what} {row} from {of} {start} to {stop} of {len(values)}")
        found = values[start:stop]
        if self.kind == "lists":
            return found.copy()
        # For invalid UTF-8, in a damaged file, the Reader raises an error: there is no such path.
        data = found.tobytes()
        return data.decode(errors="replace") if self.kind == "text" else data

    @property
    def empty(self) -> NDArray[Any]:
        """A list without items."""
        dtype = np.dtype(self.dtype)
        return np.empty((0, *dtype.shape), dtype.base)

    @cached_property
    def array(self) -> NDArray[Any]:
        """All numbers, shape (rows,) or (rows, ...): mapped, or a copy of several batches."""
        batches = [values for _, values in self._mapped]
        return batches[0] if len(batches) == 1 else np.concatenate([self.empty, *batches])


@dataclass(frozen=True)
class FrameColumn:
    """A column that has a list of values for each row, one for each frame of a video."""

    spans: Column
    """Shape (2,) for each row: position of the first value in `items` (-1 for a null list), and
    number of values."""
    items: Column
    """The values of all rows: text, numbers, or lists of numbers."""

    def first(self, row: int) -> int | None:
        """Return the position of the first value of a row in `items`, or None for a null list."""
        first = int(self.spans.value(row)[0])
        return None if first < 0 else first

    def count(self, row: int) -> int | None:
        """Return the number of values of a row, or None for a null list."""
        first, count = self.spans.value(row)
        return None if first < 0 else int(count)
