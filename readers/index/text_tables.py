"""CSV files. Columns stay text if a conversion to numbers would lose information."""

from __future__ import annotations

import csv
import gzip
import io
import math
import os
import re
import sys
import zlib

from readers.index.arrow import pa, pc
from readers.index.list_columns import is_number

_BOM = b"\xef\xbb\xbf"
_NOT_DECIMAL = r"^[+-]?0([0-9]+|[xX].*)$"
"""Integers with leading zeros, and hexadecimal integers. PyArrow would convert them."""
_LONG_INTEGER = r"^[+-]?[0-9]{16,}$"
"""Integers that may change as floats."""
_LONG_EXPONENT = r"[eE][+]?[0-9]{3,}$"
"""Numbers that may be too large for floats, or names such as 12E4567."""
_PATH = re.compile(r"path|path_.*|.*_path")
"""Columns of the Index that are always paths."""
_NUMBERS = frozenset(("hdu", "plane", "offset", "nbytes", "y", "x"))
"""Columns of the Index that are always numbers, even with leading zeros."""
_BLOCK_NBYTES = 64 << 20
"""Bytes that PyArrow parses at a time, and limit for a row. PyArrow's default is 1 MiB."""


def read_csv(path: str | os.PathLike[str]) -> pa.Table:
    """Read a CSV file in UTF-8, plain or gzipped, with names of columns in the first row.

    Lines before it that begin with ``#`` are comments. PyArrow infers the types of the columns:
    integers, floats, bools, dates, times or text. They stay text if numbers would lose information,
    see `loses`. Columns of paths (``path``, ``mask_path``, ...) are text. ``y``, ``x``, ``hdu``,
    ``plane``, ``offset`` and ``nbytes`` are numbers.

    Raises
    ------
    OSError
        If it cannot be opened.
    ValueError
        If it is empty or not UTF-8, a row has more or fewer values than the first row, a quote is
        not closed, or two columns have the same name. The message has the file and the line.
    """
    import pyarrow.csv as pacsv

    name = os.fspath(path)
    content, comments = _content(name)

    def read(as_text: list[str] | None = None) -> pa.Table:
        """Read all columns, or the named ones, as text."""
        options = pacsv.ConvertOptions(
            include_columns=as_text, column_types=dict.fromkeys(as_text or (), pa.large_string())
        )
        return pacsv.read_csv(
            pa.BufferReader(content),
            read_options=pacsv.ReadOptions(block_size=_BLOCK_NBYTES),
            parse_options=pacsv.ParseOptions(newlines_in_values=True),
            convert_options=options,
        )

    if b'"' in content:  # PyArrow accepts unmatched quotes, and joins the rows between them
        _check_rows(name, content, comments)
    try:
        table = read()
    except pa.ArrowInvalid as error:
        _check_rows(name, content, comments)
        raise ValueError(f"{name}: expected a CSV file, but it cannot be read: {error}") from error
    stored = table.column_names
    names = [column.strip() for column in stored]
    if twice := sorted({column for column in names if names.count(column) > 1}):
        raise ValueError(
            f"{name} has several columns {', '.join(map(repr, twice))}: rename all but one"
        )
    is_path = dict(zip(stored, map(_PATH.fullmatch, names), strict=True))
    as_text = [
        column
        for column, known in zip(stored, names, strict=True)
        if is_path[column] or (known not in _NUMBERS and _may_lose(table[column].type))
    ]
    texts = read(as_text) if as_text else table
    for column in as_text:
        if not is_path[column] and not loses(texts[column], table[column].type):
            continue
        empty, nothing = pc.equal(texts[column], ""), pa.scalar(None, pa.large_string())
        values = pc.if_else(empty, nothing, texts[column])
        table = table.set_column(stored.index(column), column, values)
    return table.rename_columns(names)


def loses(texts: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> bool:
    """Return whether converting texts to this type of numbers would lose information.

    Integers lose leading zeros or a hexadecimal form, long integers among floats lose their last
    digits, numbers such as 1e400 become infinite, and a column with only NA becomes empty. Other
    decimal numbers lose nothing.
    """
    texts = pc.utf8_trim_whitespace(texts)
    if pa.types.is_null(kind):
        return bool(pc.any(pc.not_equal(texts, "")).as_py())
    if pc.any(pc.match_substring_regex(texts, _NOT_DECIMAL)).as_py():
        return True
    if pa.types.is_integer(kind):
        return False
    long = texts.filter(pc.match_substring_regex(texts, _LONG_INTEGER))
    if any(float(text) != int(text) for text in long.to_pylist()):
        return True
    large = texts.filter(pc.match_substring_regex(texts, _LONG_EXPONENT))
    return any(math.isinf(float(text)) for text in large.to_pylist())


def _may_lose(kind: pa.DataType) -> bool:
    return is_number(kind) or bool(pa.types.is_null(kind))


def _content(name: str) -> tuple[bytes, int]:
    """Return a file without the comments at its start, and their number of lines."""
    try:
        with gzip.open(name) if name.lower().endswith(".gz") else open(name, "rb") as file:
            content = file.read().removeprefix(_BOM)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{name}: it is damaged or cut off: {error}") from error
    comments = 0
    while content.startswith(b"#"):
        comments, content = comments + 1, content.partition(b"\n")[2]
    if not content.strip():
        raise ValueError(f"{name}: expected a CSV file with names of columns, but it is empty")
    try:
        content.decode()
    except UnicodeDecodeError as error:
        line = comments + content.count(b"\n", 0, error.start) + 1
        code = "utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "latin1"
        raise ValueError(
            f"{name}, line {line}: it is not UTF-8 ({error.reason}): convert it, e.g. with iconv "
            f"-f {code} -t utf-8"
        ) from None
    return content, comments


def _check_rows(name: str, content: bytes, comments: int) -> None:
    """Raise ValueError for a row with more or fewer values than the header."""
    rows = csv.reader(io.StringIO(content.decode(), newline=""), strict=True)
    first, start = None, comments + 1
    limit = csv.field_size_limit(sys.maxsize)  # for long masks; it is a setting of the process
    try:
        for row in rows:
            first = first or row
            if row and len(row) != len(first):
                raise ValueError(
                    f"{name}, line {start}: expected {len(first)} values, one for each column, got "
                    f"{len(row)}: correct the row; put values with commas in quotes"
                )
            start = comments + rows.line_num + 1
    except csv.Error as error:
        raise ValueError(
            f"{name}, line {start}: the quotes of a value do not match ({error}): end the "
            "value with a quote, and double each quote inside it"
        ) from error
    finally:
        csv.field_size_limit(limit)
