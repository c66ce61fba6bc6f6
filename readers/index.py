"""The Index: an immutable table of what can be read, one row for each sample.

Parquet on disk, Arrow in memory. pyarrow is imported where it is used, to keep it out of the reader
processes, which see the table as `readers.columns.Columns`.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from readers.columns import PART, Column, Columns, Strings
from readers.groups import Grouping, Missing

if TYPE_CHECKING:
    import pyarrow as pa
    from astropy.units import Quantity
    from numpy.typing import ArrayLike

SUFFIXES = {
    "fits": (".fits", ".fit", ".fts", ".fits.gz", ".fit.gz", ".fts.gz", ".fits.fz", ".fz"),
    "jpeg": (".jpg", ".jpeg", ".jpe", ".png"),
    "npy": (".npy",),
}
"""Files that a folder is searched for, by format, in lower case; capitals match as well."""

ALL_SUFFIXES = tuple(suffix for suffixes in SUFFIXES.values() for suffix in suffixes)

_NO_NUMBERS = (
    "column {name!r} is {type}; a tensor can carry numbers and times: "
    "add a numeric column in its place"
)


class Index:
    """A table with a column ``path`` and any others.

    Parameters
    ----------
    table : pyarrow.Table
        ``path`` is text. ``hdu``, where present, is an integer (0 for the primary HDU, null for the
        first HDU that holds an image). Where a sample consists of several files, its parts, text
        columns ``path_{part}`` (null for a missing file), with or without ``hdu_{part}``, name
        them. All other columns are the user's: labels, times, headers.

    Raises
    ------
    ValueError
        If the table has no rows or no column ``path``, or a path is missing.
    """

    def __init__(self, table: pa.Table) -> None:
        import pyarrow.compute as pc

        if "path" not in table.column_names:
            raise ValueError(f"an Index needs a column 'path', got {table.column_names}")
        if table.num_rows == 0:
            raise ValueError("an Index needs at least one row, got none")
        paths = table["path"]
        if not _is_text(paths):
            raise ValueError(f"column 'path' must be text, got {paths.type}")
        empty = paths.null_count + (pc.sum(pc.equal(paths, "")).as_py() or 0)
        if empty:
            raise ValueError(f"column 'path' has {empty} empty rows")
        self.table = table

    # Where an Index comes from.

    @classmethod
    def scan(
        cls,
        data: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        *,
        suffixes: Sequence[str] = ALL_SUFFIXES,
    ) -> Index:
        """Make or load an Index from whatever names the data.

        Parameters
        ----------
        data : path, or iterable of paths
            A folder (searched with its subfolders for `suffixes`), a glob (``**`` for any
            subfolders), one file, an Index file (``.parquet``), a catalogue (``.csv``), or an
            iterable of paths, whose order is kept. What a folder or glob gives is sorted.
        suffixes : sequence of str
            What to look for in a folder, lower case, with the dot.

        Raises
        ------
        FileNotFoundError
            If nothing is there, or nothing matches.
        """
        if not isinstance(data, str | os.PathLike):
            return cls.from_paths(data)
        text = os.fspath(data)
        if text.endswith(".parquet") and os.path.isfile(text):
            return cls.load(text)
        if text.endswith(".csv") and os.path.isfile(text):
            return cls.from_csv(text)
        return cls.from_paths(_find(text, tuple(suffixes)))

    @classmethod
    def from_paths(cls, paths: Iterable[str | os.PathLike[str]]) -> Index:
        """Make an Index of one row a path, in the order given; relative paths are made absolute."""
        import pyarrow as pa

        absolute = [os.path.abspath(path) for path in paths]
        return cls(pa.table({"path": pa.array(absolute, pa.large_string())}))

    @classmethod
    def from_csv(cls, path: str | os.PathLike[str]) -> Index:
        """Read a catalogue with a header line, one of whose columns is ``path``.

        Relative paths are relative to the catalogue's folder.
        """
        import pyarrow as pa
        import pyarrow.csv as pacsv

        as_text = pacsv.ConvertOptions(column_types={"path": pa.large_string()})
        table = pacsv.read_csv(path, convert_options=as_text)
        if "path" not in table.column_names:
            raise ValueError(
                f"{os.fspath(path)}: expected a column 'path', got {table.column_names}"
            )
        return _relative_to(path, cls(table))

    @classmethod
    def from_class_folders(
        cls, folder: str | os.PathLike[str], *, suffixes: Sequence[str] = SUFFIXES["jpeg"]
    ) -> Index:
        """Make an Index of a folder that has one subfolder for each class, as ImageNet has.

        Returns
        -------
        Index
            With ``label`` (int64, place of the class in sorted order) and ``class_name``.
        """
        import pyarrow as pa

        root = os.path.abspath(folder)
        paths = _find(root, tuple(suffixes))
        names = [os.path.relpath(path, root).split(os.sep)[0] for path in paths]
        loose = [path for path in paths if os.path.dirname(path) == root]
        if loose:
            raise ValueError(
                f"{root}: expected one subfolder for each class, but {loose[0]} lies beside them"
            )
        labels = {name: label for label, name in enumerate(sorted(set(names)))}
        return cls(
            pa.table(
                {
                    "path": pa.array(paths, pa.large_string()),
                    "label": pa.array([labels[name] for name in names], pa.int64()),
                    "class_name": names,
                }
            )
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Index:
        """Read an Index file; relative paths in it are relative to its folder."""
        import pyarrow.parquet as pq

        return _relative_to(path, cls(pq.read_table(path)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the Index as Parquet, all or nothing."""
        import pyarrow.parquet as pq

        part = f"{os.fspath(path)}.part{os.getpid()}"
        try:
            pq.write_table(self.table, part)
            os.replace(part, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part)

    # What is in it.

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __repr__(self) -> str:
        return f"<Index: {len(self)} rows, columns {', '.join(self.table.column_names)}>"

    def path(self, row: int) -> str:
        """Path of a row."""
        return str(self.table["path"][row].as_py())

    def hdu(self, row: int) -> int | None:
        """HDU of a row; None where the Index names none."""
        if "hdu" not in self.table.column_names:
            return None
        number = self.table["hdu"][row].as_py()
        return None if number is None or number < 0 else int(number)

    def select(self, rows: ArrayLike) -> Index:
        """Give the Index of some rows, in the order given.

        Parameters
        ----------
        rows : array_like, shape (k,) of int, or (len,) of bool
            Row numbers, or a mask.
        """
        import pyarrow as pa

        chosen = np.asarray(rows)
        if chosen.dtype == bool:
            if chosen.shape != (len(self),):
                raise ValueError(f"a mask must have shape ({len(self)},), got {chosen.shape}")
            chosen = np.flatnonzero(chosen)
        return Index(self.table.take(pa.array(chosen, pa.int64())))

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the parts, where a sample consists of several files."""
        return tuple(
            name.removeprefix(PART)
            for name in self.table.column_names
            if name.startswith(PART) and _is_text(self.table[name])
        )

    def group(
        self,
        channels: Sequence[Any],
        *,
        by: str = Grouping.by,
        time: str = Grouping.time,
        tolerance: float | str | Quantity = Grouping.tolerance,
        missing: Missing = Grouping.missing,
        cadence: float | str | Quantity | None = Grouping.cadence,
    ) -> Index:
        """Make samples of several files near one time, a file for each channel.

        Parameters
        ----------
        channels : sequence
            Values of the column `by`. Without `cadence` the first is the reference: each of its
            files makes a sample.
        by : str
            Column that tells channels apart.
        time : str
            Column of times.
        tolerance : float, str or Quantity
            How far a file may be from the time of its sample, that included: seconds, or what
            ``astropy.units.Quantity`` takes, as ``"12 s"``.
        missing : {"drop", "keep"}
            Leave out samples that lack a channel, or keep those that have one at least.
        cadence : float, str or Quantity, optional
            Let samples be at the multiples of this duration since 1970-01-01T00:00, instead of at
            the times of the first channel. At least twice the tolerance.

        Returns
        -------
        Index
            A row for each sample, in order of time, with ``path`` (and ``hdu``, if this Index has
            it) of the first channel that is present, ``time``, and for each channel ``path_171``
            and ``hdu_171`` (null if missing) and ``dt_171`` (float64, file minus sample in seconds,
            NaN if missing).

        Raises
        ------
        KeyError
            If there is no column `by` or `time`.
        TypeError
            If `time` is not a column of times.
        ValueError
            If a channel has no file, no sample is left, or an argument is out of its range.

        Notes
        -----
        A sample takes of each channel the file nearest in time, of two equally near the earlier.
        Where several samples would take one file, the nearest of them has it, of two equally near
        the later, and the others lack the channel: no file is in two samples. Of files of one
        channel and time the first row counts. Rows without a time are left out.

        The words are those of pandas: `by` and `tolerance` of ``merge_asof``, of which this is the
        ``direction="nearest"`` with each file used once.
        """
        grouping = Grouping(
            channels=channels,
            by=by,
            time=time,
            tolerance=tolerance,
            missing=missing,
            cadence=cadence,
        )
        return Index(grouping.apply(self.table))

    @cached_property
    def digest(self) -> str:
        """What a saved state is checked against: SHA-256 of the paths and HDUs, in order."""
        digest = hashlib.sha256()
        for name, column in self._files(sorted(self.parts)).items():
            digest.update(name.encode())
            parts = (column.offsets, column.blob) if isinstance(column, Strings) else (column,)
            for part in parts:
                digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()

    def columns(self, names: Iterable[str] = (), *, parts: Iterable[str] = ()) -> Columns:
        """Map the columns for reader processes: path, hdu if there is one, and the named ones.

        Parameters
        ----------
        names : iterable of str
            Numeric columns.
        parts : iterable of str
            Parts whose files will be read, for samples of several files.

        Raises
        ------
        KeyError
            If there is no such column or part.
        TypeError
            If a named column is not numeric (bool, integer, float or time), or has empty rows that
            cannot be told as NaN.
        """
        arrays = self._files(parts)
        for name in names:
            if name not in self.table.column_names:
                raise KeyError(
                    f"the Index has no column {name!r}, it has {', '.join(self.table.column_names)}"
                )
            if not isinstance(arrays.get(name), np.ndarray):
                arrays[name] = _numbers(name, self.table[name])
        return Columns(arrays)

    def _files(self, parts: Iterable[str]) -> dict[str, Column]:
        parts, known = tuple(parts), self.parts
        for part in parts:
            if part not in known:
                raise KeyError(
                    f"the Index has no part {part!r}, it has {', '.join(known) or 'none'}: make "
                    "samples of several files by Index.group, or scripts/index.py --group"
                )
        arrays: dict[str, Column] = {}
        for suffix in ("", *(f"_{part}" for part in parts)):
            arrays[f"path{suffix}"] = _strings(self.table[f"path{suffix}"])
            if f"hdu{suffix}" in self.table.column_names:
                arrays[f"hdu{suffix}"] = _hdus(self.table[f"hdu{suffix}"])
        return arrays


def _find(text: str, suffixes: tuple[str, ...]) -> list[str]:
    """Files of a folder or a glob, absolute and sorted."""
    if os.path.isdir(text):
        found = [
            os.path.join(folder, name)
            for folder, names in _folders(os.path.abspath(text))
            for name in names
            if name.lower().endswith(suffixes)
        ]
        if not found:
            raise FileNotFoundError(f"{text}: no file in this folder ends in {', '.join(suffixes)}")
        return sorted(found)
    if os.path.isfile(text):
        return [os.path.abspath(text)]
    if not glob.has_magic(text):
        raise FileNotFoundError(
            f"{text}: no such folder or file; give a folder, a glob, a .csv or an Index file"
        )
    found = [os.path.abspath(path) for path in glob.iglob(text, recursive=True)]
    found = [path for path in found if os.path.isfile(path)]
    if not found:
        raise FileNotFoundError(f"{text}: no file matches this pattern")
    return sorted(found)


def _folders(root: str) -> Iterator[tuple[str, list[str]]]:
    """Give each folder below `root`, links followed, and the names of its files; each only once."""
    seen = set()
    for folder, below, names in os.walk(root, followlinks=True):
        status = os.stat(folder)
        identity = status.st_dev, status.st_ino
        if identity in seen:  # a link to a folder above, or a second one to the same
            below.clear()
            continue
        seen.add(identity)
        yield folder, names


def _relative_to(file: str | os.PathLike[str], index: Index) -> Index:
    """Take relative paths as relative to the folder of the file that they were read from."""
    import pyarrow as pa
    import pyarrow.compute as pc

    folder = os.path.dirname(os.path.abspath(file))
    table = index.table
    for name in ("path", *(PART + part for part in index.parts)):
        paths = table[name]
        if pc.all(pc.or_(pc.starts_with(paths, "/"), pc.equal(paths, ""))).as_py():
            continue
        joined = (os.path.join(folder, path) if path else None for path in paths.to_pylist())
        place = table.column_names.index(name)
        table = table.set_column(place, name, pa.array(joined, pa.large_string()))
    return Index(table)


def _is_text(column: pa.ChunkedArray) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(column.type) or pa.types.is_large_string(column.type))


def _strings(column: pa.ChunkedArray) -> Strings:
    import pyarrow as pa

    text = pa.concat_arrays(column.cast(pa.large_string()).fill_null("").chunks)
    _, offsets, blob = text.buffers()
    stops = np.frombuffer(offsets, np.int64)[text.offset : text.offset + len(text) + 1]
    data = np.frombuffer(blob, np.uint8) if blob is not None else np.zeros(0, np.uint8)
    return Strings(stops - stops[0], data[stops[0] : stops[-1]])


def _hdus(column: pa.ChunkedArray) -> np.ndarray[Any, Any]:
    import pyarrow as pa

    return column.cast(pa.int64()).fill_null(-1).to_numpy()


def _numbers(name: str, column: pa.ChunkedArray) -> np.ndarray[Any, Any]:
    import pyarrow as pa

    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        # Nanoseconds, so that a time is one exact number in a tensor.
        column = column.cast(pa.timestamp("ns")).cast(pa.int64())
    if not (
        pa.types.is_integer(column.type)
        or pa.types.is_floating(column.type)
        or pa.types.is_boolean(column.type)
    ):
        raise TypeError(_NO_NUMBERS.format(name=name, type=column.type))
    if column.null_count and not pa.types.is_floating(column.type):
        raise TypeError(
            f"column {name!r} is {column.type} and has {column.null_count} empty rows: "
            "fill them, or make it floating (empty becomes NaN)"
        )
    return column.to_numpy()
