"""Samples in containers; their kind is a flag, or follows from the suffix."""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING

from dali_pipelines.cli.errors import CommandError, refusing
from dali_pipelines.parallel.task_map import process_map

if TYPE_CHECKING:
    from concurrent.futures import Executor

    import pyarrow as pa

    from dali_pipelines.cli.index.config import IndexConfig
    from readers.index.containers.kinds import Kind
    from readers.index.skipped import Skipped


def table(config: IndexConfig, executor: Executor | None, left_out: Skipped) -> pa.Table | None:
    """Return the table of the samples in containers; None if the data are not containers."""
    from readers.index.containers import tables
    from readers.places.opener import Places

    kind, places = _kind(config), Places(config.storage)
    if kind is None:
        return None
    with refusing(OSError, ValueError, ImportError):
        if executor is None:
            return tables.containers_table(kind, config.data, places, left_out)
        paths = tables.container_paths(kind, config.data, places)
        tasks = ((kind, path, places) for path in paths)
        with closing(process_map(tables.scan_container, tasks, 1, executor)) as scanned:
            return tables.joined_containers(kind, scanned, left_out)


def _kind(config: IndexConfig) -> Kind | None:
    from readers.index.containers import kinds

    name, image = config.container or _by_suffix(config.data), config.image
    if image is not None and name not in ("tar", "tfrecord"):
        raise CommandError("--image is for tar and TFRecord files; set --container")
    if name == "tar":
        return kinds.Tar(image)
    if name == "tfrecord" and image is not None:
        return kinds.TFRecord(image)
    known = {"tfrecord": kinds.TFRecord, "recordio": kinds.RecordIO, "lmdb": kinds.LMDB}
    return None if name is None else known[name]()


def _by_suffix(data: str) -> str | None:
    """Return the kind of the containers; None if `Index.scan` determines it."""
    from readers.index.containers import kinds
    from readers.index.containers.tables import peeked

    if peeked(data)[0]:
        return "tar"
    if os.path.isfile(os.path.join(data, "data.mdb")):
        return "lmdb"
    known = {
        "tfrecord": kinds.TFRecord.suffixes,
        "recordio": kinds.RecordIO.suffixes,
        "lmdb": kinds.LMDB.suffixes,
    }
    return next((name for name, suffixes in known.items() if data.endswith(suffixes)), None)
