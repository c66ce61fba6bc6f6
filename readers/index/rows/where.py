"""Conditions on the columns of a table: SQL expressions, which DuckDB evaluates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from readers.index.fact_table import column_name

if TYPE_CHECKING:
    import pyarrow as pa

_ROW = "row of the index"
"""Column of row numbers, beside those that a condition sees."""

# Nothing outside the table can be reached: no file, no network, no Python variable.
_DUCKDB_CONFIG = {
    "enable_external_access": "false",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "python_enable_replacements": "false",
    "lock_configuration": "true",
}


def matching(table: pa.Table, where: str, keys: Sequence[str] = ()) -> NDArray[np.int64]:
    """Return the rows for which the condition is true, in order, shape (k,).

    `SQLExpression` takes a single expression and nothing that could follow or replace one.

    Parameters
    ----------
    table : pyarrow.Table
        Any table.
    where : str
        The condition.
    keys : sequence of str
        Header keywords whose columns may also be named as FITS spells them, in double quotes.

    Raises
    ------
    ModuleNotFoundError
        If DuckDB is not installed.
    ValueError
        If the condition is no such expression, or is neither true nor false. It begins with
        "where".
    """
    import duckdb

    for key in keys:
        if column_name(key) != key.lower():
            table = table.append_column(key, table[column_name(key)])
    table = table.append_column(_ROW, [np.arange(table.num_rows)])
    connection = duckdb.connect(":memory:", config=_DUCKDB_CONFIG)
    try:
        archive = connection.register("archive", table).table("archive")
        condition = duckdb.SQLExpression(where)
        kinds = [str(kind) for kind in archive.project(condition).types]
        if kinds not in (["BOOLEAN"], ['"NULL"']):
            raise ValueError(f"where must be true or false, {where!r} is {', '.join(kinds)}")
        rows = archive.filter(condition).project(f'"{_ROW}"').fetchnumpy()[_ROW]
    except duckdb.Error as error:
        # With the names that it proposes, but without the query and long lists of functions.
        reason = re.split(r"\n[\n\t]", str(error))[0]
        raise ValueError(f"where {where!r}: {reason}") from error
    finally:
        connection.close()
    return np.sort(rows)
