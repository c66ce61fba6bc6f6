"""Tables as text and HTML, for the display of an Index."""

from __future__ import annotations

import html
from typing import Any

from readers.chunks.array import NOTE, unpacked
from readers.index.arrow import pa
from readers.messages import printable

_ROWS = 5
"""Number of rows to show at the beginning and at the end."""
_WIDTH = 32
"""Maximum number of characters of a cell."""
_COLUMNS = 10
"""Maximum number of names of columns that do not fit."""
_LINE = 120
"""Number of characters of a line. Columns that do not fit are only named."""
_GAP = "..."


def as_text(table: pa.Table) -> str:
    """Return the number of rows, and the first and last rows as aligned text."""
    names, rows = [*map(_cell, table.column_names)], _rows(table)
    cells = [names, *([*map(_cell, row)] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    shown, used = 1, widths[0]
    while shown < len(widths) and used + 2 + widths[shown] <= _LINE:
        used += 2 + widths[shown]
        shown += 1
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(line[:shown], widths, strict=False))
        for line in cells
    ]
    rest = names[shown:]
    named = ", ".join(rest[:_COLUMNS])
    if len(rest) > _COLUMNS:
        named += f" and {len(rest) - _COLUMNS} more"
    more = f", and columns {named}" if rest else ""
    return "\n".join([f"Index: {table.num_rows} rows{more}", *map(str.rstrip, lines)])


def as_html(table: pa.Table) -> str:
    """Return the first and last rows as a table for notebooks."""
    head = "".join(f"<th>{html.escape(_cell(name))}</th>" for name in table.column_names)
    body = "".join(
        f"<tr>{''.join(f'<td>{html.escape(_cell(one))}</td>' for one in row)}</tr>"
        for row in _rows(table)
    )
    return f"<p>Index: {table.num_rows} rows</p><table><tr>{head}</tr>{body}</table>"


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return the rows as Python values, or as NumPy values if needed, e.g. for nanoseconds."""
    return [*zip(*map(_values, table.columns), strict=True)]


def _values(column: pa.ChunkedArray) -> list[Any]:
    try:
        found: list[Any] = column.to_pylist()
    except (ValueError, OverflowError, pa.ArrowInvalid):
        found = list(column.to_numpy(zero_copy_only=False))
    return found


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return the values of the first and last rows, with a row of dots between them."""
    if table.num_rows <= 2 * _ROWS:
        return _readable(table)
    dots = (_GAP,) * table.num_columns
    return [*_readable(table[:_ROWS]), dots, *_readable(table[-_ROWS:])]


def _readable(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return the rows, with the names of arrays in place of their descriptions."""
    rows = rows_of(table)
    notes = [name == NOTE or name.startswith(f"{NOTE}_") for name in table.column_names]
    if not any(notes):
        return rows
    return [
        tuple(
            _names(value) if is_note else value for value, is_note in zip(row, notes, strict=True)
        )
        for row in rows
    ]


def _names(note: Any) -> Any:
    """Return the names of the arrays in a note; other values unchanged."""
    try:
        return ", ".join(unpacked(note)) if isinstance(note, bytes) else note
    except ValueError:
        return note


def _cell(value: Any) -> str:
    """Return a value as short text. A long text, such as a path, loses its beginning."""
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    text = f"{value:.6g}" if isinstance(value, float) else printable(value)
    return text if len(text) <= _WIDTH else _GAP + text[len(_GAP) - _WIDTH :]
