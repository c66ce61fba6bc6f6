"""Choose rows: by their numbers, or by a condition."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from readers.index.arrow import pa
from readers.index.fact_table import column_name
from readers.messages import install

if TYPE_CHECKING:
    import duckdb
    from numpy.typing import ArrayLike

_ROW = "\ue000"
"""Name of the column of row numbers. It resembles no other name, because DuckDB suggests similar
names in its errors."""

# A condition can reach only the table: no file, no network, no Python variable.
_DUCKDB_CONFIG = {
    "enable_external_access": "false",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "python_enable_replacements": "false",
    "threads": "1",  # with several threads, the first row of a group could vary
}
# Compare dates with times in UTC, not in the time zone of the machine.
_SETTINGS = "SET TimeZone = 'UTC'; SET lock_configuration = true"


def selected(table: pa.Table, rows: ArrayLike) -> pa.Table:
    """Return rows by their numbers, or a mask, see `readers.index.table.Index.select`."""
    chosen, count = np.asarray(rows), table.num_rows
    if chosen.dtype == bool and chosen.ndim > 0:
        if chosen.shape != (count,):
            raise ValueError(f"a mask must have shape ({count},), got {chosen.shape}")
        chosen = np.flatnonzero(chosen)
    if chosen.ndim != 1 or (len(chosen) and not np.issubdtype(chosen.dtype, np.integer)):
        what = rows if chosen.ndim == 0 else f"{chosen.dtype} of shape {chosen.shape}"
        raise TypeError(
            "select takes row numbers, integers of shape (k,), or a mask, bools of shape "
            f"({count},); got {what!s}"
        )
    for place in np.flatnonzero((chosen < 0) | (chosen >= count))[:1]:
        raise IndexError(f"row numbers must be in [0, {count}), got {chosen[place]}")
    return table.take(pa.array(chosen, pa.int64()))


def matching(table: pa.Table, where: str) -> NDArray[np.int64]:
    """Return the numbers of the rows for which the condition is true, in order, shape (k,).

    NaN in a column of floats is a missing value, like null. Dates and times without a time zone are
    in UTC. DuckDB's `SQLExpression` accepts only one expression, without other statements.

    Parameters
    ----------
    table : pyarrow.Table
        Any table.
    where : str
        The condition. FITS keywords in double quotes are also names of columns.

    Raises
    ------
    ModuleNotFoundError
        If DuckDB is not installed.
    TypeError
        If the condition is not text.
    ValueError
        If the condition is not an expression, if its values are not bools, if it may choose other
        rows in the next call, or if names of columns differ only in case.
    """
    try:
        import duckdb
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"Index.where needs DuckDB: {install('cli')}", name=error.name
        ) from error
    if not isinstance(where, str):
        raise TypeError(
            "where takes an SQL expression as text, such as 'exptime > 1.9', got "
            f"{type(where).__name__}: row numbers and masks are for select"
        )
    _check_case(where, table.column_names)
    with duckdb.connect(":memory:", config=_DUCKDB_CONFIG) as connection:
        connection.execute(_SETTINGS)
        readable, others = _readable(table, connection)
        try:
            rows = _matching(_with_keywords(readable, where), where, connection)
        except duckdb.Error as error:
            raise ValueError(
                f"where {where!r}: {_reason(error, readable.column_names, others)}"
            ) from error
    return np.sort(rows)


def _matching(
    table: pa.Table, where: str, connection: duckdb.DuckDBPyConnection
) -> NDArray[np.int64]:
    import duckdb

    row_name = _ROW
    while row_name in table.column_names:
        row_name += _ROW
    # A view allows subqueries in conditions: (SELECT avg(exptime) FROM archive).
    _without_nan(connection.from_arrow(table)).create_view("archive")
    numbered = table.append_column(row_name, [np.arange(table.num_rows)])
    archive = _without_nan(connection.from_arrow(numbered)).set_alias("archive")
    condition = duckdb.SQLExpression(where)
    kinds = [str(kind) for kind in archive.project(condition).types]
    if kinds not in (["BOOLEAN"], ['"NULL"']):
        raise ValueError(f"where must be true or false, {where!r} is {', '.join(kinds)}")
    check_repeatable(where, table.column_names, connection)
    found = archive.filter(condition).project(f'"{row_name}"').fetchnumpy()
    return np.asarray(found[row_name])


def _readable(
    table: pa.Table, connection: duckdb.DuckDBPyConnection
) -> tuple[pa.Table, dict[str, pa.DataType]]:
    """Return the columns that DuckDB reads, with float16 as float32, and types of other columns."""
    import duckdb

    kept, others = [], {}
    for number, (name, kind) in enumerate(zip(table.column_names, table.schema.types, strict=True)):
        if pa.types.is_float16(kind):
            table = table.set_column(number, name, table[number].cast(pa.float32()))
        try:
            connection.from_arrow(table.select([number]).slice(0, 0))
            kept.append(number)
        except duckdb.NotImplementedException:
            others[name] = kind
    return table.select(kept), others


def _reason(error: Exception, names: Sequence[str], others: Mapping[str, pa.DataType]) -> str:
    # Keep suggested names, but remove the query and long lists of functions.
    reason = re.split(r"\n[\n\t]", str(error))[0]
    if "Candidate bindings" not in reason:  # DuckDB's words for an unknown column
        return reason
    unread = ", ".join(f"{name} of {kind}" for name, kind in others.items())
    return (
        f"{reason}; the columns are {', '.join(names)}: use one of these, or add a column for a "
        "header keyword by Index.scan(data, keys=[...]), with_keys(index, keys) or dali-pipelines "
        "index --keys"
        + (f"; conditions cannot read {unread}: convert to another type" if others else "")
    )


def _check_case(where: str, names: Sequence[str]) -> None:
    seen: dict[bytes, str] = {}
    for name in names:
        other = seen.setdefault(name.encode().lower(), name)  # like DuckDB, only ASCII
        if other != name:
            raise ValueError(
                f"where {where!r}: columns {other!r} and {name!r} differ only in case, which SQL "
                "ignores: rename one of them"
            )


def _with_keywords(table: pa.Table, where: str) -> pa.Table:
    """Return the table with columns also under their keywords: ``"DATE-OBS"`` for date_obs."""
    known = {name.lower(): name for name in table.column_names}
    for quoted in re.findall(r'"([^"]+)"', where):
        own = known.get(column_name(quoted))
        if own is not None and quoted.lower() not in known:
            table = table.append_column(quoted, table[own])
            known[quoted.lower()] = own
    return table


def _without_nan(archive: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """Return the table with null for NaN. For DuckDB, NaN is larger than all numbers."""
    replaced = []
    for name, kind in zip(archive.columns, archive.types, strict=True):
        if str(kind) in ("FLOAT", "DOUBLE"):
            quoted = '"' + name.replace('"', '""') + '"'
            replaced.append(f"nullif({quoted}, 'nan'::{kind}) AS {quoted}")
    return archive.project(f"* REPLACE ({', '.join(replaced)})") if replaced else archive


# ---- Check that a condition always finds the same rows -------------------------------------------

# All names in the condition, in any syntax. Each SELECT has a sample, which may be null.
_PARSED = """
    SELECT list_transform(parsed ->> '$..function_name', lambda name: lower(name)),
        list_transform(parsed ->> '$..column_names[0]', lambda name: lower(name)),
        parsed ->> '$..sample'
    FROM (SELECT json_serialize_sql('SELECT ' || ?) AS parsed)
