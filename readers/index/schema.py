"""Tables of an Index: checks, and columns as NumPy arrays."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from readers.index.arrow import pa, pc
from readers.index.columns import (
    ETAG,
    FILE_BYTES,
    LOCATING,
    NBYTES,
    OFFSET,
    OTHER_PATH,
    PART,
)
from readers.index.list_columns import is_number
from readers.messages import did_you_mean, printable

logger = logging.getLogger(__name__)

_SEARCHED = 10_000
"""Number of rows that `warn_of_shared_files` searches."""
_CHUNK_ROWS = 1 << 16
"""Number of strings to convert from Python objects at a time: some 10 MB of paths."""


def checked(table: pa.Table) -> pa.Table:
    """Check a table and return it in the form of an Index, see `readers.index.table.Index`."""
    if not isinstance(table, pa.Table):
        raise TypeError(
            f"an Index needs a pyarrow.Table, got {type(table)}: pass pyarrow.table(dict) or "
            "pyarrow.Table.from_pandas(frame); for a path use Index.scan"
        )
    check_distinct(table)
    table = without_views(table)
    if "path" not in table.column_names:
        raise ValueError(f"an Index needs a column 'path', got {table.column_names}")
    if table.num_rows == 0:
        raise ValueError("an Index needs at least one row, got none")
    paths = table["path"]
    if not holds_text(paths):
        raise ValueError(f"column 'path' must be text, got {paths.type}")
    empty = paths.null_count + (pc.sum(pc.equal(paths, "")).as_py() or 0)
    if empty:
        raise ValueError(f"column 'path' has {empty} empty rows")
    for name, is_text in file_columns(table, part_names(table)):
        if not is_text:
            _check_whole_numbers(name, table[name])
    _check_spans(table)
    return table


def check_distinct(table: pa.Table) -> None:
    """Raise ValueError if two columns have the same name."""
    if twice := [name for name, count in Counter(table.column_names).items() if count > 1]:
        raise ValueError(
            f"the table has several columns {', '.join(map(repr, twice))}: rename all but one, "
            "with table.rename_columns, or drop them"
        )


def without_views(table: pa.Table) -> pa.Table:
    """Return the table with views as string or binary: PyArrow cannot take rows of views."""
    plain = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
    for number, field in enumerate(table.schema):
        if (kind := plain.get(field.type)) is not None:
            table = table.set_column(number, field.with_type(kind), table[number].cast(kind))
    return table


def part_names(table: pa.Table) -> tuple[str, ...]:
    """Return the names of the parts of a sample; () if a sample is one file."""
    return tuple(
        name.removeprefix(PART)
        for name in table.column_names
        if name.startswith(PART) and holds_text(table[name])
    )


def file_columns(table: pa.Table, parts: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Yield the columns that locate the files of rows and parts, and whether each is text.

    Paths are text; other columns are whole numbers, see `LOCATING`.
    """
    known = set(table.column_names)
    for suffix in _suffixes(parts):
        yield f"path{suffix}", True
        # A column `offset` without `nbytes` has another meaning.
        span = {f"offset{suffix}", f"nbytes{suffix}"}
        absent = set() if span <= known else span
        for number in LOCATING:
            if (name := f"{number}{suffix}") in known - absent:
                yield name, False


def _suffixes(parts: Iterable[str]) -> tuple[str, ...]:
    return ("", *(f"_{part}" for part in parts))


def span_columns(table: pa.Table, path: str) -> tuple[str, ...]:
    """Return the columns of offset and length for a column such as ``mask_path``, or ()."""
    stem = path.removesuffix(OTHER_PATH)
    names = stem + OFFSET, stem + NBYTES
    return names if stem != path and set(names) <= set(table.column_names) else ()


def metadata_of(table: pa.Table, key: bytes) -> Any:
    """Return a JSON value from the metadata of a table, or None."""
    stored = (table.schema.metadata or {}).get(key)
    return None if stored is None else json.loads(stored)


