"""Paths and URLs of rows: checks, folders, and ranges of numbers."""

from __future__ import annotations

import os
import re

import numpy as np

from readers.index.arrow import pa, pc
from readers.index.columns import OTHER_PATH, PART
from readers.index.list_columns import is_lists
from readers.index.schema import holds_text, is_text, version_columns
from readers.messages import printable
from readers.places.urls import LONGEST, ORDINARY, URL, check_url, is_url


def holds_paths(name: str, column: pa.ChunkedArray) -> bool:
    """Return whether a column has paths: of samples, or of other files, such as ``mask_path``."""
    named = name == "path" or name.startswith(PART) or name.endswith(OTHER_PATH)
    return named and holds_text(column)


def _paths_in(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Return the paths in a column, also in a column of lists (for frames of a video), or None."""
    if holds_paths(name, column):
        return column
    kind = column.type
    if not (name.endswith(OTHER_PATH) and is_lists(kind) and is_text(kind.value_type)):
        return None
    return pa.chunked_array([chunk.flatten() for chunk in column.chunks], kind.value_type)


def _with_paths(column: pa.ChunkedArray, paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column with other paths, in the order of `_paths_in`."""
    if not is_lists(column.type):
        return paths
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    offsets = pa.array(np.append(0, np.cumsum(lengths, dtype=np.int64)))
    values = pa.concat_arrays([pa.array([], paths.type), *paths.chunks])
    no_lists = pc.is_null(column).combine_chunks()
    return pa.chunked_array([pa.LargeListArray.from_arrays(offsets, values, mask=no_lists)])


def absolute(table: pa.Table, folder: str) -> pa.Table:
    """Return the table with relative paths resolved against a folder."""
    for position, name in enumerate(table.column_names):
        paths = _paths_in(name, table[name])
        if paths is None:
            continue
        whole = pc.or_(pc.starts_with(paths, "/"), pc.equal(paths, ""))
        if pc.all(whole).as_py() is False:
            is_url = pc.match_substring_regex(paths, URL.pattern)
            if not name.endswith(OTHER_PATH):  # such a column may have another meaning
                check_urls(paths.filter(is_url))
            whole = pc.or_(whole, is_url)
            paths = paths.cast(pa.large_string())
            prefix = pa.scalar(os.path.join(folder, ""), pa.large_string())
            separator = pa.scalar("", pa.large_string())
            joined = pc.binary_join_element_wise(prefix, paths, separator)
            resolved = pc.if_else(whole, paths, joined)
            table = table.set_column(position, name, _with_paths(table[name], resolved))
    return table


def moved(table: pa.Table, old: str, new: str) -> pa.Table:
    """Return the table with paths moved from one folder to another, see `Index.moved`."""
    old, new = _folder(old), _folder(new)
    found = False
    for position, name in enumerate(table.column_names):
        paths = _paths_in(name, table[name])
        if paths is None:
            continue
        paths = paths.cast(pa.large_string())
        below = pc.starts_with(paths, old)
        if not pc.any(below).as_py():
            continue
        found = True
        rest = pc.utf8_slice_codeunits(paths, len(old))
        begin, nothing = (pa.scalar(text, pa.large_string()) for text in (new, ""))
        there = pc.binary_join_element_wise(begin, rest, nothing)
        changed = _with_paths(table[name], pc.if_else(below, there, paths))
        table = table.set_column(position, name, changed)
        for version in version_columns(name) if is_url(new) else ():
            if version in table.column_names:
                unknown = pa.scalar(None, table[version].type)
                values = pc.if_else(below, unknown, table[version])
                table = table.set_column(table.column_names.index(version), version, values)
    if not found:
        raise ValueError(
            f"no path of the Index begins with {printable(old)}, the first path is "
            f"{printable(table['path'][0])}: pass a folder of these paths"
        )
    return table


def _folder(path: str) -> str:
    """Return the absolute path or URL of a folder, with a slash at its end."""
    if not path:  # e.g. from an unset variable: not the current folder
        raise ValueError("expected a folder or URL, got '': pass '.' for the current folder")
    check_path(path)
    return f"{path.rstrip('/')}/" if is_url(path) else os.path.join(os.path.abspath(path), "")


def holds_urls(table: pa.Table) -> bool:
    """Return whether a row has a URL as a path, also for a part or a mask."""
    columns = (_paths_in(name, table[name]) for name in table.column_names)
    return any(
        pc.any(pc.match_substring(column, "://")).as_py()
        for column in columns
        if column is not None
    )


def begins_with_urls(table: pa.Table) -> bool:
    """Return whether the first row has a URL as a path, also for a part or a mask."""
    return holds_urls(table.slice(0, 1))


def whole(path: str) -> str:
    """Return an absolute path, or a URL unchanged. ValueError as in `check_path`."""
    check_path(path)
    return path if is_url(path) else os.path.abspath(path)


def check_path(path: str) -> None:
    """Raise ValueError for a name that is not UTF-8, or an unsupported URL."""
    if is_url(path):
        check_url(path)
    if not path.isascii():
        try:
            path.encode()
        except UnicodeEncodeError:
            name = os.fsencode(path)
            raise ValueError(f"{name!r}: the name is not UTF-8, rename the file") from None


def check_urls(urls: pa.ChunkedArray) -> None:
    """Raise ValueError for the first URL that is unsupported or has a password."""
    ordinary = pc.match_substring_regex(urls, ORDINARY)
    odd = pc.or_(pc.invert(ordinary), pc.greater(pc.binary_length(urls), LONGEST))
    for url in urls.filter(odd):
        check_url(url.as_py())


def check_local(path: str) -> None:
    """Raise ValueError for a URL, or a name that is not UTF-8."""
    if is_url(path):
        raise ValueError(f"{printable(path)} is a URL, expected a local path: copy the files")
    check_path(path)


_BRACES = re.compile(r"\{(\d+)\.\.(\d+)\}")


def expanded(text: str) -> list[str]:
    """Replace ranges of numbers such as ``{00..12}`` by each number; return all texts.

    Numbers have as many digits as the first number of their range.
    """
    found = _BRACES.search(text)
    if found is None:
        return [text]
    first, last = found.groups()
    begin, rest = text[: found.start()], expanded(text[found.end() :])
    numbers = (f"{number:0{len(first)}}" for number in range(int(first), int(last) + 1))
    return [f"{begin}{number}{end}" for number in numbers for end in rest]
