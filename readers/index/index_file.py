"""Index files, Parquet or Arrow, and temporary Arrow files of columns for reader processes.

An Arrow file is memory-mapped, so it opens at once for any number of rows. A note in the metadata
of the first batch of rows says that the Index was checked when it was saved. If another program
reads the file and writes it again, the note is lost, and the table is checked again.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import IO, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from readers.index import schema
from readers.index.arrow import pa, pc
from readers.index.columns import OTHER_PATH, Column, ColumnKind, FrameColumn, SharedFile
from readers.index.list_columns import are_plain, is_lists, lists_of
from readers.index.paths import absolute, holds_paths
from readers.index.scan import folder_of

Values: TypeAlias = "NDArray[Any] | pa.Array | pa.ChunkedArray"

INDEX_SUFFIXES = (".parquet", ".arrow")
"""Suffixes of Index files."""
_BATCH_BYTES = 512 << 20
"""Size of a batch of rows. Writing copies one batch at a time. Opening reads a little of each
batch, which takes some ms on a disk."""
_NOTE = b"dali-pipelines Index"
_VERSION = 3
"""Version of Arrow files. Files of other versions are read like those of other programs."""


def read_index_file(path: str | os.PathLike[str]) -> pa.Table | ArrowFile:
    """Return the unchecked table of a file, or an Arrow file that `write_index_file` made.

    Raises
    ------
    OSError
        If it cannot be opened.
    ValueError
        If it is damaged, or of another kind.
    """
    name = os.fspath(path)
    try:
        if name.endswith(".arrow"):
            return ArrowFile.open(name) or _read(name)
        import pyarrow.parquet as pq

        os.stat(name)  # for the message about a missing file, which is unclear in pyarrow
        return pq.read_table(name)
    except (ValueError, KeyError, NotImplementedError, OSError) as error:
        if isinstance(error, OSError) and (error.errno or type(error) is not OSError):
            raise  # the file cannot be opened; other errors mean bad content
        if name.endswith(".csv"):
            raise ValueError(f"{name}: a catalogue is read by Index.scan") from None
        raise ValueError(
            f"{name}: expected an Index file, but it is damaged, cut off or of another kind "
            f"({error}): make it again, with Index.save or dali-pipelines index"
        ) from error


def write_index_file(
    table: pa.Table, path: str | os.PathLike[str], digest: Callable[[], str]
) -> None:
    """Write the table of an Index, all or nothing, see `readers.index.table.Index.save`.

    `digest` returns the digest of the table. It is called only if the file needs a digest.
    """
    name = os.fspath(path)
    if not name.endswith(INDEX_SUFFIXES):
        raise ValueError(f"an Index file must end in {' or '.join(INDEX_SUFFIXES)}, got {name}")
    target = os.path.realpath(name)
    partial = f"{target}.part{os.getpid()}"
    try:
        if name.endswith(".arrow"):
            written = absolute(table, folder_of(name))
            _write(written, partial, digest() if written is table else schema.digest(written))
        else:
            import pyarrow.parquet as pq

            pq.write_table(table, partial)
        os.replace(partial, target)
    except OSError as error:  # may lack the name of the file, e.g. on a full disk
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise OSError(error.errno, reason, name) from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial)


@dataclass(frozen=True, slots=True)
class ArrowFile:
    """An open file that `write_index_file` or `store_columns` made."""

    table: pa.Table
    """Memory-mapped, so only used parts are read."""
    digest: str
    """See `readers.index.schema.digest`; empty for columns that are not an Index."""
    batch_rows: int
    file: SharedFile
    address: int
    """Address of the first byte of the file in this process."""

    @classmethod
    def open(cls, path: str) -> ArrowFile | None:
        """Open an Index file, in constant time.

        Returns
        -------
        ArrowFile or None
            None for an Arrow file that `write_index_file` did not make.

        Raises
        ------
        ValueError, KeyError, NotImplementedError, OSError
            If it is not an Arrow file, is damaged, or is truncated. The OSError has no errno.
        """
        shared = SharedFile(open(path, "rb", buffering=0), os.path.abspath(path))  # noqa: SIM115
        reader, address = _mapped(shared)
        if not reader.num_record_batches:
            return None
        _, metadata = reader.get_batch_with_custom_metadata(0)
        note = json.loads((metadata or {}).get(_NOTE, "{}"))
        table = reader.read_all()
        if note.get("version") != _VERSION:
            return None
        table.validate()
        expected = note["num_rows"], note["columns"]
        found = table.num_rows, _columns(table.schema)
        if found != expected:
            raise ValueError(f"expected rows and columns {expected}, found {found}")
        return cls(table, note["digest"], note["batch_rows"], shared, address)

    def column(self, name: str, dtype: str | None = None) -> Column:
        """Locate a column of numbers, large_string, large_binary or large_list for readers.

        `dtype` is the type of the values if it differs from the type of the column, see `_bits`.
        """
        chunks, kind = self.table[name].chunks, self.table[name].type
        buffers = [chunk.buffers() for chunk in chunks]
        starts = [self._start(each[-1]) for each in buffers]
        if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
            own: ColumnKind = "text" if pa.types.is_large_string(kind) else "bytes"
            dtype, counts = "|u1", [each[2].size if each[2] else 0 for each in buffers]
        elif pa.types.is_large_list(kind):
            own, dtype = "lists", _dtype_of(kind.value_type)
            counts = [len(chunk.values) for chunk in chunks]
        else:
            own, dtype = "numbers", dtype or _dtype_of(kind)
            counts = [len(chunk) for chunk in chunks]
        offsets = [-1 if own == "numbers" else self._start(each[1]) for each in buffers]
        batches = tuple(zip(offsets, starts, counts, strict=True))
        return Column(self.file, own, dtype, self.table.num_rows, self.batch_rows, batches)

    def _start(self, buffer: pa.Buffer | None) -> int:
        # An empty buffer may have any address.
        return buffer.address - self.address if buffer else 0


def _mapped(file: SharedFile) -> tuple[pa.ipc.RecordBatchFileReader, int]:
    """Map a file; return its reader, and the address of its first byte."""
    content = pa.memory_map(f"/proc/self/fd/{file.fileno}").read_buffer()
    return pa.ipc.open_file(content), content.address


def _dtype_of(kind: pa.DataType) -> str:
    """Return NumPy's name of a type of numbers, or of lists with a fixed number of numbers."""
    if pa.types.is_fixed_size_list(kind):
        return f"({kind.list_size},){_dtype_of(kind.value_type)}"
    return np.dtype(np.int64 if pa.types.is_timestamp(kind) else kind.to_pandas_dtype()).str


