"""Values that cannot be tensors, such as text. They are looked up when a batch is delivered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from readers.index import schema
from readers.index.arrow import pa
from readers.index.columns import SharedFile
from readers.index.list_columns import holds_numbers, is_lists, lists_of, width_of


class RowValues:
    """Columns of an Index that cannot be tensors. Only requested rows are read.

    Names of columns that can be tensors are ignored. `file` is the file from which the table is
    mapped, if any.

    Raises
    ------
    KeyError
        If there is no such column.
    TypeError
        If it has lists of numbers with nulls in them, or inner lists of different lengths.
    ValueError
        If it has times that do not fit into 64 bits.
    """

    def __init__(
        self, table: pa.Table, names: Iterable[str], file: SharedFile | None = None
    ) -> None:
        self._columns: dict[str, pa.ChunkedArray] = {}
        self._widths: dict[str, int | None] = {}
        for name in names:
            schema.check_column(table, name)
            column = table[name]
            if schema.fits_tensor(column):
                continue
            if is_lists(column.type) and holds_numbers(column.type):
                self._widths[name] = width_of(name, column)
            for chunk in column.chunks:  # raise now, not in the middle of an epoch
                schema.as_nanoseconds(name, chunk)
            self._columns[name] = column
        self._file = file

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self._columns)

    def of(self, rows: Sequence[int]) -> dict[str, list[Any]]:
        """Return the values of some rows, by column; None for null.

        Text is str, lists of numbers are arrays, and times are nanoseconds since 1970. Other values
        are converted by ``pyarrow.Scalar.as_py``.

        Raises
        ------
        ReadError
            If the file was written to since it was opened.
        """
        if self._file is not None and self._columns:
            self._file.check()
        return {name: self._values(name, column, rows) for name, column in self._columns.items()}

    def _values(self, name: str, column: pa.ChunkedArray, rows: Sequence[int]) -> list[Any]:
        # Row by row, because `take` first joins the chunks of the whole column.
        if name in self._widths:
            found = (column.slice(row, 1) for row in rows)
            return [self._array(name, one) if one[0].is_valid else None for one in found]
        if schema.is_time(column.type):
            return [schema.as_nanoseconds(name, column.slice(row, 1))[0].as_py() for row in rows]
        return [column[row].as_py() for row in rows]

    def _array(self, name: str, one: pa.ChunkedArray) -> NDArray[Any]:
        items, width = lists_of(name, one).values, self._widths[name]
        if width is None:
            return np.array(items)
        return np.array(items.flatten()).reshape(-1, width)
