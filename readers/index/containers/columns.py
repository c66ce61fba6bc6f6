"""Columns of the tables of containers: spans of files, and values of any kind."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from readers.index.arrow import pa, pc
from readers.index.schema import holds_text
from readers.places.contract import Place

RESERVED = ("path", "offset", "nbytes", "key", "file_bytes", "etag", "hdu", "plane")
"""Columns that locate the data of a row. Columns of text ``path_...`` locate its other files."""


class Span(NamedTuple):
    """A range of bytes in a container."""

    offset: int
    nbytes: int

    def moved(self, start: int) -> Span:
        """Convert a span of a part to a span of the whole. The part begins at `start`."""
        return Span(self.offset + start, self.nbytes)


def container_table(
    place: Place,
    spans: Sequence[Span],
    keys: Sequence[str] | Sequence[int],
    others: Mapping[str, pa.Array],
) -> pa.Table:
    """Return the table of a container: a row for each span, with its key and other columns."""
    for name, values in others.items():
        if name in RESERVED or (name.startswith("path_") and holds_text(values)):
            raise ValueError(
                f"{place.name}: a column {name!r} of an Index locates the data of a row: rename "
                "a feature by columns= of from_tfrecord; give a member of a tar another extension"
            )
    count = len(spans)
    columns = {
        "path": _path_column(place.name, count),
        "offset": pa.array([span.offset for span in spans], pa.int64()),
        "nbytes": pa.array([span.nbytes for span in spans], pa.int64()),
        "key": value_column(keys),
        "file_bytes": pa.repeat(pa.scalar(place.nbytes, pa.int64()), count),
        "etag": pa.repeat(pa.scalar(place.etag, pa.large_string()), count),
    }
    return pa.table(columns | dict(others))


def span_columns(name: str, path: str, spans: Sequence[Span | None]) -> dict[str, pa.Array]:
    """Return columns ``{name}_path``, ``{name}_offset`` and ``{name}_nbytes``; null for no span."""
    offsets = pa.array([span and span.offset for span in spans], pa.int64())
    paths = _path_column(path, len(spans))
    return {
        f"{name}_path": pc.if_else(offsets.is_valid(), paths, pa.scalar(None, paths.type)),
        f"{name}_offset": offsets,
        f"{name}_nbytes": pa.array([span and span.nbytes for span in spans], pa.int64()),
    }


def _path_column(path: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(path, pa.large_string()), count)


def value_column(values: Sequence[Any]) -> pa.Array:
    """Return bools, numbers or text as a column; values of several types as JSON text.

    Integers also become JSON text if they do not fit into int64, or would change as floats in a
    column with floats.
    """
    kinds = {type(value) for value in values if value is not None}
    try:
        if not kinds or kinds == {bool}:
            return pa.array(values)
        if kinds == {int}:
            return pa.array(values, pa.int64())
        if kinds <= {int, float} and all(float(v) == v for v in values if type(v) is int):
            return pa.array(values, pa.float64())
    except (pa.ArrowInvalid, OverflowError):  # beyond int64, or float64
        pass
    texts = [v if v is None or isinstance(v, str) else json.dumps(v) for v in values]
    return pa.array(texts, pa.large_string())


def integers_or_text(texts: Sequence[str | None]) -> pa.Array:
    """Return texts as int64 if all are integers in shortest form, not as ``007``; else as text."""
    column = pa.array(texts, pa.large_string())
    try:
        numbers = column.cast(pa.int64())
    except pa.ArrowInvalid:
        return column
    return numbers if numbers.cast(pa.large_string()).equals(column) else column


def joined(tables: Iterable[pa.Table]) -> pa.Table:
    """Return the rows of several containers, with null where a container lacks a column.

    If a column has different types: integers and floats become floats, or text if an integer would
    change as a float; single values and lists become lists; others become text.
    """
    parts = list(tables)
    names = dict.fromkeys(itertools.chain.from_iterable(part.column_names for part in parts))
    return pa.table({name: _joined(name, parts) for name in names})


def _joined(name: str, parts: Sequence[pa.Table]) -> pa.ChunkedArray:
    found = [part[name] if name in part.column_names else None for part in parts]
    kinds = {each.type for each in found if each is not None} - {pa.null()}
    if any(map(pa.types.is_large_list, kinds)):
        found = [each if each is None else _as_lists(each) for each in found]
        kinds = {each.type for each in found if each is not None}
        common = pa.large_list(_common({kind.value_type for kind in kinds} - {pa.null()}))
    else:
        common = _common(kinds)
    try:
        columns = [each if each is None else each.cast(common) for each in found]
    except pa.ArrowInvalid:  # integers that would change as floats
        is_list = pa.types.is_large_list(common)
        common = pa.large_list(pa.large_string()) if is_list else pa.large_string()
        columns = [each if each is None else each.cast(common) for each in found]
    filled = [
        pa.chunked_array([pa.nulls(len(part), common)]) if each is None else each
        for part, each in zip(parts, columns, strict=True)
    ]
    return pa.chunked_array([chunk for each in filled for chunk in each.chunks], common)


def _common(kinds: set[pa.DataType]) -> pa.DataType:
    if len(kinds) < 2:
        return kinds.copy().pop() if kinds else pa.float64()
    numbers = {pa.int64(), pa.float32(), pa.float64()}
    return pa.float64() if kinds <= numbers else pa.large_string()


def _as_lists(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return each value as a list of one value, and null as an empty list."""
    if pa.types.is_large_list(column.type):
        return column
    values = column.combine_chunks()
    ends = np.cumsum(values.is_valid().to_numpy(zero_copy_only=False))
    offsets = pa.array(np.concatenate([[0], ends]), pa.int64())
    return pa.chunked_array([pa.LargeListArray.from_arrays(offsets, values.drop_null())])