def with_metadata(table: pa.Table, values: Mapping[bytes, Any]) -> pa.Table:
    """Return the table with JSON values in its metadata; None removes a key."""
    stored = {k: None if value is None else json.dumps(value) for k, value in values.items()}
    merged = {**(table.schema.metadata or {}), **stored}
    return table.replace_schema_metadata({k: v for k, v in merged.items() if v is not None} or None)


def version_columns(path: str) -> tuple[str, str]:
    """Return the names of the columns of ETag and length for a column of paths."""
    if path.endswith(OTHER_PATH) and not path.startswith(PART):
        stem = path.removesuffix(OTHER_PATH)
        return f"{stem}_{ETAG}", f"{stem}_{FILE_BYTES}"
    return path.replace("path", ETAG, 1), path.replace("path", FILE_BYTES, 1)


def digest(table: pa.Table) -> str:
    """Return the SHA-256 of all paths, HDUs, planes, spans and corners of windows, in order.

    Paths are relative to their common folder.
    """
    sha256 = hashlib.sha256()
    skip = len(_common_folder(table).encode())
    for name, is_text in file_columns(table, sorted(part_names(table))):
        sha256.update(name.encode())
        if is_text:
            stop = np.zeros(1, np.int64)
            sha256.update(stop.data)
            for offsets, _ in _texts(table[name], skip):
                running = offsets[1:] + stop
                sha256.update(running.data)
                stop = running[-1:]
            for _, blob in _texts(table[name], skip):
                sha256.update(blob.data)
        else:
            for chunk in table[name].chunks:
                sha256.update(whole_numbers(chunk).data)
    for name, kind in _corners(table):
        sha256.update(name.encode())
        for chunk in table[name].chunks:
            sha256.update(_corners_of(chunk, kind).data)
    return sha256.hexdigest()


def _common_folder(table: pa.Table) -> str:
    """Return the folder of all files or URLs, with a slash at its end."""
    ends = set[str]()
    for name, is_text in file_columns(table, part_names(table)):
        for chunk in table[name].chunks if is_text else ():
            present = chunk.filter(pc.not_equal(chunk, ""))  # a missing part
            ends.update(pc.min_max(present).as_py().values())
    # Not commonpath, because of URLs.
    prefix = os.path.commonprefix([end for end in ends if end is not None])  # noqa: RUF071
    return prefix[: prefix.rfind("/") + 1]


def _corners(table: pa.Table) -> list[tuple[str, str]]:
    """Return the two columns of the corners of windows with their type; [] if there are none."""
    kinds = [table[name].type for name in ("y", "x") if name in table.column_names]
    for is_kind, kind in ((pa.types.is_integer, "int64"), (pa.types.is_floating, "float64")):
        if len(kinds) == 2 and all(map(is_kind, kinds)):
            return [("y", kind), ("x", kind)]
    return []


def _corners_of(chunk: pa.Array, kind: str) -> NDArray[Any]:
    numbers = chunk.cast(kind, safe=False)
    if kind == "int64":
        return whole_numbers(numbers)
    return np.ascontiguousarray(numbers.fill_null(np.nan).to_numpy())


def text_column(texts: Iterable[str]) -> pa.ChunkedArray:
    """Return a column of texts. An iterator is converted in chunks."""
    kind, texts = pa.large_string(), iter(texts)
    chunks = iter(lambda: pa.array(list(islice(texts, _CHUNK_ROWS)), kind), pa.array([], kind))
    return pa.chunked_array(chunks, kind)


