"""Make an Index of others: choose rows, put Indexes together, add columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from readers.index.rows.joining import joined, replaced
from readers.index.rows.where import matching
from readers.index.sources import IndexSources

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import ArrayLike


class IndexRows(IndexSources):
    """Methods that make an Index of others; see `readers.index.table.Index`."""

    def select(self, rows: ArrayLike) -> Self:
        """Return an Index of some rows, in the given order.

        Parameters
        ----------
        rows : array_like, shape (k,) of int, or (len,) of bool
            Row numbers, or a mask.
        """
        import pyarrow as pa

        chosen, count = np.asarray(rows), self.table.num_rows
        if chosen.dtype == bool:
            if chosen.shape != (count,):
                raise ValueError(f"a mask must have shape ({count},), got {chosen.shape}")
            chosen = np.flatnonzero(chosen)
        return type(self)(self.table.take(pa.array(chosen, pa.int64())))

    def where(self, condition: str) -> Self:
        """Return an Index of the rows for which a condition is true, in order.

        Parameters
        ----------
        condition : str
            SQL expression on the columns, in DuckDB's dialect, e.g. ``"wavelnth = 171 AND exptime >
            1.9"``. Names of columns are those of the Index, in any case. It cannot reach anything
            but the table. A row for which it is null, e.g. because a value is missing, is left out.

        Raises
        ------
        ModuleNotFoundError
            If DuckDB is not installed; it is in the extra ``cli``.
        ValueError
            If it is no such expression, is neither true nor false, or no row matches.
        """
        try:
            rows = matching(self.table, condition)
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "Index.where needs DuckDB: pip install 'dali-pipelines[cli]'", name=error.name
            ) from error
        if not len(rows):
            raise ValueError(f"where {condition!r} matches none of {self.table.num_rows} rows")
        return self.select(rows)

    def each_plane(self, planes: Iterable[int]) -> Self:
        """Return an Index with one row for each plane of each row, row after row.

        Parameters
        ----------
        planes : iterable of int
            Plane numbers from 0 on, e.g. ``range(5)`` for the first five. Whether the files have
            them is not checked; ``scripts/index.py --planes all`` does check.

        Raises
        ------
        ValueError
            If no number is given or one is negative, the Index already has planes, or its rows are
            samples of several files.
        """
        import pyarrow as pa

        numbers = np.array(list(planes), np.int64)
        if not len(numbers) or numbers.min() < 0:
            raise ValueError(
                f"planes must be one or more integers from 0 on, got {numbers.tolist()}"
            )
        if "plane" in self.table.column_names or self.parts:
            raise ValueError("the rows must be single files without a column 'plane'")
        count = self.table.num_rows
        table = self.table.take(pa.array(np.repeat(np.arange(count), len(numbers))))
        return type(self)(table.append_column("plane", pa.array(np.tile(numbers, count))))

    @classmethod
    def concat(cls, indexes: Iterable[IndexSources], *, fill: bool = False) -> Self:
        """Return an Index of the rows of several, one after the other.

        Rows that are in several of them are repeated. Numbers of different types are promoted: to
        int64, or, if one is floating, to float64.

        Parameters
        ----------
        indexes : iterable of Index
            At least one.
        fill : bool
            Fill columns that some of them lack with null, rather than raise an error.

        Raises
        ------
        TypeError
            If one is not an Index.
        ValueError
            If there is none, they have different columns (without `fill`), types of a column do not
            go together, or their labels number different classes.
        """
        return cls(joined(indexes, fill=fill))

    def with_column(self, name: str, values: ArrayLike | Sequence[Any] | pa.Array) -> Self:
        """Return an Index with one more column, or with other values in a column that it has.

        Parameters
        ----------
        name : str
            Name of the column. Those of files (``path``, ``hdu``, ...) have a meaning, see `Index`.
        values : array_like or pyarrow.Array, shape (len,)
            Numbers, bools, text, bytes or times; None, or what a masked array masks, for null.

        Raises
        ------
        ValueError
            If they are not one value for each row, all of one type.

        Notes
        -----
        New values of ``label`` number other classes, so the Index loses its `classes`.
        """
        return type(self)(replaced(self.table, name, values))
