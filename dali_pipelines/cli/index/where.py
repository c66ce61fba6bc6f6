"""Conditions over the columns of a table, written as SQL expressions and evaluated by DuckDB."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dali_pipelines.cli.errors import Refusal

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

# Row numbers, beside the columns that a condition sees.
ROW = "row of the index"

# Nothing outside the table can be reached: no file, no network, no Python variable.
DUCKDB_CONFIG = {
    "enable_external_access": "false",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "python_enable_replacements": "false",
    "lock_configuration": "true",
}


def check(where: str, keys: Sequence[str], table: pa.Table) -> None:
    """Reject, before a scan, a condition that is wrong whatever the headers hold.

    The table has one row of the columns that the scan will give, empty where their type is not
    known yet. Header keys may be named in their own spelling, in double quotes.
    """
    try:
        matching(where, keys, table)
    except Refusal as refusal:
        # Which function of that name is meant shows when the types of the columns are known.
        if "Could not choose a best candidate" not in str(refusal):
            raise


def matching(where: str, keys: Sequence[str], table: pa.Table) -> np.ndarray[Any, Any]:
    """Return the rows for which the condition is true, in order, as int64 of shape (k,).

    `SQLExpression` takes a single expression and nothing that could follow or replace one.

    Raises
    ------
    Refusal
        If the condition is no such expression, or is neither true nor false.
    """
    import duckdb
    import numpy as np

    from readers.index.fact_table import column_name

    for key in keys:
        if column_name(key) != key.lower():
            table = table.append_column(key, table[column_name(key)])
    table = table.append_column(ROW, [np.arange(table.num_rows)])
    connection = duckdb.connect(":memory:", config=DUCKDB_CONFIG)
    try:
        archive = connection.register("archive", table).table("archive")
        condition = duckdb.SQLExpression(where)
        kinds = [str(kind) for kind in archive.project(condition).types]
        if kinds not in (["BOOLEAN"], ['"NULL"']):
            raise Refusal(f"--where must be true or false, {where!r} is {', '.join(kinds)}")
        rows = archive.filter(condition).project(f'"{ROW}"').fetchnumpy()[ROW]
    except duckdb.Error as error:
        # With the names that it proposes, but without the query and long lists of functions.
        reason = re.split(r"\n[\n\t]", str(error))[0]
        raise Refusal(f"--where {where!r}: {reason}") from error
    finally:
        connection.close()
    return np.sort(rows)
