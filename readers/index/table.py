"""The Index: an immutable table of what can be read, one row for each sample.

Parquet or Arrow on disk, Arrow in memory. pyarrow is imported where it is used, to keep it out of
the reader processes, which see the table as `readers.index.columns.Columns`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np

from readers.index import arrow_file, schema
from readers.index.arrow_file import ArrowFile
from readers.index.classes import classes_of, labels_of, with_classes
from readers.index.columns import Column, Columns, Stored, StoredNumbers
from readers.index.groups import Grouping, Missing
from readers.index.scan import find_files

if TYPE_CHECKING:
    import pyarrow as pa
    from astropy.units import Quantity
    from numpy.typing import ArrayLike

SUFFIXES = {
    "fits": (".fits", ".fit", ".fts", ".fits.gz", ".fit.gz", ".fts.gz", ".fits.fz", ".fz"),
    "jpeg": (
        *(".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".bmp", ".webp", ".tif", ".tiff"),
        *(".pbm", ".pgm", ".ppm", ".pnm", ".jp2", ".j2k", ".jpf", ".jpx", ".j2c", ".jpc"),
    ),
    "npy": (".npy",),
}
"""Files that a folder is searched for, by format, in lower case; capitals match as well."""

ALL_SUFFIXES = tuple(suffix for suffixes in SUFFIXES.values() for suffix in suffixes)

INDEX_SUFFIXES = (".parquet", arrow_file.SUFFIX)
"""Index files, see `Index.save`."""


class Index:
    """A table with a column ``path`` and any others.

    Parameters
    ----------
    table : pyarrow.Table
        ``path`` is text. ``hdu``, where present, is an integer (0 for the primary HDU, null for the
        first HDU that holds an image), and so is ``plane`` (0 for the first plane of an image of
        more than two axes, see `readers.fits.reader.FitsReader`). Where a sample consists of
        several files, its parts, text columns ``path_{part}`` (null for a missing file), with or
        without ``hdu_{part}`` and ``plane_{part}``, name them. All other columns are the user's:
        labels, times, headers.

    Raises
    ------
    ValueError
        If the table has no rows or no column ``path``, a path is missing, or ``hdu`` or ``plane``
        are no integers.
    """

    def __init__(self, table: pa.Table) -> None:
        schema.check(table)
        self.table = table

    _file: ArrowFile | None = None
    """Where the table lies, if it is mapped from an Index file."""

    def __getstate__(self) -> dict[str, Any]:
        return {"table": self.table}  # a copy, which needs no file

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
            subfolders), one file, an Index file (``.parquet``, ``.arrow``), a catalogue
            (``.csv``), or an iterable of paths, whose order is kept. What a folder or glob gives
            is sorted. The log counts the files of a folder that are left out.
        suffixes : sequence of str
            What to look for in a folder, lower case, with the dot.

        Raises
        ------
        FileNotFoundError
            If nothing is there, or nothing matches.
        ValueError
            If it is a URL. Files of folders whose names are not UTF-8 are left out, with a warning.
        """
        if not isinstance(data, str | os.PathLike):
            return cls.from_paths(data)
        text = os.fspath(data)
        if text.endswith(INDEX_SUFFIXES) and os.path.isfile(text):
            return cls.load(text)
        if text.endswith(".csv") and os.path.isfile(text):
            return cls.from_csv(text)
        return cls._of_paths(find_files(text, tuple(suffixes), SUFFIXES))

    @classmethod
    def from_paths(cls, paths: Iterable[str | os.PathLike[str]]) -> Index:
        """Make an Index of one row a path, in the order given; relative paths are made absolute.

        Raises
        ------
        ValueError
            If one is a URL, or no UTF-8.
        """

        def local(path: str) -> str:
            schema.check_local(path)
            return os.path.abspath(path)

        return cls._of_paths(local(os.fspath(path)) for path in paths)

    @classmethod
    def _of_paths(cls, paths: Iterable[str]) -> Index:
        import pyarrow as pa

        return cls(pa.table({"path": schema.text_column(paths)}))

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
        return cls(schema.absolute(table, _folder(path)))

    @classmethod
    def from_class_folders(
        cls,
        folder: str | os.PathLike[str],
        *,
        classes: Sequence[str] | Index | None = None,
        suffixes: Sequence[str] = SUFFIXES["jpeg"],
    ) -> Index:
        """Make an Index of a folder that has one subfolder for each class, as ImageNet has.

        Parameters
        ----------
        folder : path
            The folder.
        classes : sequence of str, or Index, optional
            Names of all classes in the order of their labels, or the Index of the training files,
            so that labels stay the same where a folder lacks a class. By default the names of the
            subfolders that have files, sorted.
        suffixes : sequence of str
            What to look for, lower case, with the dot.

        Returns
        -------
        Index
            With ``label`` (int64, place of the class in `classes`) and ``class_name``; all names
            are its `classes`.

        Raises
        ------
        ValueError
            If there is a class folder that is not among `classes`, or a file beside the folders.
        """
        import pyarrow as pa

        root = os.path.abspath(folder)
        paths = list(find_files(root, tuple(suffixes), SUFFIXES))
        names = [os.path.relpath(path, root).split(os.sep)[0] for path in paths]
        loose = [path for path in paths if os.path.dirname(path) == root]
        if loose:
            raise ValueError(
                f"{root}: expected one subfolder for each class, but {loose[0]} lies beside them"
            )
        if isinstance(classes, Index):
            if not classes.classes:
                raise ValueError(
                    f"classes={classes!r} names no classes: make it by Index.from_class_folders, "
                    "or scripts/index.py --class_folders"
                )
            classes = classes.classes
        labels = labels_of(names, classes)
        table = pa.table(
            {
                "path": pa.array(paths, pa.large_string()),
                "label": pa.array([labels[name] for name in names], pa.int64()),
                "class_name": names,
            }
        )
        return cls(with_classes(table, list(labels)))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Index:
        """Read an Index file.

        Parameters
        ----------
        path : path
            As `save` wrote it; or any Parquet file, or Arrow IPC file with the suffix ``.arrow``,
            whose table is an Index. Relative paths in it are relative to its folder.

        Raises
        ------
        ValueError
            If the file is damaged, or its table is no Index.

        Notes
        -----
        An ``.arrow`` file that `save` wrote opens at once, whatever its number of rows, and is not
        read but mapped. It may be deleted, or another may take its name, while the Index is in use.
        It must not be written to in its place: then rows are refused with ReadError.
        """
        name = os.fspath(path)
        try:
            if not name.endswith(arrow_file.SUFFIX):
                import pyarrow.parquet as pq

                os.stat(name)  # what is not there: pyarrow says its name and no more
                table = pq.read_table(name)
            elif file := ArrowFile.open(name):
                index = cls.__new__(cls)  # it was checked when it was saved
                index.table, index._file = file.table, file
                return index
            else:
                table = arrow_file.read(name)
        except (ValueError, KeyError, NotImplementedError, OSError) as error:
            if isinstance(error, OSError) and (error.errno or type(error) is not OSError):
                raise  # it cannot be opened; all else is of pyarrow, or a note that cannot be
            raise ValueError(
                f"{name}: expected an Index file, but it is damaged, cut off or of another kind "
                f"({error}): make it again, with Index.save or scripts/index.py"
            ) from error
        return cls(schema.absolute(table, _folder(name)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the Index, all or nothing: as Parquet, or as Arrow IPC.

        Parquet is compact. Arrow takes as much room as the table, 68 bytes a row for paths of 60
        characters, but opens at once also with a hundred million rows, and the reader processes
        share it as it lies on disk, see `load`. It holds absolute paths: relative ones are taken as
        relative to its folder, so that only a Parquet file can move along with its archive.

        Parameters
        ----------
        path : path
            Ends in ``.parquet`` or ``.arrow``, by which `scan` will know what it is.

        Raises
        ------
        ValueError
            If it ends otherwise.
        OSError
            If it cannot be written, a full disk included; what was there is kept.
        """
        name = os.fspath(path)
        if not name.endswith(INDEX_SUFFIXES):
            raise ValueError(f"an Index file must end in {' or '.join(INDEX_SUFFIXES)}, got {name}")
        part = f"{name}.part{os.getpid()}"
        try:
            if name.endswith(arrow_file.SUFFIX):
                table = schema.absolute(self.table, _folder(name))
                digest = self.digest if table is self.table else schema.digest(table)
                arrow_file.write(table, part, digest)
            else:
                import pyarrow.parquet as pq

                pq.write_table(self.table, part)
            os.replace(part, name)
        except OSError as error:  # of a full disk, say, without a name
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise OSError(error.errno, reason, name) from error
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part)

    # What is in it.

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __repr__(self) -> str:
        return f"<Index: {len(self)} rows, columns {', '.join(self.table.column_names)}>"

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of their labels; () if the Index has none.

        They lie in the metadata of the table, and so in an Index file.
        """
        return classes_of(self.table)

    def path(self, row: int) -> str:
        """Path of a row."""
        if self._file is not None:
            return self._rows.row(row).path
        return str(self.table["path"][row].as_py())

    def hdu(self, row: int) -> int | None:
        """HDU of a row; None where the Index names none."""
        return self._place("hdu", row)

    def plane(self, row: int) -> int | None:
        """Plane of a row; None where the Index names none."""
        return self._place("plane", row)

    def _place(self, name: str, row: int) -> int | None:
        if name not in self.table.column_names:
            return None
        if self._file is not None:
            found: int | None = getattr(self._rows.row(row), name)
            return found
        number = self.table[name][row].as_py()
        return None if number is None or number < 0 else int(number)

    @cached_property
    def _rows(self) -> Columns:
        """Rows of a mapped Index, as the reader processes see them."""
        return self.columns()

    def select(self, rows: ArrayLike) -> Index:
        """Return the Index of some rows, in the order given.

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

    def each_plane(self, planes: Iterable[int]) -> Index:
        """Return an Index of some planes of each row: the planes of the first row, then the next's.

        Parameters
        ----------
        planes : iterable of int
            Their numbers, from 0 on, as ``range(5)`` for the first five. That the files have them
            is not looked at; ``scripts/index.py --planes all`` does.

        Raises
        ------
        ValueError
            If no number is given or one is negative, the Index has planes already, or its rows are
            samples of several files.
        """
        import pyarrow as pa

        numbers = np.array(list(planes), np.int64)
        if not len(numbers) or numbers.min() < 0:
            raise ValueError(f"planes must be at least one number from 0 on, got {[*numbers]}")
        if "plane" in self.table.column_names or self.parts:
            raise ValueError("the rows must be single images, and have no planes yet")
        rows = np.repeat(np.arange(len(self)), len(numbers))
        table = self.table.take(pa.array(rows))
        return Index(table.append_column("plane", pa.array(np.tile(numbers, len(self)))))

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the parts, where a sample consists of several files."""
        return schema.parts(self.table)

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
            A row for each sample, in order of time, with ``path`` (and ``hdu`` and ``plane``, if
            this Index has them) of the first channel that is present, ``time``, and for each
            channel ``path_171``, ``hdu_171`` and ``plane_171`` (null if missing) and ``dt_171``
            (float64, file minus sample in seconds, NaN if missing).

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
        """What a saved state is checked against: SHA-256 of paths, HDUs and planes, in order."""
        return schema.digest(self.table) if self._file is None else self._file.digest

    def columns(
        self,
        names: Iterable[str] = (),
        *,
        parts: Iterable[str] = (),
        notes: Iterable[str] = (),
    ) -> Columns:
        """Return columns to reader processes: path, hdu and plane if there are, and the named.

        Parameters
        ----------
        names : iterable of str
            Numeric columns.
        parts : iterable of str
            Parts whose files will be read, for samples of several files.
        notes : iterable of str
            Columns of bytes for the Reader, those among them that the Index has.

        Raises
        ------
        KeyError
            If there is no such column or part.
        TypeError
            If a named column is not numeric (bool, integer, float or time), or has empty rows that
            cannot be told as NaN. If a column of `notes` holds no bytes.

        Notes
        -----
        They are copied into a temporary file, which all who hold them share. Not so those of an
        ``.arrow`` file that `save` wrote: they are read where they lie, but for bool, dates, and
        times of another unit than ns.
        """
        known = set(self.table.column_names)
        wanted = tuple(names), tuple(parts), tuple(name for name in notes if name in known)
        if (columns := self._given.get(wanted)) is None:
            columns = self._given[wanted] = Columns(self._stored(*wanted), wanted[2])
        return columns

    @cached_property
    def _given(self) -> WeakValueDictionary[tuple[tuple[str, ...], ...], Columns]:
        """Columns that somebody holds, such as the pipelines of several devices."""
        return WeakValueDictionary()

    def _stored(
        self, names: tuple[str, ...], parts: tuple[str, ...], notes: tuple[str, ...]
    ) -> dict[str, Column | Stored]:
        columns = self._files(parts)
        for name in names:
            if name not in self.table.column_names:
                raise KeyError(
                    f"the Index has no column {name!r}, it has {', '.join(self.table.column_names)}"
                )
            if isinstance(columns.get(name), np.ndarray | StoredNumbers):
                continue
            stored = None if self._file is None else self._file.numbers(name)
            columns[name] = stored or schema.numbers(name, self.table[name])
        for name in notes:
            kind = self.table.schema.field(name).type
            if not schema.is_binary(kind):
                raise TypeError(f"column {name!r} must hold bytes for the Reader, got {kind}")
            columns[name] = (
                schema.strings(self.table[name]) if self._file is None else self._file.strings(name)
            )
        return columns

    def _files(self, parts: tuple[str, ...]) -> dict[str, Column | Stored]:
        known = self.parts
        for part in parts:
            if part not in known:
                raise KeyError(
                    f"the Index has no part {part!r}, it has {', '.join(known) or 'none'}: make "
                    "samples of several files by Index.group, or scripts/index.py --group"
                )
        columns: dict[str, Column | Stored] = {}
        for name, is_text in schema.file_columns(self.table, parts):
            if self._file is not None:
                columns[name] = self._file.strings(name) if is_text else self._file.places(name)
            elif is_text:
                columns[name] = schema.strings(self.table[name])
            else:
                columns[name] = schema.places(self.table[name])
        return columns


def _folder(file: str | os.PathLike[str]) -> str:
    return os.path.dirname(os.path.abspath(file))
