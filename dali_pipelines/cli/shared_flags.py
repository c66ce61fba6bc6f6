"""Flags that several commands share: base classes of their configurations."""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from dali_pipelines.cli.flag_types import at_least, hdu_name, location
from dali_pipelines.cli.options import option, settings_of
from dali_pipelines.cli.paths import marked
from dali_pipelines.runtime.cgroup import whole_cores
from readers.places.storage import Storage


@dataclass(frozen=True, kw_only=True)
class FileFlags:
    """Files to read, as positional arguments."""

    files: Sequence[str] = option(
        None,
        "file, folder, glob in quotes, URL, or Index file",
        positional=True,
        nargs="+",
        type=location,
    )


@dataclass(frozen=True, kw_only=True)
class StorageFlags:
    """Flags for requests of remote objects; none takes a secret, because ps would show it."""

    storage_settings: dict[str, Any] = settings_of(
        Storage,
        "endpoint region profile anonymous retries timeout concurrency",
        renamed={"timeout": "request_timeout"},
        endpoint={"metavar": "URL"},
        region={"metavar": "NAME"},
        profile={"metavar": "NAME"},
    )

    def __post_init__(self) -> None:
        _ = self.storage  # to check it

    @cached_property
    def storage(self) -> Storage:
        """The settings as an object of the library."""
        return Storage(**self.storage_settings)


@dataclass(frozen=True, kw_only=True)
class HduFlags:
    """Image of a FITS file to read."""

    hdu: int | str | tuple[str, int] | None = option(
        None,
        "fits: HDU to read, its number, EXTNAME, or EXTNAME,EXTVER (default: the Index's, or the "
        "first with an image)",
        type=hdu_name,
        metavar="N|NAME",
    )


@dataclass(frozen=True, kw_only=True)
class DeviceFlags:
    """Device on which the graph runs."""

    device: Literal["auto", "gpu", "cpu"] = option(
        "auto",
        "auto: the GPUs, or the CPU if no GPU is visible; gpu: an error if no GPU is visible",
        choices=("auto", "gpu", "cpu"),
    )


@dataclass(frozen=True, kw_only=True)
class ProcessFlags:
    """Number of child processes."""

    num_processes: int = option(whole_cores(), "child processes", type=at_least(1), metavar="N")


@dataclass(frozen=True, kw_only=True)
class ClusterFlags:
    """Workers on other machines, and the share of the files of this process."""

    executor: str | None = option(
        None,
        "workers of a cluster: dask://HOST:PORT, mpi, or a function that returns a "
        "concurrent.futures.Executor",
        metavar="NAME|MODULE:FUNCTION",
    )
    num_shards: int | None = option(
        None,
        "number of processes of a job array, each with a share of the files",
        type=at_least(1),
        metavar="N",
    )
    shard_id: int | None = option(
        None, "number of this process, from 0 on", type=at_least(0), metavar="I"
    )

    def __post_init__(self) -> None:
        if self.shard_id is None and self.num_shards is None:
            return
        if self.shard_id is None or self.num_shards is None:
            raise ValueError(
                "--shard_id needs --num_shards, and --num_shards needs --shard_id: set both"
            )
        if self.shard_id >= self.num_shards:
            raise ValueError(
                f"--shard_id must be in [0, --num_shards={self.num_shards}), got {self.shard_id}: "
                "a job array begins with 0"
            )

    def in_shard(self, name: str) -> bool:
        """Return whether this process handles a file, or a part of one."""
        if self.shard_id is None or self.num_shards is None:
            return True
        return shard_of(name, self.num_shards) == self.shard_id

    def own_file(self, path: str) -> str:
        """Return the name of this process's own file: ``a.shard3of10.json`` for ``a.json``."""
        if self.shard_id is None:
            return path
        return marked(path, f"shard{self.shard_id}of{self.num_shards}")


def shard_of(name: str, num_shards: int) -> int:
    """Return the shard of a file. It depends only on the name, so new files may appear."""
    return zlib.crc32(os.fsencode(name)) % num_shards
