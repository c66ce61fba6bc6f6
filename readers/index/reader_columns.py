"""Columns of an Index for the reader processes: from its file, or from its table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from readers.index import schema
from readers.index.arrow_file import ArrowFile
from readers.index.columns import OTHER_PATH
from readers.index.lists.arrays import is_lists, lists_of
from readers.index.stored import Column, Stored, StoredNumbers

if TYPE_CHECKING:
    import pyarrow as pa


def reader_columns(
    table: pa.Table,
    file: ArrowFile | None,
    names: Iterable[str],
    parts: Iterable[str],
    notes: Iterable[str],
    targets: Iterable[str],
) -> dict[str, Column | Stored]:
    """Return the columns that reader processes need, see `readers.index.table.Index.columns`.

    If the table is mapped from a file, its columns are not copied.
    """
    columns = _located_columns(table, file, parts)
    for name in names:
        schema.check_column(table, name)
        if isinstance(columns.get(name), np.ndarray | StoredNumbers):
            continue
        stored = None if file is None else file.numbers(name)
        columns[name] = stored or schema.numbers(name, table[name])
    for name in notes:
        kind = table.schema.field(name).type
        if not schema.is_binary(kind):
            raise TypeError(f"column {name!r} must hold bytes for the Reader, got {kind}")
        columns[name] = schema.strings(table[name]) if file is None else file.strings(name)
    for name in targets:
        if name not in columns:
            schema.check_column(table, name)
            columns[name] = _any_column(table, file, name)
        for span in schema.span_columns(table, name):
            columns[span] = _whole_numbers(table, file, span)
        if name.endswith(OTHER_PATH):
            columns |= _versions(table, file, name)
    return columns


def _any_column(table: pa.Table, file: ArrowFile | None, name: str) -> Column | Stored:
    import pyarrow as pa

    column = table[name]
    if schema.holds_text(column):
        is_mapped = file is not None and pa.types.is_large_string(column.type)
        return file.strings(name) if file and is_mapped else schema.strings(column)
    if is_lists(column.type):
        return (file and file.lists(name)) or lists_of(name, column)
    return (file and file.numbers(name)) or schema.numbers(name, column)


def _located_columns(
    table: pa.Table, file: ArrowFile | None, parts: Iterable[str]
) -> dict[str, Column | Stored]:
    known = schema.part_names(table)
    for part in parts:
        if part not in known:
            raise KeyError(
                f"the Index has no part {part!r}, it has {', '.join(known) or 'none'}: make "
                "samples of several files by Index.group, or dali-pipelines index --group"
            )
    columns: dict[str, Column | Stored] = {}
    for name, is_text in schema.file_columns(table, parts):
        if not is_text:
            columns[name] = _whole_numbers(table, file, name)
        else:
            columns[name] = schema.strings(table[name]) if file is None else file.strings(name)
        if is_text:
            columns |= _versions(table, file, name)
    return columns


def _versions(table: pa.Table, file: ArrowFile | None, path: str) -> dict[str, Column | Stored]:
    """Return the columns of ETag and length for one of paths, if there are both."""
    etag, nbytes = schema.version_columns(path)
    if not schema.holds_versions(table, etag, nbytes):
        return {}
    return {etag: _any_column(table, file, etag), nbytes: _whole_numbers(table, file, nbytes)}


def _whole_numbers(table: pa.Table, file: ArrowFile | None, name: str) -> Column | Stored:
    import pyarrow as pa

    is_mapped = file is not None and table[name].type == pa.int64()
    return file.whole_numbers(name) if file and is_mapped else schema.whole_numbers(table[name])
