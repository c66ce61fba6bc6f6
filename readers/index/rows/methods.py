"""Make an Index of others: choose rows, put Indexes together, add columns."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from readers.index.paths.absolute import moved
from readers.index.rows.joining import joined, replaced
from readers.index.rows.splitting import TimeBlocks, split_rows
from readers.index.rows.values import RowValues
from readers.index.rows.where import matching
from readers.index.rows.windows import window_rows
from readers.index.sources import IndexSources
from readers.index.versions import with_versions
from readers.places.storage import Storage
from readers.values import is_integer

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import ArrayLike, NDArray


def _row_numbers(rows: ArrayLike, count: int) -> NDArray[Any]:
    """Return the row numbers that are given, or those of a mask; see `IndexRows.select`."""
    chosen = np.asarray(rows)
    if chosen.dtype == bool and chosen.ndim > 0:
        if chosen.shape != (count,):
            raise ValueError(f"a mask must have shape ({count},), got {chosen.shape}")
        return np.flatnonzero(chosen)
    if chosen.ndim != 1 or (len(chosen) and not np.issubdtype(chosen.dtype, np.integer)):
        what = rows if chosen.ndim == 0 else f"{chosen.dtype} of shape {chosen.shape}"
        raise TypeError(
            "select takes row numbers, integers of shape (k,), or a mask, bools of shape "
            f"({count},); got {what!s}"
        )
    for place in np.flatnonzero((chosen < 0) | (chosen >= count))[:1]:
        raise IndexError(f"row numbers must lie in [0, {count}), got {chosen[place]}")
    return chosen


class IndexRows(IndexSources):
    """Methods that make an Index of others; see `readers.index.table.Index`."""

    def select(self, rows: ArrayLike) -> Self:
        """Return an Index of some rows, in the given order.

        Parameters
        ----------
        rows : array_like, shape (k,) of int, or (len,) of bool
            Row numbers, counted from 0, or a mask.

        Raises
        ------
        IndexError
            If there is no row of a number; negative numbers do not count from the end.
        TypeError
            If they are neither row numbers nor a mask.
        ValueError
            If a mask has another shape, or no row is chosen.
        """
        import pyarrow as pa

        chosen = _row_numbers(rows, self.table.num_rows)
        return type(self)(self.table.take(pa.array(chosen, pa.int64())))

    def where(self, condition: str) -> Self:
        """Return an Index of the rows for which a condition is true, in order.

        Parameters
        ----------
        condition : str
            SQL expression on the columns, in DuckDB's dialect, e.g. ``"wavelnth = 171 AND exptime >
            1.9"``. Names of columns are those of the Index, in any case, or keywords as FITS spells
            them in double quotes, as ``"DATE-OBS"`` for ``date_obs``. It cannot reach anything but
            the table. A row for which it is null, e.g. because a value is missing, is left out.
            NaN is a missing value, too: ``flux IS NULL`` finds it. Dates and times without a time
            zone are in UTC.

        Raises
        ------
        ModuleNotFoundError
            If DuckDB is not installed; it is in the extra ``cli``.
        TypeError
            If the condition is not text, but e.g. a mask.
        ValueError
            If it is not such an expression, is neither true nor false, no row matches, or names of
            columns differ only in case. Or if it uses what may give other rows each time: a sample,
            a function such as ``random`` or ``today``, or a table function.
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

    def split(
        self, fractions: Mapping[str, float], *, by: str | TimeBlocks | None = None, seed: int = 0
    ) -> dict[str, Self]:
        """Return an Index for each part, e.g. for training, validation and test.

        The part of a row depends on its value of `by` alone: it stays when files are added, removed
        or put into another order. Rows that share the value are in one part.

        Parameters
        ----------
        fractions : mapping of str to float
            Names and sizes of the parts, e.g. ``{"train": 0.8, "val": 0.1, "test": 0.1}``. They are
            expected values: the more different values, the closer the parts come.
        by : str or TimeBlocks, optional
            Column of text, bytes, integers, bools or times, e.g. that of the patient or the night,
            whose rows must stay together. Or blocks of time, see `TimeBlocks`; rows in their gaps
            are in no part, and the log counts them. By default ``key`` for samples in containers,
            else ``path``. Parts are not stratified: a small one may lack a class.
        seed : int
            In [0, 2**64): each gives another split.

        Raises
        ------
        KeyError
            If there is no such column.
        TypeError
            If the column holds something else.
        ValueError
            If the fractions do not add up to 1, a value is null, or a part would get no row.

        Notes
        -----
        The hash is 64-bit BLAKE2b of the value in UTF-8, big-endian, with the seed as little-endian
        salt. Integers are written in decimal, bools as 0 and 1, times in nanoseconds since 1970. A
        part gets the hashes in its share of [0, 2**64), in the order of the fractions. By ``path``
        a part depends on the whole path: an archive that was moved splits differently.

        Blocks of time 10 n to 10 n + 9 are run n. Its hashes lie in different tenths of [0, 2**64),
        in a random order, and those of runs 2 n and 2 n + 1 in different twentieths, so that each
        run has nearly the wanted fractions. Let h(n) be ``mix(n * 0x9e3779b97f4a7c15 + start)`` of
        SplitMix64, where start is the hash of no bytes, and r the rank of h(block) in its run. Then
        the half of the tenth is ``half = (mix(h(run // 2) + r) + run) % 2``, and the hash
        ``(2 * r + half) * (2**64 // 20) + h(block) % 2**32 * (2**32 // 20)``.
        """
        parts = split_rows(self.table, fractions, by, seed)
        return {name: self.select(rows) for name, rows in parts.items()}

    def each_plane(self, planes: Iterable[int]) -> Self:
        """Return an Index with one row for each plane of each row, row after row.

        Parameters
        ----------
        planes : iterable of int
            Plane numbers from 0 on, e.g. ``range(5)`` for the first five. Whether the files have
            them is not checked; ``dali-pipelines index --planes all`` does check.

        Raises
        ------
        ValueError
            If no number is given or one is negative, the Index already has planes, or its rows are
            samples of several files.
        """
        import pyarrow as pa

        numbers = [*planes] if isinstance(planes, Iterable) else []
        if not numbers or not all(is_integer(number, 0) for number in numbers):
            raise ValueError(
                f"planes must be one or more integers from 0 on, in a list, got {planes!r}"
            )
        if "plane" in self.table.column_names or self.parts:
            raise ValueError("the rows must be single files without a column 'plane'")
        count = self.table.num_rows
        table = self.table.take(pa.array(np.repeat(np.arange(count), len(numbers))))
        return type(self)(
            table.append_column("plane", pa.array(np.tile(np.array(numbers, np.int64), count)))
        )

    def each_window(
        self,
        crop: int | Sequence[int],
        image: Sequence[int] | Sequence[str],
        *,
        stride: int | Sequence[int] | None = None,
    ) -> Self:
        """Return an Index with one row for each window of a grid over each image.

        Its columns ``y`` and ``x`` hold the first row and column of each window; ``window="row"``
        cuts there. Windows that are no further apart than their size cover the whole image: the
        last ones along an axis end at its end, so that they overlap with those before if the grid
        does not fit.

        Parameters
        ----------
        crop : int or sequence of int
            (height, width) of the windows in pixels, or one number for both.
        image : sequence of int or str
            (height, width) of all images in pixels, or the names of two columns that hold them,
            e.g. ``("height", "width")``.
        stride : int or sequence of int, optional
            Pixels from one window to the next along rows and columns; by default those of the crop.

        Raises
        ------
        KeyError
            If there is no such column.
        ValueError
            If an image is smaller than the crop, these are no sizes, or the Index has a column
            ``y`` or ``x``.
        """
        return type(self)(window_rows(self.table, crop, image, stride))

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
            go together, their labels number different classes, or their samples have other
            `offsets`.
        """
        return cls(joined(indexes, fill=fill))

    def moved(self, old: str | os.PathLike[str], new: str | os.PathLike[str]) -> Self:
        """Return an Index of the same files in another folder, to which they were moved or copied.

        Parameters
        ----------
        old, new : path
            Folders, or URLs such as ``s3://bucket/archive``. Paths below `old` become those below
            `new`, also of parts and in columns such as ``mask_path``; others stay.

        Returns
        -------
        Index
            With the same `digest`, if all its files were below `old`: a saved state goes on. That
            the files are there, and are the same, is not checked. At a URL their ``etag`` and
            ``file_bytes`` are null, until `with_versions` notes them.

        Raises
        ------
        ValueError
            If no path is below `old`, one of both is empty, or `new` is a URL of which no objects
            can be read.
        """
        return type(self)(moved(self.table, os.fspath(old), os.fspath(new)))

    def with_column(self, name: str, values: ArrayLike | Sequence[Any] | pa.Array) -> Self:
        """Return an Index with one more column, or with other values in a column that it has.

        Parameters
        ----------
        name : str
            Name of the column. Those of files (``path``, ``hdu``, ...) have a meaning, see `Index`.
        values : array_like or pyarrow.Array, shape (len,)
            Numbers, bools, text, bytes or times; None, NaT, what a Series of pandas lacks, or what
            a masked array of NumPy or astropy masks, for null. Or an array of shape (len, k), k
            numbers for each row. Or for each row a list of numbers, or an array of shape (n, k),
            such as n boxes of k = 4; [] is no boxes. Of a Quantity the unit is not kept.

        Raises
        ------
        TypeError
            If the name is not text.
        ValueError
            If they are not one value for each row, all of one type, or the name is empty.

        Notes
        -----
        New values of ``label`` or ``labels`` number other classes: the Index loses its `classes`.
        With other ``y`` or ``x`` it loses its `window_size`, so that any crop fits them.
        """
        return type(self)(replaced(self.table, name, values))

    def with_versions(self, storage: Storage | None = None) -> Self:
        """Return the Index with the ETags and lengths of remote objects that it has none of.

        `readers.index.table.Index.scan` and functions that read the objects, such as `with_tiles`,
        do so; `from_csv` and `from_paths` make no request. From then on an object that is another
        one when it is read is rejected, and a cache keeps its bytes for the next run.

        Parameters
        ----------
        storage : Storage, optional
            How they are requested: the first byte of each, ``storage.concurrency`` at once.

        Returns
        -------
        Index
            With ``etag`` and ``file_bytes`` of the objects in ``path``; of a part ``path_171`` they
            are ``etag_171`` and ``file_bytes_171``, of ``mask_path`` ``mask_etag`` and
            ``mask_file_bytes``. Rows that have some keep these. Where the server gives no ETag it
            is made of Last-Modified, as ``W/"2026-11-27T19:16:39"``, else null. Both are null where
            the object cannot be read, which the log counts.

        Raises
        ------
        OSError
            If no object can be read, as there is no answer or no access.
        ValueError
            If a column of these names has another meaning.
        """
        return type(self)(with_versions(self.table, storage or Storage()))

    def row_values(self, names: Iterable[str]) -> RowValues:
        """Return columns that no tensor carries, such as text, to look up some rows at a time.

        Those of `names` that `columns` takes are left out. Raises KeyError if there is no such
        column, and TypeError if lists of numbers have nulls in them.
        """
        return RowValues(self.table, names, None if self._file is None else self._file.file)
