"""Facts of files, read in threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, TypeVar

from readers.contract import Row
from readers.errors import ReadError
from readers.index.arrow import pa, pc
from readers.index.skipped import Skipped

_AHEAD = 1024
"""Maximum number of values that wait for a free thread."""

Value = TypeVar("Value")
Result = TypeVar("Result")
Facts = TypeVar("Facts")


def with_facts(
    table: pa.Table,
    rows: Iterable[Row],
    look: Callable[[Row], Facts],
    kind: str,
    num_threads: int,
    progress: Callable[[Iterable[Any]], Iterable[Any]],
) -> tuple[pa.Table, list[Facts]]:
    """Return the rows of a table that can be read, and the facts of each.

    `look` returns the facts of a row, or raises ReadError. The log counts the rows left out; `kind`
    is the plural name of the files there. `progress` wraps the facts.

    Raises
    ------
    ReadError
        If no row can be read.
    """

    def facts_or_error(row: Row) -> Facts | ReadError:
        try:
            return look(row)
        except ReadError as error:
            return error

    found = list(progress(in_threads(facts_or_error, rows, num_threads)))
    errors = [each for each in found if isinstance(each, ReadError)]
    if errors and len(errors) == len(found):
        raise errors[0]
    skipped = Skipped()
    for error in errors:
        skipped.reject(f"{kind} that cannot be read", error.path, error.reason)
    skipped.log()
    is_good = [not isinstance(each, ReadError) for each in found]
    facts = [each for each in found if not isinstance(each, ReadError)]
    return table.filter(pa.array(is_good)), facts


def seconds_of(table: pa.Table, name: str) -> pa.ChunkedArray | pa.Array:
    """Return a column of seconds as float64, or nulls; ValueError for columns of other types."""
    if name not in table.column_names:
        return pa.nulls(table.num_rows, pa.float64())
    kind = table.schema.field(name).type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)):
        raise ValueError(
            f"column {name!r} says which part of a file a row is, in seconds, so it must have "
            f"numbers, got {kind}: rename it"
        )
    return table[name].cast(pa.float64())


def of_parts(table: pa.Table, durations: pa.Array) -> pa.ChunkedArray | pa.Array:
    """Return the durations of rows that are parts of files, by a column ``start``, in seconds.

    Existing durations are kept; without one, a part ends with its file. `durations` are those of
    the whole files.
    """
    if "start" not in table.column_names:
        return durations
    starts = seconds_of(table, "start")
    ends = pc.max_element_wise(pc.subtract(durations, pc.coalesce(starts, 0.0)), 0.0)
    given = pc.coalesce(seconds_of(table, "duration"), ends)
    return pc.if_else(pc.is_valid(starts), given, durations)


def in_threads(
    function: Callable[[Value], Result], values: Iterable[Value], num_threads: int = 4
) -> Iterator[Result]:
    """Yield ``function(value)`` for each value, in order, from threads."""
    left = iter(values)
    with ThreadPoolExecutor(num_threads) as threads:
        while some := list(islice(left, _AHEAD)):
            yield from threads.map(function, some)
