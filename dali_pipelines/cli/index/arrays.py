"""Rows of arrays in chunks: Zarr stores, or HDF5 and netCDF4 files, scanned by processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dali_pipelines.cli.arrays import neither, zarr_index
from dali_pipelines.cli.errors import one_line, refusing
from dali_pipelines.cli.index.scan import in_processes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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


def _scanned(files: pa.Table, config: IndexConfig) -> Iterator[tuple[str, pa.Table | str]]:
    """Yield the path of each file, and its rows, or why it cannot be read."""
    parts = [files.slice(at, _AT_ONCE) for at in range(0, len(files), _AT_ONCE)]
    tasks = ((part, config.arrays, config.storage) for part in parts)
    for part, found in in_processes(_scan_some, tasks, parts, config):
        yield from zip(part["path"].to_pylist(), found, strict=True)


def _scan_some(
    files: pa.Table, arguments: Mapping[str, Any], storage: Storage
) -> list[pa.Table | str]:
    """Return the rows of each file, or why it cannot be read."""
    from readers.index.hdf5_rows import file_tables
    from readers.places.opener import Places

    nothing = dict.fromkeys(("variables", "dim", "isel", "columns"))
    found = file_tables(files, **{**nothing, **arguments}, places=Places(storage))
    return [one_line(one) if isinstance(one, Exception) else one for one in found]