def _texts(
    column: pa.ChunkedArray, skip: int = 0
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.uint8]]]:
    """Yield the chunks of a column of text, each as n + 1 offsets and the UTF-8 of all texts.

    The first `skip` bytes of each text are left out. Null is an empty text.
    """
    for chunk in column.chunks:
        text = chunk.cast(pa.large_string()).fill_null("")
        if skip:
            # Not binary_slice, which fails on short values.
            text = pc.binary_replace_slice(text.cast(pa.large_binary()), 0, skip, b"")
        _, offsets, blob = text.buffers()
        stops = np.frombuffer(offsets, np.int64)[text.offset : text.offset + len(text) + 1]
        data = np.frombuffer(blob, np.uint8) if blob is not None else np.zeros(0, np.uint8)
        if len(text):  # an empty chunk may have no offsets
            yield stops - stops[0], data[stops[0] : stops[-1]]


def _check_whole_numbers(name: str, column: pa.ChunkedArray) -> None:
    try:
        least = pc.min(column.cast(pa.int64())).as_py()
    except pa.ArrowException:
        least = column.type
    if least is not None and (not isinstance(least, int) or least < 0):
        raise ValueError(
            f"column {name!r} must have integers from 0 on, or null, got {least}: rename it if it "
            "has another meaning"
        )


def _check_spans(table: pa.Table) -> None:
    """Raise ValueError for a row with only one of offset and length, or beyond its file."""
    pairs = [span_columns(table, name) for name in table.column_names]
    ends = [*_suffixes(part_names(table))]
    for names in pairs + [(f"offset{end}", f"nbytes{end}") for end in ends]:
        if names and set(names) <= set(table.column_names):
            offset, nbytes = (pc.fill_null(pc.less(table[name], 0), True) for name in names)
            if wrong := pc.sum(pc.xor(offset, nbytes)).as_py():
                both = " and ".join(map(repr, names))
                raise ValueError(f"{wrong} rows have only one of {both}: set both, or null")
    for end in ends:
        if holds_versions(table, f"etag{end}", f"file_bytes{end}") and (
            {f"offset{end}", f"nbytes{end}"} <= set(table.column_names)
        ):
            stops = pc.add(table[f"offset{end}"], table[f"nbytes{end}"])
            if wrong := pc.sum(pc.greater(stops, table[f"file_bytes{end}"])).as_py():
                raise ValueError(
                    f"{wrong} rows end after the end of their files: a row begins at byte "
                    f"'offset{end}' and has 'nbytes{end}' bytes, and its file has "
                    f"'file_bytes{end}' bytes; rename these columns if they have another meaning"
                )


def whole_numbers(column: pa.ChunkedArray | pa.Array) -> NDArray[np.int64]:
    """Return a column of HDUs, planes, offsets or lengths, -1 for none."""
    numbers = column.cast(pa.int64()).fill_null(-1)
    return np.ascontiguousarray(numbers.to_numpy())


def numbers(name: str, column: pa.ChunkedArray) -> NDArray[Any]:
    """Return a numeric column, shape (rows,), with times as nanoseconds, and null floats as NaN.

    For lists of a fixed length, without null, the shape is (rows, length).

    Raises
    ------
    TypeError
        If the column is not numeric (bool, integer, float or time), or has null in rows that are
        not floats.
    ValueError
        As in `as_nanoseconds`.
    """
    if _is_vector(column):
        items = numbers(name, pc.list_flatten(column))
        return items.reshape(-1, column.type.list_size, *items.shape[1:])
    column = as_nanoseconds(name, column)
    if not is_numeric(column.type):
        raise TypeError(
            f"column {name!r} is {column.type}; only numbers and times can be tensors: a Loader "
            "looks up other columns by row"
        )
    if column.null_count and not pa.types.is_floating(column.type):
        raise TypeError(
            f"column {name!r} is {column.type} and has {column.null_count} empty rows: fill in "
            "values, or convert it to floats (empty rows become NaN)"
        )
    return np.asarray(column.to_numpy())


