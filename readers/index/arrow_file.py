"""Index files that open at once, whatever their number of rows: Arrow IPC, memory-mapped.

An Index is checked once, when it is saved, and a note of this is stored with the first batch of
rows. Only this module reads the note: a table that another program reads and writes again loses it
and is checked like any other.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from readers.index import schema
from readers.index.lists.arrays import is_number
from readers.index.paths.absolute import holds_paths
from readers.index.shared_file import SharedFile
from readers.index.stored import StoredLists, StoredNumbers, StoredStrings

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIX = ".arrow"

_BATCH_BYTES = 512 << 20
"""Size of a batch of rows. Writing a table copies one batch at a time; opening it reads a little of
each batch, which takes some ms from a disk."""
_NOTE = b"dali-pipelines Index"
_VERSION = 3
"""Version 2 has another digest, of whole paths. Version 1 had no planes: a column of that name may
hold anything."""


@dataclass(frozen=True, slots=True)
class ArrowFile:
    """An open Index file that `write` made."""

    table: pa.Table
    """Memory-mapped: only what is used is read."""
    digest: str | None
    """See `readers.index.schema.digest`; None if an older version made the file."""
    batch_rows: int
    file: SharedFile
    address: int
    """Address of the first byte of the file in this process."""

    @classmethod
    def open(cls, path: str) -> ArrowFile | None:
        """Open a file, in a time that does not depend on its size.

        Returns
        -------
        ArrowFile or None
            None for an Arrow file that `write` did not make.

        Raises
        ------
        ValueError, KeyError, NotImplementedError, OSError
            If it is not an Arrow file, damaged or truncated; the OSError has no errno.
        """
        import pyarrow as pa

        shared = SharedFile(open(path, "rb", buffering=0), os.path.abspath(path))  # noqa: SIM115
        content = pa.memory_map(f"/proc/self/fd/{shared.fileno}").read_buffer()
        reader = pa.ipc.open_file(content)
        if not reader.num_record_batches:
            return None
        _, metadata = reader.get_batch_with_custom_metadata(0)
        note = json.loads((metadata or {}).get(_NOTE, "{}"))
        table = reader.read_all()
        version = note.get("version")
        planes = any(name.startswith("plane") for name in table.column_names)
        if version not in (_VERSION, 2) and (version != 1 or planes):
            return None
        table.validate()
        expected, found = (note["num_rows"], note["columns"]), (table.num_rows, _columns(table))
        if found != expected:
            raise ValueError(f"expected rows and columns {expected}, found {found}")
        digest = note["digest"] if version == _VERSION else None
        return cls(table, digest, note["batch_rows"], shared, content.address)

    def strings(self, name: str) -> StoredStrings:
        """Return the position of a column of paths, or of bytes."""
        chunks = [column.buffers() for column in self.table[name].chunks]
        blobs = tuple((self._start(blob), blob.size if blob else 0) for _, _, blob in chunks)
        offsets = tuple(self._start(offsets) for _, offsets, _ in chunks)
        return StoredStrings(self.file, self.table.num_rows, self.batch_rows, offsets, blobs)

    def whole_numbers(self, name: str) -> StoredNumbers:
        """Return the position of a column of HDUs, planes, offsets or lengths, -1 for none."""
        return self._numbers(name, np.dtype(np.int64))

    def numbers(self, name: str) -> StoredNumbers | None:
        """Return the position of a numeric column; None if `schema.numbers` must convert it."""
        import pyarrow as pa

        column = self.table[name]
        if column.type in (pa.float32(), pa.float64()):
            return self._numbers(name, np.dtype(column.type.to_pandas_dtype()))
        if column.null_count:
            return None
        if pa.types.is_integer(column.type):
            return self._numbers(name, np.dtype(column.type.to_pandas_dtype()))
        if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
            return self._numbers(name, np.dtype(np.int64))
        return None

    def lists(self, name: str) -> StoredLists | None:
        """Return the position of a column of lists; None if `lists_of` must convert it."""
        import pyarrow as pa

        column = self.table[name]
        kind = column.type.value_type
        width = kind.list_size if pa.types.is_fixed_size_list(kind) else None
        number = kind.value_type if width else kind
        if not pa.types.is_large_list(column.type) or not is_number(number) or column.null_count:
            return None
        chunks, offsets, values = column.chunks, [], []
        for chunk in chunks:
            buffers, flat = chunk.buffers(), chunk.values
            if flat.null_count or (width and flat.flatten().null_count):
                return None
            offsets.append(self._start(buffers[1]))
            values.append((self._start(buffers[-1]), len(flat)))
        places = tuple(offsets), tuple(values)
        dtype = np.dtype(number.to_pandas_dtype()).str
        return StoredLists(self.file, dtype, width, self.table.num_rows, self.batch_rows, *places)

    def _numbers(self, name: str, dtype: np.dtype[Any]) -> StoredNumbers:
        starts = tuple(self._start(column.buffers()[1]) for column in self.table[name].chunks)
        return StoredNumbers(self.file, dtype.str, self.table.num_rows, self.batch_rows, starts)

    def _start(self, buffer: pa.Buffer | None) -> int:
        # An empty buffer may have any address.
        return buffer.address - self.address if buffer else 0


def read(path: str) -> pa.Table:
    """Read an Arrow file that `write` did not make into memory, and validate it fully.

    Raises
    ------
    ValueError, KeyError, NotImplementedError, OSError
        As `ArrowFile.open`.
    """
    import pyarrow as pa

    with pa.OSFile(path) as file:
        table = pa.ipc.open_file(file).read_all()
    table.validate(full=True)
    return table


def write(table: pa.Table, path: str, digest: str) -> None:
    """Write the table of an Index, whose paths are absolute.

    Paths become large_string, bytes large_binary, lists large_list, HDUs and planes int64. The
    values under nulls are set to what reader processes use instead: the empty path, no bytes, -1,
    NaN.
    """
    import pyarrow as pa

    batch_rows = max(1, _BATCH_BYTES * table.num_rows // table.nbytes)
    table = table.unify_dictionaries()  # a file has only one dictionary for each column
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
        "columns": _columns(stored.empty_table()),
        "batch_rows": batch_rows,
        "digest": digest,
    }
    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, stored) as writer:
        for start in range(0, table.num_rows, batch_rows):
            rows = table.slice(start, batch_rows)
            columns = [_stored(rows[field.name], field) for field in stored]
            batch = pa.record_batch(columns, schema=stored)
            writer.write_batch(batch, None if start else {_NOTE: json.dumps(note)})


def _columns(table: pa.Table) -> list[list[str]]:
    return [[field.name, str(field.type)] for field in table.schema]


def _stored(column: pa.ChunkedArray, field: pa.Field) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

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