"""
# Stability is null for macros and table functions. Table functions can run any SQL, like query().
_FUNCTIONS = """
    SELECT function_name, string_agg(macro_definition, ' '),
        bool_or(stability <> 'CONSISTENT') OR bool_and(function_type LIKE 'table%')
    FROM duckdb_functions() GROUP BY function_name
"""
_BARE = {
    *("current_date", "current_localtime", "current_localtimestamp", "current_time"),
    *("current_timestamp", "localtime", "localtimestamp"),
}
"""Functions that need no parentheses."""
_OTHERS = {
    "age",  # with one argument, it uses the current date
    "reservoir_quantile",
    *_BARE,
}
"""Unstable functions that DuckDB declares consistent, or does not list."""


def check_repeatable(
    where: str, columns: Sequence[str], connection: duckdb.DuckDBPyConnection
) -> None:
    """Raise ValueError if a valid condition has a sample, or a function with varying results."""
    functions, names, samples = connection.execute(_PARSED, [where]).fetchall()[0]
    functions += _BARE.intersection(names).difference(map(str.lower, columns))
    unstable = sorted(_unstable().intersection(functions))
    found = [f"{name}()" for name in unstable]
    if set(samples) != {None}:
        found.append("SAMPLE")
    if found:
        raise ValueError(
            f"where {where!r}: {', '.join(found)} may choose other rows in the next call: use "
            "Index.split, which is reproducible, or Index.select, which takes row numbers"
        )


@cache
def _unstable() -> set[str]:
    import duckdb

    with duckdb.connect(":memory:") as connection:
        functions = connection.execute(_FUNCTIONS).fetchall()
    unstable = _OTHERS | {name for name, _, is_unstable in functions if is_unstable} - {"unnest"}
    return unstable | {
        name
        for name, macro, _ in functions
        if unstable.intersection(re.findall(r"\w+", macro or ""))
    }
