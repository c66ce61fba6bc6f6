"""The scan of files: their metadata, rejected files, and labels."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from dali_pipelines.cli.errors import CommandError, one_line, refusing
from dali_pipelines.cli.index import parts
from dali_pipelines.cli.paths import scanned
from dali_pipelines.parallel.interpreter import Crash
from dali_pipelines.parallel.task_map import isolated_map, process_map

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Generator,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
        Sized,
    )
    from concurrent.futures import Executor

    import pyarrow as pa

    from dali_pipelines.cli.index.config import IndexConfig
    from dali_pipelines.cli.index.parts import Found
    from readers.contract import Row
    from readers.fits.headers import Value
    from readers.index.columns import Columns
    from readers.index.fact_table import FactTable

    Rejected = list[tuple[str, str]]
    """Path and reason of each file."""

Chunk = TypeVar("Chunk", bound="Sized")

_REMOTE_FILES = 16
"""Number of headers of remote files that a process reads at the same time."""
CHUNK_FILES = 32
"""Number of files in a task of the pool: 0.1 s of work, or some seconds for files from a
network."""


def files_of(config: IndexConfig) -> pa.Table:
    """Return the table of the files: path, sorted, and labels if there are any."""
    from readers.index.table import SUFFIXES, Index

    if config.class_folders and not os.path.isdir(config.data):
        raise CommandError(f"--class_folders needs a folder, got {config.data}")
    suffixes = (*SUFFIXES["fits"], *SUFFIXES["jpeg"])
    if not config.class_folders:
        return scanned(config.data, suffixes, config.storage).table
    with refusing(OSError, ValueError):
        classes = None if config.classes is None else Index.load(config.classes)
        return Index.from_class_folders(config.data, classes=classes, suffixes=suffixes).table


def unknown_facts(config: IndexConfig) -> pa.Table:
    """Return the table that a scan makes of one file without any values."""
    from readers.index.fact_table import COLUMNS, FactTable, keys_to_read

    facts = FactTable(config.all_keys, has_planes=config.planes is not None)
    nothing = dict.fromkeys((*COLUMNS, *keys_to_read(config.all_keys)))
    facts.add(nothing)  # without a row, conditions are hardly checked
    return facts.table()


def with_labels(table: pa.Table, files: pa.Table) -> pa.Table:
    """Return the metadata with the labels in the table of the files."""
    import pyarrow.compute as pc

    from readers.index.classes import classes_of, with_classes

    rows = pc.index_in(table["path"], value_set=files["path"])
    for name in files.column_names[1:]:
        if name in table.column_names:  # file_bytes: the listing of objects has it
            continue
        table = table.append_column(name, files[name].take(rows))
    return with_classes(table, classes_of(files))


def with_members(facts: pa.Table, members: pa.Table) -> pa.Table:
    """Return the metadata of members of containers, with all their columns."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from readers.index.table import Index

    columns = Index(members).columns()
    names = [columns.row(number).name for number in range(len(columns))]
    rows = pc.index_in(facts["path"], value_set=pa.array(names, pa.large_string()))
    found = members.take(rows)
    for name in facts.column_names:
        if name not in found.column_names:
            found = found.append_column(name, facts[name])
    return found


def scan(
    files: pa.Table, config: IndexConfig, executor: Executor | None = None
) -> tuple[FactTable, Rejected]:
    """Return the metadata of files and members, in their order, and the rejected ones."""
    from readers.index.fact_table import FactTable

    columns = _columns(files, config)
    facts = FactTable(config.all_keys, has_planes=config.planes is not None)
    rejected: Rejected = []
    every = range(len(columns))
    joined = parts.joined(config, map(_versioned, map(columns.row, every)))
    with closing(joined if config.join else _read(columns, every, config, executor)) as results:
        for name, found in results:
            if isinstance(found, str):
                rejected.append((name, found))
            else:
                for row in found:
                    facts.add(row)
    return facts, rejected