def with_column(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    """Return the table with a column, which replaces a column of the same name."""
    kept = table.drop_columns([name]) if name in table.column_names else table
    return kept.append_column(name, values)


def fits_tensor(column: pa.ChunkedArray) -> bool:
    """Return whether `numbers` accepts a column."""
    if _is_vector(column):
        return fits_tensor(pc.list_flatten(column))
    is_value = is_numeric(column.type) or is_time(column.type)
    return is_value and (pa.types.is_floating(column.type) or not column.null_count)


def _is_vector(column: pa.ChunkedArray) -> bool:
    """Return whether all rows have lists of one fixed length."""
    kind = column.type
    return pa.types.is_fixed_size_list(kind) and kind.list_size > 0 and not column.null_count


def as_nanoseconds(name: str, column: pa.ChunkedArray | pa.Array) -> Any:
    """Return times as int64 nanoseconds, other columns unchanged. ValueError on overflow."""
    if not is_time(column.type):
        return column
    try:
        return column.cast(pa.timestamp("ns")).cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise ValueError(
            f"column {name!r} must have times from 1677 to 2262, the range of 64-bit nanoseconds "
            f"since 1970: leave out other rows, or convert the column to numbers ({error})"
        ) from error


def is_time(kind: pa.DataType) -> bool:
    """Return whether a column holds times or dates."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def is_numeric(kind: pa.DataType) -> bool:
    """Return whether a column holds integers, floats or bools."""
    return is_number(kind) or bool(pa.types.is_boolean(kind))


def decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values of a dictionary column; other columns unchanged."""
    kind = column.type
    return column.cast(kind.value_type) if pa.types.is_dictionary(kind) else column


_OF_CLASSES = (
    "Index.from_class_folders and dali-pipelines index --class_folders make label and class_name "
    "from class folders; Index.with_column adds your own labels"
)


def check_column(table: pa.Table, name: str) -> None:
    """Raise KeyError if there is no such column."""
    if name not in table.column_names:
        known = table.column_names
        hint = f"; {_OF_CLASSES}" if name in ("label", "labels", "class_name") else ""
        several = str(name).replace(",", " ").split()
        are_known = len(several) > 1 and set(several) <= set(known)
        meant = f"did you mean {' and '.join(several)}, as separate names? " * are_known
        raise KeyError(
            f"the Index has no column {name!r}: {meant or did_you_mean(str(name), known)}it has "
            f"{', '.join(known)}{hint}"
        )


def warn_of_shared_files(table: pa.Table, column: str, taken: str, setting: str) -> None:
    """Log a warning if several HDUs of a file share one image of another file, such as a mask.

    The first rows of the table are searched. `column` is the column of the other file. For the
    message, `taken` names the image in that file, and `setting` the setting of its HDU.
    """
    if "hdu" not in table.column_names:
        return
    rows = table.select(["path", "hdu", column]).slice(0, _SEARCHED)
    hdus: dict[tuple[Any, Any], Any] = {}
    for path, hdu, other in zip(*(each.to_pylist() for each in rows.columns), strict=True):
        first = hdus.setdefault((path, other), hdu)
        if other is not None and first != hdu:
            logger.warning(
                "HDUs %s and %s of %s share one image, %s of %s: if each has its own image, set %s "
                "to the EXTNAME of these images: then each row takes the image with its EXTVER",
                *(first, hdu, printable(path), taken, printable(other), setting),
            )
            return


def is_binary(kind: pa.DataType) -> bool:
    """Return whether a column holds bytes."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def holds_text(column: pa.ChunkedArray | pa.Array) -> bool:
    """Return whether a column holds text."""
    return is_text(column.type)


def is_text(kind: pa.DataType) -> bool:
    """Return whether this is a type of text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def holds_versions(table: pa.Table, etag: str, file_bytes: str) -> bool:
    """Return whether these columns exist, and hold versions and lengths of files."""
    if not {etag, file_bytes} <= set(table.column_names):
        return False
    return holds_text(table[etag]) and pa.types.is_integer(table[file_bytes].type)
