"""Facts of files that threads read one by one, for recordings and videos."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from readers.errors import ReadError
from readers.index.arrow import pa
from readers.index.skipped import Skipped

if TYPE_CHECKING:
    from readers.contract import Row

_AT_ONCE = 1024
"""Rows that wait for a thread at the same time."""

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

    Parameters
    ----------
    table : pyarrow.Table
        Table of an Index.
    rows : iterable of Row
        Its rows.
    look : callable
        Returns the facts of a row, or raises ReadError.
    kind : str
        Plural name of the files, for the log, which counts those that are left out.
    num_threads : int
        Files that are read concurrently.
    progress : callable
        Wraps the facts to report progress.

    Raises
    ------
    ReadError
        If no row can be read.
    """
    found = list(progress(_looked(rows, look, num_threads)))
    skipped, first = Skipped(), None
    for each in found:
        if isinstance(each, ReadError):
            first = first or each
            skipped.reject(f"{kind} that cannot be read", each.path, each)
    if first is not None and len(skipped.rejected) == len(found):
        raise first
    skipped.log()
    is_good = [not isinstance(each, ReadError) for each in found]
    facts = [each for each in found if not isinstance(each, ReadError)]
    return table.filter(pa.array(is_good)), facts


def _looked(
    rows: Iterable[Row], look: Callable[[Row], Facts], num_threads: int
) -> Iterator[Facts | ReadError]:
    def facts_or_error(row: Row) -> Facts | ReadError:
        try:
            return look(row)
        except ReadError as error:
            return error

    rows = iter(rows)
    with ThreadPoolExecutor(num_threads) as pool:
        while some := [row for _, row in zip(range(_AT_ONCE), rows, strict=False)]:
            yield from pool.map(facts_or_error, some)