def scan_shard(files: pa.Table, config: IndexConfig, executor: Executor | None) -> None:
    """Read the files of the shard, write its part, and report their number."""
    columns = _columns(files, config)
    of_shard = [n for n in range(len(columns)) if config.in_shard(columns.row(n).name)]
    versions = [_versioned(columns.row(n))[1] for n in of_shard]  # before they are read
    with closing(_read(columns, of_shard, config, executor)) as results:
        found = zip(results, versions, strict=True)
        parts.write(config, ((*each, version) for each, version in found))
    print(f"{len(of_shard)} of {len(columns)} files read. ", end="")


def _versioned(row: Row) -> tuple[str, str | None]:
    """Return the name of a file, and its ETag, or size and modification time if it is local."""
    from readers.places.urls import is_url

    version = row.etag
    if version is None and not is_url(row.path):
        with suppress(OSError):  # the scan reports the error
            status = os.stat(row.path)
            version = f"{status.st_size} {status.st_mtime_ns}"
    return row.name, version


def _columns(files: pa.Table, config: IndexConfig) -> Columns:
    from readers.index.table import Index
    from readers.places.opener import Places

    return Index(files).columns().with_places(Places(config.storage))


def _read(
    columns: Columns, numbers: Sequence[int], config: IndexConfig, executor: Executor | None
) -> Generator[tuple[str, Found], None, None]:
    """Yield the name and the contents of the file of each row in `numbers`."""
    # A damaged file can crash a decoder; if it is alone in its task, it is identified.
    size = 1 if config.verify else CHUNK_FILES
    chunks = [numbers[at : at + size] for at in range(0, len(numbers), size)]
    settings = config.header_settings, config.verify
    tasks = (([columns.row(number) for number in chunk], *settings) for chunk in chunks)
    mapped = isolated_map if config.verify else process_map
    for chunk, found in in_processes(_scan_chunk, tasks, chunks, config, mapped, executor):
        if isinstance(found, Crash):
            found = ["it kills the process that decodes it"]
        yield from zip((columns.row(number).name for number in chunk), found, strict=True)


def in_processes(
    function: Callable[..., Any],
    tasks: Iterable[tuple[Any, ...]],
    chunks: Sequence[Chunk],
    config: IndexConfig,
    mapped: Callable[..., Any] = process_map,
    executor: Executor | None = None,
) -> Iterator[tuple[Chunk, Any]]:
    """Yield each chunk of files with the result of its task, and draw a progress bar.

    Raises
    ------
    CommandError
        If a process is killed, and `mapped` does not return a Crash in place of the result.
    """
    from dali_pipelines.cli.progress import Bar

    num_processes = max(1, min(config.num_processes, len(chunks)))
    try:
        with (
            Bar(total=sum(map(len, chunks)), unit="files") as bar,
            closing(mapped(function, tasks, num_processes, executor)) as results,
        ):
            for chunk, found in zip(chunks, results, strict=True):
                yield chunk, found
                bar.update(len(chunk))
    except Crash as error:
        raise CommandError(
            f"one of {num_processes} processes was killed, possibly out of memory: lower "
            "--num_processes",
            1,
        ) from error


def _scan_chunk(rows: list[Row], settings: Mapping[str, Any], verify: bool) -> list[Found]:
    """Return the rows of each readable file, and the reason for each of the others."""
    from readers.errors import ReadError
    from readers.places.urls import is_url

    def found_in(row: Row) -> Found:
        try:
            return _facts(row, settings, verify)
        except ReadError as error:
            return one_line(error.reason)

    if any(is_url(row.path) for row in rows):
        with ThreadPoolExecutor(_REMOTE_FILES) as threads:  # a request takes some 20 ms
            return list(threads.map(found_in, rows))
    return list(map(found_in, rows))


def _facts(row: Row, settings: Mapping[str, Any], verify: bool) -> list[dict[str, Value]]:
    from dali_pipelines.cli.full_decode import check_whole
    from readers.header_scan import file_facts

    facts = file_facts(row.place, **settings)
    if verify:
        planes_of = {one["hdu"]: one["planes"] for one in facts}
        for number, count in cast("dict[int | None, int | None]", planes_of).items():
            check_whole(replace(row, hdu=number), count or 1)
    return facts
