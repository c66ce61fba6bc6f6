"""Whether a condition finds the same rows each time, by what DuckDB says of its functions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

# All names in the condition, however it is written. Each SELECT has a sample, null or not.
_PARSED = """
    SELECT list_transform(parsed ->> '$..function_name', lambda name: lower(name)),
        list_transform(parsed ->> '$..column_names[0]', lambda name: lower(name)),
        parsed ->> '$..sample'
    FROM (SELECT json_serialize_sql('SELECT ' || ?) AS parsed)
"""
# Of macros and table functions, stability is null; the latter may ask for anything, as query().
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
    "age",  # of one time, which is compared with the current date
    "reservoir_quantile",
    *_BARE,
}
"""Functions that DuckDB calls consistent, or does not list."""


def check_repeatable(
    where: str, columns: Sequence[str], connection: duckdb.DuckDBPyConnection
) -> None:
    """Raise ValueError if a valid condition samples, or calls what may give other values later."""
    functions, names, samples = connection.execute(_PARSED, [where]).fetchall()[0]
    functions += _BARE.intersection(names).difference(map(str.lower, columns))
    unstable = sorted(_unstable().intersection(functions))
    found = [f"{name}()" for name in unstable]
    if set(samples) != {None}:
        found.append("SAMPLE")
    if found:
        raise ValueError(
            f"where {where!r}: {', '.join(found)} may give other rows each time: Index.split "
            "divides rows in a way that can be repeated, and Index.select takes row numbers"
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
