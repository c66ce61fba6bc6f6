"""The scan of files: their facts, rejected files, and labels."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, cast

from dali_pipelines.cli.errors import Refusal, one_line, refusing
from dali_pipelines.cli.process_pool import Crash, isolated_map, process_map

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from dali_pipelines.cli.index.config import IndexConfig
    from readers.fits.hdus import HduName
    from readers.index.fact_table import Fact, FactTable
    from readers.places.contract import Place

    Rejected = list[tuple[str, str]]

CHUNK_FILES = 32
"""A task of the pool: 0.1 s of work, or some seconds where each file has to come over a network."""


def files_of(config: IndexConfig) -> pa.Table:
    """Return the table of the files: path, sorted, and the labels if there are any."""
    from readers.index.table import SUFFIXES, Index

    if config.class_folders and not os.path.isdir(config.data):
        raise Refusal(f"--class_folders needs a folder, got {config.data}")
    suffixes = (*SUFFIXES["fits"], *SUFFIXES["jpeg"])
    with refusing(OSError, ValueError):
        if not config.class_folders:
            return Index.scan(config.data, suffixes=suffixes).table
        classes = None if config.classes is None else Index.load(config.classes)
        return Index.from_class_folders(config.data, classes=classes, suffixes=suffixes).table


def unknown_facts(config: IndexConfig) -> pa.Table:
    """Return the table of a scan that has read one file and found nothing in it."""
    from readers.index.fact_table import COLUMNS, FactTable

    facts = FactTable(config.all_keys, has_planes=config.planes is not None)
    facts.add(dict.fromkeys((*COLUMNS, *config.all_keys)))  # without a row, little is evaluated
    return facts.table()


def with_labels(table: pa.Table, files: pa.Table) -> pa.Table:
    """Return the facts with the labels that the table of the files has."""
    import pyarrow.compute as pc

    from readers.index.classes import classes_of, with_classes

    rows = pc.index_in(table["path"], value_set=files["path"])
    for name in files.column_names[1:]:
        table = table.append_column(name, files[name].take(rows))
    return with_classes(table, classes_of(files))


def with_members(facts: pa.Table, members: pa.Table) -> pa.Table:
    """Return the facts of members of containers, with all columns that these have."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = [place_of(*span).name for span in spans_of(members)]
    rows = pc.index_in(facts["path"], value_set=pa.array(names, pa.large_string()))
    found = members.take(rows)
    for name in facts.column_names:
        if name not in found.column_names:
            found = found.append_column(name, facts[name])
    return found


def spans_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return path, offset and length of each row, or its path alone."""
    names = [name for name in ("path", "offset", "nbytes") if name in table.column_names]
    return list(zip(*(table[name].to_pylist() for name in names), strict=True))


def place_of(path: str, *span: int) -> Place:
    """Return where a file or member lies."""
    from readers.places.opener import LOCAL

    return LOCAL.at(path, *span)


def scan(files: list[tuple[Any, ...]], config: IndexConfig) -> tuple[FactTable, Rejected]:
    """Return the facts of files and members, in their order, and those that have none."""
    from tqdm import tqdm

    from readers.index.fact_table import FactTable

    # A decoder can be brought down by a damaged file, which is then known if it is alone.
    size = 1 if config.verify else CHUNK_FILES
    chunks = [files[at : at + size] for at in range(0, len(files), size)]
    settings = config.all_keys, config.hdu, config.hdus, config.planes, config.verify
    tasks = [(chunk, *settings) for chunk in chunks]
    num_processes = min(config.num_processes, len(chunks))
    mapped = isolated_map if config.verify else process_map
    facts = FactTable(config.all_keys, has_planes=config.planes is not None)
    rejected: Rejected = []
    try:
        with (
            tqdm(total=len(files), unit="file", disable=not sys.stderr.isatty()) as bar,
            closing(mapped(_scan_chunk, tasks, num_processes)) as results,
        ):
            for chunk, result in zip(chunks, results, strict=True):
                if isinstance(result, Crash):
                    result = [], [(chunk[0][0], "it kills the process that decodes it")]
                read, unread = result
                for row in chain.from_iterable(read):
                    facts.add(row)
                rejected += unread
                bar.update(len(read) + len(unread))
    except Crash as error:
        raise Refusal(
            f"one of {num_processes} processes was killed; if for memory, try fewer", 1
        ) from error
    return facts, rejected


def _scan_chunk(
    files: list[tuple[Any, ...]],
    keys: list[str],
    hdu: HduName | None,
    hdus: Sequence[int | str] | None,
    planes: Sequence[int] | Literal["all"] | None,
    verify: bool,
) -> tuple[list[list[dict[str, Fact]]], Rejected]:
    """Return the rows of each file that can be read, and why of the others."""
    from dali_pipelines.cli.full_decode import check_whole
    from readers.errors import ReadError
    from readers.header_scan import file_facts

    read, rejected = [], []
    for file in files:
        place = place_of(*file)
        path = place.name
        try:
            facts = file_facts(place, keys, hdu, planes, hdus=hdus)
            if verify:
                planes_of = {row["hdu"]: row["planes"] for row in facts}
                for number, count in cast("dict[int | None, int | None]", planes_of).items():
                    check_whole(path, number, count or 1)
            read.append(facts)
        except ReadError as error:
            rejected.append((path, one_line(error.reason)))
    return read, rejected
