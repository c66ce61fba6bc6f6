"""Columns of the Index in reader processes: mapped from Arrow files, which all of them share.

A column of an ``.arrow`` file that holds it as readers take it stays there. Others are written once
into a temporary file without a name, which disappears however the processes end. Pickles hold only
the positions of the columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from readers.contract import Row
from readers.index.mapped import Column
from readers.places.contract import Place
from readers.places.opener import LOCAL, Places

if TYPE_CHECKING:
    import pyarrow as pa

    Values: TypeAlias = NDArray[Any] | pa.Array | pa.ChunkedArray

PART = "path_"
"""Prefix of columns that hold the paths of a part, for samples of several files."""
ETAG, FILE_BYTES = "etag", "file_bytes"
"""Columns of text and of whole numbers: versions and lengths of remote objects and containers."""
SPAN = ("offset", "nbytes")
LOCATING = ("hdu", "plane", *SPAN)
"""Columns of whole numbers that say, with ``path``, what is read of a row: HDU and plane, and the
span of bytes in a container. Those of a part end in its name, as ``hdu_171``."""
OTHER_PATH, OFFSET, NBYTES = "_path", "_offset", "_nbytes"
"""Suffixes of columns that hold paths of other files, such as masks, and spans of these."""


class Columns:
    """Read-only columns of equal length, in files of the process that made them.

    Parameters
    ----------
    columns : mapping of str to ndarray, pyarrow.Array, or Column
        Numbers, shape (rows,) or (rows, ...), of NumPy; large_string, large_binary or large_list of
        PyArrow; or where a column is stored. Others are written into a temporary file. ``path`` is
        needed. Optional are ``hdu``, ``plane``, ``offset`` and ``nbytes`` (int64, -1 for none), and
        ``path_{part}`` (text, empty if the part is missing) with ``hdu_{part}`` and so on.
    notes : sequence of str
        Columns that rows pass on to their Reader, as `Row.notes`.
    """

    def __init__(self, columns: Mapping[str, Values | Column], notes: Sequence[str] = ()) -> None:
        new = {name: found for name, found in columns.items() if not isinstance(found, Column)}
        stored = {name: found for name, found in columns.items() if isinstance(found, Column)}
        if new:
            from readers.index.arrow_file import store  # not in reader processes

            stored |= store(new)
        self._columns = stored
        self._parts = tuple(
            name.removeprefix(PART)
            for name, column in self._columns.items()
            if column.kind == "text" and name.startswith(PART)
        )
        self._notes = tuple(notes)
        self.places = LOCAL

    def with_places(self, places: Places) -> Columns:
        """Return the same columns, whose rows find their files by `places`."""
        found = copy(self)
        found.places = places
        return found

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
        """Return the type of a row of a numeric column; of several numbers a subarray type."""
        return np.dtype(self._numbers(name).dtype)

    def value(self, name: str, row: int) -> np.generic | NDArray[Any]:
        """Return one value of a numeric column, or the numbers of a row.

        Raises
        ------
        ReadError
            If its file cannot be read, or was written to since it was opened.
        """
        column = self._numbers(name)
        column.file.check_length()
        found: np.generic | NDArray[Any] = column.value(row)
        column.file.check()
        return found

    def text(self, name: str, row: int) -> str:
        """Return one value of a column of text. Raises like `value`."""
        column = self._texts(name)
        column.file.check_length()
        found = column.text(row)
        column.file.check()
        return found

    def get(self, name: str, row: int) -> str | np.generic | NDArray[Any]:
        """Return one value: text, a number, or a list as an array. Raises like `value`."""
        column = self._columns[name]
        column.file.check_length()
        found: str | np.generic | NDArray[Any]
        found = column.text(row) if column.kind == "text" else column.value(row)
        column.file.check()
        return found

    def row(self, number: int) -> Row:
        """Return a row for a Reader. Raises like `value`."""
        file = self._columns["path"].file
        file.check_length()
        parts = {part: self._part(number, part) for part in self._parts}
        notes = {name: self._columns[name].value(number) for name in self._notes}
        row = self._located(number, "", parts=parts, notes=notes)
        file.check()
        return row

    def place(self, name: str, row: int) -> Place | None:
        """Return the file that a column like ``mask_path`` names, or None. Raises like `value`.

        It is a span of the file if there are columns ``mask_offset`` and ``mask_nbytes``.
        """
        path = self.text(name, row)
        if not path:
            return None
        stem, image = name.removesuffix(OTHER_PATH), self._located(row, "")
        etag, nbytes = self._version(row, f"{stem}_{ETAG}", f"{stem}_{FILE_BYTES}")
        if path == image.path:
            etag, nbytes = image.etag, image.file_bytes
        span = (self._whole(row, stem + end) for end in (OFFSET, NBYTES))
        return self.places.at(path, *span, etag=etag, file_bytes=nbytes)

    def _part(self, number: int, part: str) -> Row | None:
        row = self._located(number, f"_{part}")
        return row if row.path else None

    def _located(self, number: int, suffix: str, **others: Any) -> Row:
        hdu, plane, offset, nbytes = (self._whole(number, name + suffix) for name in LOCATING)
        etag, file_bytes = self._version(number, f"{ETAG}{suffix}", f"{FILE_BYTES}{suffix}")
        return Row(
            number,
            self._texts(f"path{suffix}").text(number),
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
        text = self._texts(etag).text(number) if etag in self._columns else None
        return text, self._whole(number, nbytes)

    def _whole(self, number: int, name: str) -> int | None:
        found = int(self._numbers(name).value(number)) if name in self._columns else -1
        return None if found < 0 else found

    def _numbers(self, name: str) -> Column:
        column = self._columns[name]
        if column.kind != "numbers":
            raise TypeError(f"column {name!r} is not numeric")
        return column

    def _texts(self, name: str) -> Column:
        column = self._columns[name]
        if column.kind != "text":
            raise TypeError(f"column {name!r} is not text")
        return column
