"""The Index: an immutable table of samples, one row for each.

Parquet or Arrow on disk, Arrow in memory. Functions import pyarrow when they need it, to keep it
out of the reader processes, which see the table as `readers.index.columns.Columns`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from readers.index import arrow_file, schema
from readers.index.catalogue.methods import IndexCutouts
from readers.index.columns import SPAN, Columns
from readers.index.containers.methods import IndexContainers
from readers.index.grouping.groups import Grouping, Missing
from readers.index.paths.absolute import absolute
from readers.index.rows.methods import IndexRows
from readers.index.rows.weights import RunningWeights, running_weights
from readers.index.scan import SUFFIXES as SUFFIXES
from readers.index.scan import folder_of
from readers.index.sources import INDEX_SUFFIXES as INDEX_SUFFIXES
from readers.places.opener import LOCAL

if TYPE_CHECKING:
    from astropy.units import Quantity


class Index(IndexContainers, IndexCutouts, IndexRows):
    """A table with a column ``path`` and any others.

    Parameters
    ----------
    table : pyarrow.Table
        ``path`` is text. ``hdu``, if present, is an integer (0 for the primary HDU, null for the
        first HDU that holds an image), and so is ``plane`` (0 for the first plane of an image of
        more than two axes, see `readers.fits.reader.FitsReader`). If a sample consists of several
        files, called parts, they are in text columns ``path_{part}`` (null for a missing file),
        with or without ``hdu_{part}`` and ``plane_{part}``. All other columns are the user's:
        labels, times, headers. Views of text or bytes become plain ones.

    Raises
    ------
    TypeError
        If it is no ``pyarrow.Table``.
    ValueError
        If the table has no rows or no column ``path``, a path is missing, or ``hdu`` or ``plane``
        has other values than integers.
    """

    def __getstate__(self) -> dict[str, Any]:
        return {"table": self.table}  # a copy in memory, which needs no file

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the Index, all or nothing: as Parquet, or as Arrow IPC.

        Parquet is compact. Arrow takes as much room as the table, 68 bytes per row for paths of 60
        characters, but opens at once even with a hundred million rows, and the reader processes
        share the file on disk, see `load`. It holds absolute paths: relative ones are resolved
        against its folder. For an archive that is moved, see `moved`.

        Parameters
        ----------
        path : path
            Must end in ``.parquet`` or ``.arrow``, which `scan` recognises. A link stays, and what
            it leads to is written.

        Raises
        ------
        ValueError
            If it has another suffix.
        OSError
            If it cannot be written, e.g. because the disk is full; an existing file is kept.
        """
        name = os.fspath(path)
        if not name.endswith(INDEX_SUFFIXES):
            raise ValueError(f"an Index file must end in {' or '.join(INDEX_SUFFIXES)}, got {name}")
        target = os.path.realpath(name)
        partial = f"{target}.part{os.getpid()}"
        try:
            if name.endswith(arrow_file.SUFFIX):
                table = absolute(self.table, folder_of(name))
                digest = self.digest if table is self.table else schema.digest(table)
                arrow_file.write(table, partial, digest)
            else:
                import pyarrow.parquet as pq

                pq.write_table(self.table, partial)
            os.replace(partial, target)
        except OSError as error:  # may lack the file's name, e.g. on a full disk
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise OSError(error.errno, reason, name) from error
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(partial)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __repr__(self) -> str:
        return f"<Index: {len(self)} rows, columns {', '.join(self.table.column_names)}>"

    def path(self, row: int) -> str:
        """Return the path of a row."""
        return str(self._value("path", row))

    def name(self, row: int) -> str:
        """Return the path of a row, of a span of a file with its first byte and end."""
        return LOCAL.at(self.path(row), *(self._value(name, row) for name in SPAN)).name

    def hdu(self, row: int) -> int | None:
        """Return the HDU of a row; None if the Index names none."""
        number = self._value("hdu", row)
        return None if number is None else int(number)

    def plane(self, row: int) -> int | None:
        """Return the plane of a row; None if the Index names none."""
        number = self._value("plane", row)
        return None if number is None else int(number)

    def _value(self, name: str, row: int) -> Any:
        if self._file is not None:
            return getattr(self._rows.row(row), name)
        return self.table[name][row].as_py() if name in self.table.column_names else None

    @cached_property
    def _rows(self) -> Columns:
        """Rows of a mapped Index, as the reader processes see them."""
        return self.columns()

    def group(
        self,
        channels: Sequence[Any] | None = None,
        *,
        by: str = Grouping.by,
        time: str = Grouping.time,
        tolerance: float | str | Quantity = Grouping.tolerance,
        missing: Missing = Grouping.missing,
        cadence: float | str | Quantity | None = Grouping.cadence,
        offsets: Sequence[float | str | Quantity] | None = Grouping.offsets,
    ) -> Index:
        """Group files that are close in time into samples with one file for each channel.

        With `offsets` a sample has such files at several times, a sequence of frames.

        Parameters
        ----------
        channels : sequence, optional
            Values of the column `by`. Without `cadence` the first is the reference: each of its
            files makes a sample. None for all files, as one channel, which needs `offsets`;
            `by` is not looked at then, so choose the files of one channel before.
        by : str
            Column that identifies the channel: numbers or text.
        time : str
            Column of times. For AIA that is T_OBS, the middle of the exposure: DATE-OBS is its
            start, which the automatic exposure control moves.
        tolerance : float, str or Quantity
            Largest time difference between a file and its sample, inclusive: seconds, or what
            ``astropy.units.Quantity`` takes, e.g. ``"12 s"``. The default is the cadence of AIA's
            EUV channels.
        missing : {"drop", "keep"}
            Drop samples that lack a channel, or keep those that have at least one.
        cadence : float, str or Quantity, optional
            Put samples at the multiples of this duration since 1970-01-01T00:00, whatever files
            exist, instead of at the times of the first channel. At least twice the tolerance.
        offsets : sequence of float, str or Quantity, optional
            Times of the frames minus that of the sample, e.g. ``("-24min", "-12min", "0",
            "+12min")``, in the order in which they are wanted; 0 need not be among them. They are
            more than twice the tolerance apart.

        Returns
        -------
        Index
            One row for each sample, in order of time, with ``path`` (and ``hdu`` and ``plane``, if
            this Index has them) of the first part that is present, ``time``, and for each channel
            e.g. ``path_171``, ``hdu_171`` and ``plane_171`` (null if missing) and ``dt_171``
            (float64, file minus sample in seconds, NaN if missing). With `offsets` these are
            ``path_171-24min``, ``path_171+0`` and so on, or ``path_-24min`` and ``path_0`` without
            `channels`: the channels of the first offset, then those of the second. See `channels`
            and `offsets`.

        Raises
        ------
        KeyError
            If there is no column `by` or `time`.
        TypeError
            If `time` is not a column of times.
        ValueError
            If a channel has no file, no sample is left, an argument is out of range, or the rows
            are samples of several files already.

        Notes
        -----
        A sample takes the nearest file of each channel, the earlier of two equally near ones. A
        file is in one sample at most: if it is the nearest of several samples, the nearest of these
        gets it (the later of two equally near ones) and the others lack the channel. If files have
        the same channel and time, the first row is used. Rows without a time are left out. The log
        counts both as warnings, and at level INFO the rows that are near no sample, or near one
        that is dropped. It counts dropped samples, and what they lack, too: as a warning if they
        are more than half.

        With `offsets` each frame is the nearest file, too, and a file is in many samples. Parts of
        a `split` have no file in common if it is by ``TimeBlocks("time", block, gap)``, where `gap`
        is at least the last offset minus the first, plus twice the tolerance; else the log counts
        those that they share.

        `by` and `tolerance` are named as in pandas: this is ``merge_asof`` with
        ``direction="nearest"`` and each file used once.
        """
        grouping = Grouping(
            channels=channels,
            by=by,
            time=time,
            tolerance=tolerance,
            missing=missing,
            cadence=cadence,
            offsets=offsets,
        )
        samples, dropped = grouping.apply(self.table)
        dropped.log()
        return Index(samples)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of paths, HDUs and planes, in order; a saved state must have the same.

        Paths are relative to the folder that they have in common, so that an archive that was moved
        or copied, also from a bucket, has the same. And of columns ``y`` and ``x``, the corners of
        windows, if both are integers or both floats.
        """
        noted = None if self._file is None else self._file.digest
        return noted or schema.digest(self.table)

    def has_digest(self, digest: object) -> bool:
        """Return whether this digest is that of the Index, also if an older release made it.

        Those had whole paths.
        """
        return digest == self.digest or digest == schema.digest(self.table, whole_paths=True)

    def columns(
        self,
        names: Iterable[str] = (),
        *,
        parts: Iterable[str] = (),
        notes: Iterable[str] = (),
        targets: Iterable[str] = (),
    ) -> Columns:
        """Return columns for reader processes: path, hdu and plane if present, and those named.

        Parameters
        ----------
        names : iterable of str
            Numeric columns, or of lists of a fixed length.
        parts : iterable of str
            Parts whose files will be read, for samples of several files.
        notes : iterable of str
            Columns of bytes for the Reader; those that the Index lacks are ignored.
        targets : iterable of str
            Columns of text, lists of numbers, or numbers, for targets.

        Raises
        ------
        KeyError
            If there is no such column or part.
        TypeError
            If a named column is not numeric (bool, integer, float or time, or lists of a fixed
            length of them), or has empty rows that cannot become NaN. If a column of `notes` does
            not hold bytes, or one of lists anything but numbers.

        Notes
        -----
        Columns are copied into a temporary file, which all their users share. Those of an
        ``.arrow`` file written by `save` are read from that file instead, except bool, dates, times
        in other units than ns, and lists of a fixed length.
        """
        known = set(self.table.column_names)
        present = tuple(name for name in notes if name in known)
        wanted = tuple(names), tuple(parts), present, tuple(targets)
        if (columns := self._shared.get(wanted)) is None:
            found = arrow_file.reader_columns(self.table, self._file, *wanted)
            columns = self._shared[wanted] = Columns(found, present)
        return columns

    @cached_property
    def _shared(self) -> WeakValueDictionary[tuple[tuple[str, ...], ...], Columns]:
        """Columns that are in use, e.g. by the pipelines of several devices."""
        return WeakValueDictionary()

    def running_weights(self, name: str) -> RunningWeights:
        """Return a column of weights for reader processes, which draw rows in proportion to them.

        Raises
        ------
        KeyError
            If there is no such column.
        TypeError
            If it is not numeric.
        ValueError
            If a weight is null, negative or not finite, or all are 0.

        Notes
        -----
        Running sums (float64) are written into a temporary file, which all their users share.
        """
        if (weights := self._shared_weights.get(name)) is None:
            weights = self._shared_weights[name] = running_weights(self.table, name)
        return weights

    @cached_property
    def _shared_weights(self) -> WeakValueDictionary[str, RunningWeights]:
        return WeakValueDictionary()
