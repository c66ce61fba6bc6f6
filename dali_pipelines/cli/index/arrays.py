"""Rows of arrays in chunks: Zarr stores, or HDF5 and netCDF4 files, scanned by processes."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from dali_pipelines.cli.arrays import neither, zarr_index
from dali_pipelines.cli.errors import CommandError, one_line, refusing
from dali_pipelines.parallel.interpreter import Crash
from dali_pipelines.parallel.task_map import process_map

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from dali_pipelines.cli.index.config import IndexConfig
    from dali_pipelines.cli.index.scan import Rejected
    from readers.places.storage import Storage

_AT_ONCE = 16
"""Files of a task; one takes some 30 ms."""


def scan_arrays(config: IndexConfig) -> tuple[pa.Table, str, Rejected]:
    """Return the rows, what was found in words, and the files that cannot be read."""
    from readers.chunks.hdf5 import SUFFIXES
    from readers.index.chunk_rows import joined
    from readers.index.table import Index

    with refusing(ImportError, OSError, ValueError):
        found = zarr_index(config.data, config.storage, **config.arrays)
        if not isinstance(found, str):
            return found.table, f"{len(found)} rows of arrays found", []
        try:
            files = Index.scan(config.data, suffixes=SUFFIXES, storage=config.storage).table
        except FileNotFoundError as error:
            raise FileNotFoundError(neither(error, found)) from error
    tables: list[pa.Table] = []
    rejected: Rejected = []
    with refusing(ImportError, OSError, ValueError):
        for path, each in _scanned(files, config):
            if isinstance(each, str):
                rejected.append((path, each))
            else:
                tables.append(each)
        if not tables:
            return files.slice(0, 0), "", rejected
        table = joined(tables)
    return table, f"{len(files)} files with {len(table)} rows found", rejected


def _scanned(files: pa.Table, config: IndexConfig) -> Any:
    """Yield the path of each file, and its rows, or why it cannot be read."""
    from dali_pipelines.cli.progress import Bar

    parts = [files.slice(at, _AT_ONCE) for at in range(0, len(files), _AT_ONCE)]
    tasks = ((part, config.arrays, config.storage) for part in parts)
    num_processes = max(1, min(config.num_processes, len(parts)))
    try:
        with (
            Bar(total=len(files), unit="files") as bar,
            closing(process_map(_scan_some, tasks, num_processes)) as results,
        ):
            for part, found in zip(parts, results, strict=True):
                yield from zip(part["path"].to_pylist(), found, strict=True)
                bar.update(len(part))
    except Crash as error:
        raise CommandError(
            f"one of {num_processes} processes was killed; if for memory, try fewer", 1
        ) from error


def _scan_some(
    files: pa.Table, arguments: Mapping[str, Any], storage: Storage
) -> list[pa.Table | str]:
    """Return the rows of each file, or why it cannot be read."""
    from readers.index.hdf5_rows import file_tables
    from readers.places.opener import Places

    nothing = dict.fromkeys(("variables", "dim", "isel", "columns"))
    found = file_tables(files, **{**nothing, **arguments}, places=Places(storage))
    return [one_line(one) if isinstance(one, Exception) else one for one in found]
