"""The Loader by how its readers start, and by how many batches are kept ready."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from benchmarks.data import Files, Settings
from benchmarks.measure.ledger import Ledger
from benchmarks.measure.race import Table, Way, race
from benchmarks.ways.loaders import expected_pixels, loader_way
from benchmarks.ways.peers import Case
from benchmarks.ways.shards import in_processes

CASE = Case(kind="fits", batch_size=2, flip="")
_METHODS = ("forkserver", "spawn", "fork")
_DEPTHS = (1, 2, 3, 4)


def starting_tables(files: Files, settings: Settings, ledger: Ledger) -> Iterator[Table]:
    """Time the start methods, then the depths."""
    expected = expected_pixels(files.paths, CASE)
    yield Table(
        title="The Loader by start method, whole frames",
        baseline="spawn",
        results=race(by_start_method(files, settings, ledger), expected, settings.rounds),
        data=files.described,
        note="Each runs in a process of its own, because fork must come before any threads. The "
        "first batch comes after this process was spawned, has imported DALI and PyTorch, and has "
        f"sent the pixels through a pipe. {settings.num_read_processes} readers, batches of "
        f"{CASE.batch_size}.",
    )
    yield Table(
        title="The Loader by prefetch, whole frames",
        baseline="prefetch 1",
        results=race(by_prefetch(files, settings, ledger), expected, settings.rounds),
        data=files.described,
        note="Prefetch: batches that the readers keep ready, and also the graph. "
        f"{settings.num_read_processes} readers, batches of {CASE.batch_size}.",
    )


def by_start_method(files: Files, settings: Settings, ledger: Ledger) -> list[Way]:
    """Return a way for each start method, in a process of its own."""
    ways = [_way(method, files, settings, ledger, start_method=method) for method in _METHODS]
    return [replace(way, start=partial(in_processes, [way.start])) for way in ways]


def by_prefetch(files: Files, settings: Settings, ledger: Ledger) -> list[Way]:
    """Return a way for each depth."""
    depths = _DEPTHS[:2] if settings.quick else _DEPTHS
    return [_way(f"prefetch {depth}", files, settings, ledger, prefetch=depth) for depth in depths]


def _way(name: str, files: Files, settings: Settings, ledger: Ledger, **how: Any) -> Way:
    return loader_way(
        name,
        files.index,
        CASE,
        1 if settings.quick else 3,
        num_read_processes=settings.num_read_processes,
        num_threads=settings.num_threads,
        ledger=ledger,
        **how,
    )
