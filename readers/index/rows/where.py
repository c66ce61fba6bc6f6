"""Conditions on the columns of a table: SQL expressions, which DuckDB evaluates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from readers.index.fact_table import column_name
from readers.index.rows.repeatable import check_repeatable

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

_ROW = "row of the index"
"""Column of row numbers, beside those that a condition sees."""

# Nothing outside the table can be reached: no file, no network, no Python variable.
_DUCKDB_CONFIG = {
    "enable_external_access": "false",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "python_enable_replacements": "false",
}
# Nor the time zone of the machine, by which dates are compared with times of a time zone.
_SETTINGS = "SET TimeZone = 'UTC'; SET lock_configuration = true"


def matching(table: pa.Table, where: str) -> NDArray[np.int64]:
    """Return the rows for which the condition is true, in order, shape (k,).

    NaN in a column of floats is a missing value, as null is. Dates and times without a time zone
    are in UTC.

    `SQLExpression` takes a single expression and nothing that could follow or replace one.

    Parameters
    ----------
    table : pyarrow.Table
        Any table.
    where : str
        The condition. Columns of header keywords may also be named as FITS spells them, in double
        quotes.

    Raises
    ------
    ModuleNotFoundError
        If DuckDB is not installed.
    TypeError
        If the condition is no text.
    ValueError
        If the condition is no such expression, is neither true nor false, or uses what may give
        other rows each time; or if names of columns differ only in case. It begins with "where".
    """
    import duckdb

    if not isinstance(where, str):
        raise TypeError(
            "where takes an SQL expression as text, such as 'exptime > 1.9', got "
            f"{type(where).__name__}: row numbers and masks are for select"
        )
    names = table.column_names
    _check_case(where, names)
    table = _with_keywords(table, where)
    row_name = _ROW
    while row_name in map(str.lower, table.column_names):
        row_name += "_"
    table = table.append_column(row_name, [np.arange(table.num_rows)])
    connection = duckdb.connect(":memory:", config=_DUCKDB_CONFIG)
    connection.execute(_SETTINGS)
    try:
        # A view, so that the condition may ask it for more: (SELECT avg(exptime) FROM archive).
        stored = connection.register("stored", table).table("stored")
        archive = _without_nan(stored).create_view("archive")
        condition = duckdb.SQLExpression(where)
        kinds = [str(kind) for kind in archive.project(condition).types]
        if kinds not in (["BOOLEAN"], ['"NULL"']):
            raise ValueError(f"where must be true or false, {where!r} is {', '.join(kinds)}")
        check_repeatable(where, table.column_names, connection)
        rows = archive.filter(condition).project(f'"{row_name}"').fetchnumpy()[row_name]
    except duckdb.Error as error:
        # With the names that it proposes, but without the query and long lists of functions.
        reason = re.split(r"\n[\n\t]", str(error))[0]
        if "Candidate bindings" in reason:  # of a name that is no column: some that are like it
            reason = (
                f"{reason}; the columns are {', '.join(names)}: add that of a header keyword by "
                "with_keys(index, keys) or index --keys, or name another"
            )
        raise ValueError(f"where {where!r}: {reason}") from error
    finally:
        connection.close()
    return np.sort(rows)


def _check_case(where: str, names: Sequence[str]) -> None:
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise ValueError(
                f"where {where!r}: columns {other!r} and {name!r} differ only in case, and SQL "
                "does not tell them apart: rename one of them"
            )


def _with_keywords(table: pa.Table, where: str) -> pa.Table:
    """Return the table with columns of such names as ``"DATE-OBS"``, for date_obs."""
    known = {name.lower(): name for name in table.column_names}
    for quoted in re.findall(r'"([^"]+)"', where):
        own = known.get(column_name(quoted))
        if own is not None and quoted.lower() not in known:
            table = table.append_column(quoted, table[own])
            known[quoted.lower()] = own
    return table


def _without_nan(archive: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """Return the table with null for NaN, which is larger than all numbers in DuckDB."""
    replaced = []
    for name, kind in zip(archive.columns, archive.types, strict=True):
        if str(kind) in ("FLOAT", "DOUBLE"):
            quoted = '"' + name.replace('"', '""') + '"'
            replaced.append(f"nullif({quoted}, 'nan'::{kind}) AS {quoted}")
    return archive.project(f"* REPLACE ({', '.join(replaced)})") if replaced else archive