def _read(path: str) -> pa.Table:
    """Read an Arrow file of another program into memory, and validate it fully.

    Raises
    ------
    ValueError, KeyError, NotImplementedError, OSError
        As in `ArrowFile.open`.
    """
    with pa.OSFile(path) as file:
        table = pa.ipc.open_file(file).read_all()
    table.validate(full=True)
    return table


def _write(table: pa.Table, path: str, digest: str) -> None:
    """Write the table of an Index, whose paths are absolute.

    Paths become large_string, bytes large_binary, lists large_list, HDUs and planes int64. Below
    each null is the value that reader processes use for it: an empty path, no bytes, -1 or NaN.
    """
    table = table.unify_dictionaries()  # a file has one dictionary for each column
    kinds = {True: pa.large_string(), False: pa.int64()}
    located = {
        name: kinds[is_text]
        for name, is_text in schema.file_columns(table, schema.part_names(table))
    }
    for field in table.schema:
        if schema.is_binary(field.type):
            located[field.name] = pa.large_binary()
        elif pa.types.is_list(field.type):
            located[field.name] = pa.large_list(field.type.value_field)
        elif holds_paths(field.name, table[field.name]):
            located[field.name] = pa.large_string()
    fields = [field.with_type(located.get(field.name, field.type)) for field in table.schema]
    stored = pa.schema(fields, table.schema.metadata)
    note = {
        "version": _VERSION,
        "num_rows": table.num_rows,
        "columns": _columns(stored),
        "digest": digest,
    }
    with pa.OSFile(path, "wb") as file:
        _write_batches(table, file, stored, note)


def _write_batches(
    table: pa.Table,
    file: IO[bytes] | pa.NativeFile,
    stored: pa.Schema | None = None,
    note: dict[str, Any] | None = None,
) -> int:
    """Write a table, cast to a schema, with a note; return the rows of a batch."""
    stored = stored or table.schema
    batch_rows = max(1, _BATCH_BYTES * table.num_rows // max(1, table.nbytes))
    with pa.ipc.new_file(file, stored) as writer:
        for start in range(0, table.num_rows, batch_rows):
            rows = table.slice(start, batch_rows)
            columns = [_filled(rows[field.name], field) for field in stored]
            noted = None
            if note and not start:
                noted = {_NOTE: json.dumps(note | {"batch_rows": batch_rows})}
            writer.write_batch(pa.record_batch(columns, schema=stored), noted)
    return batch_rows


def _columns(stored: pa.Schema) -> list[list[str]]:
    """Return names and types of columns."""
    return [[field.name, str(field.type)] for field in stored]


def _filled(column: pa.ChunkedArray, field: pa.Field) -> pa.Array:
    """Return a column in one piece, with the value for readers below each null."""
    array = pa.concat_arrays(column.cast(field.type).chunks)
    fillers = {
        pa.large_string(): "",
        pa.large_binary(): b"",
        pa.int64(): -1,
        pa.float32(): np.nan,
        pa.float64(): np.nan,
    }
    if not array.null_count or field.type not in fillers:
        return array
    filled, present = array.fill_null(fillers[field.type]), pc.is_valid(array)
    buffers = [present.buffers()[1], *filled.buffers()[1:]]
    return pa.Array.from_buffers(field.type, len(array), buffers, array.null_count, filled.offset)


# ---- Columns for reader processes ----------------------------------------------------------------


def reader_columns(
    table: pa.Table,
    file: ArrowFile | None,
    names: Iterable[str],
    parts: Iterable[str],
    notes: Iterable[str],
    targets: Iterable[str],
    of_frames: Iterable[str] = (),
) -> dict[str, Column | FrameColumn]:
    """Return the columns that reader processes need, see `readers.index.table.Index.columns`.

    If the table is mapped from a file, columns that need no conversion stay in the file.
    """
    known = schema.part_names(table)
    for part in parts:
        if part not in known:
            raise KeyError(
                f"the Index has no part {part!r}, it has {', '.join(known) or 'none'}: make "
                "samples of several files by Index.group, or dali-pipelines index --group"
            )
    found = _Found(table, file)
    columns: dict[str, Values | Column] = {}
    for name, is_text in schema.file_columns(table, parts):
        columns[name] = found.of_type(name, "large_string" if is_text else "int64")
        columns |= found.versions(name) if is_text else {}
    for name in names:
        schema.check_column(table, name)
        if name not in columns or schema.holds_text(table[name]):
            columns[name] = found.for_tensor(name)
    for name in notes:
        if schema.is_binary(table.schema.field(name).type):
            columns[name] = found.of_type(name, "large_binary")
        else:
            columns[name] = found.for_tensor(name)
    frames = dict.fromkeys(of_frames)
    for name in targets:
        if name in frames:
            continue
        if name not in columns:
            schema.check_column(table, name)
            columns[name] = found.for_target(name)
        for span in schema.span_columns(table, name):
            columns[span] = found.of_type(span, "int64")
        if name.endswith(OTHER_PATH):
            columns |= found.versions(name)
    stored = {name: one for name, one in columns.items() if isinstance(one, Column)}
    new = {name: one for name, one in columns.items() if not isinstance(one, Column)}
    each = {name: _frame_column(name, table[name]) for name in frames}
    return {**stored, **(store_columns(new) if new else {}), **each}


def _frame_column(name: str, column: pa.ChunkedArray) -> FrameColumn:
    """Store a column that has a list of text, numbers or lists of numbers for each row."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)
    firsts = np.where(pc.is_null(column).to_numpy(), -1, np.cumsum(lengths) - lengths)
    items = pc.list_flatten(column)
    values: Values = items
    if schema.holds_text(items):
        values = items.cast("large_string")
    else:
        values = lists_of(name, items) if is_lists(items.type) else schema.numbers(name, items)
    spans = store_columns({name: np.stack((firsts, lengths), axis=1)})
    return FrameColumn(spans[name], store_columns({name: values})[name])


@dataclass(frozen=True, slots=True)
class _Found:
    """Columns of a table for readers: in its file if possible, otherwise converted."""

    table: pa.Table
    file: ArrowFile | None

    def of_type(self, name: str, kind: str) -> Values | Column:
        """Return a column of text, bytes or int64. Readers see the value below a null."""
        column = self.table[name]
        if self.file and column.type == kind:
            return self.file.column(name)
        return column.cast(kind)

    def versions(self, path: str) -> dict[str, Values | Column]:
        """Return the columns of ETag and length for a column of paths, if both exist."""
        etag, nbytes = schema.version_columns(path)
        if not schema.holds_versions(self.table, etag, nbytes):
            return {}
        return {etag: self.of_type(etag, "large_string"), nbytes: self.of_type(nbytes, "int64")}

    def for_tensor(self, name: str) -> Values | Column:
        """Return a column of numbers. TypeError as in `schema.numbers`."""
        column = self.table[name]
        is_float = pa.types.is_float32(column.type) or pa.types.is_float64(column.type)
        is_ns = pa.types.is_timestamp(column.type) and column.type.unit == "ns"
        is_whole = is_ns or pa.types.is_integer(column.type)
        if self.file and (is_float or (is_whole and not column.null_count)):
            return self.file.column(name)
        return schema.numbers(name, column)

    def for_target(self, name: str) -> Values | Column:
        """Return a column of text, numbers, or lists of numbers."""
        column = self.table[name]
        if schema.holds_text(column):
            return self.of_type(name, "large_string")
        if not is_lists(column.type):
            return self.for_tensor(name)
        if self.file and pa.types.is_large_list(column.type) and are_plain(column):
            return self.file.column(name)
        return lists_of(name, column)


def store_columns(columns: Mapping[str, Values]) -> dict[str, Column]:
    """Write columns of equal length to a temporary file without a name.

    The kernel deletes it when the last process that has it open ends, even by a kill.

    Parameters
    ----------
    columns : mapping of str to array
        NumPy arrays of numbers, shape (rows,) or (rows, ...); or PyArrow arrays of the types of
        `ArrowFile.column`.

    Raises
    ------
    OSError
        If the disk is full. It names the folder.
    """
    dtypes = {
        name: f"{column.shape[1:]}{column.dtype.str}" if column.ndim > 1 else column.dtype.str
        for name, column in columns.items()
        if isinstance(column, np.ndarray)
    }
    table = pa.table({name: _bits(one) if name in dtypes else one for name, one in columns.items()})
    try:
        file = tempfile.TemporaryFile(prefix="dali-pipelines-")  # noqa: SIM115
        batch_rows = _write_batches(table, file)
        file.flush()
    except OSError as error:
        where = f"the folder of temporary files, TMPDIR={tempfile.gettempdir()}"
        raise OSError(error.errno, error.strerror, where) from error
    shared = SharedFile(file)
    reader, address = _mapped(shared)
    stored = ArrowFile(reader.read_all(), "", batch_rows, shared, address)
    return {name: stored.column(name, dtypes.get(name)) for name in columns}


def _bits(numbers: NDArray[Any]) -> pa.Array:
    """Return the bits of numbers as unsigned integers; several numbers of a row as a list."""
    flat = np.ascontiguousarray(numbers).reshape(-1).view(f"u{numbers.dtype.itemsize}")
    if numbers.ndim == 1:
        return pa.array(flat)
    return pa.FixedSizeListArray.from_arrays(pa.array(flat), math.prod(numbers.shape[1:]))
