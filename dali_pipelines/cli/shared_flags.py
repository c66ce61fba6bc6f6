"""Flags that several commands have, each declared once: base classes of their configurations."""

from __future__ import annotations

import argparse
import os
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from dali_pipelines.cli.options import at_least, hdu_name, option
from dali_pipelines.cli.paths import location
from dali_pipelines.runtime.cgroup import whole_cores
from readers.places.storage import Storage

if TYPE_CHECKING:
    from dali_pipelines import Calibration, ReaderPipeline


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
    """Flags for requests of remote objects; none for secrets, which ps would list."""

    endpoint: str | None = option(
        None, "S3 server other than AWS (default: AWS_ENDPOINT_URL)", metavar="URL"
    )
    region: str | None = option(
        None, "region of the bucket (default: AWS_REGION, or the profile's)", metavar="NAME"
    )
    profile: str | None = option(
        None, "section of ~/.aws/credentials (default: AWS_PROFILE)", metavar="NAME"
    )
    anonymous: bool = option(Storage.anonymous, "no credentials, for public buckets")
    retries: int = option(Storage.retries, "times that a request is tried again")
    request_timeout: float = option(
        Storage.timeout, "seconds until a request fails, its retries included"
    )
    concurrency: int = option(Storage.concurrency, "requests of a process at the same time")

    def __post_init__(self) -> None:
        _ = self.storage  # to check it

    @cached_property
    def storage(self) -> Storage:
        """The settings as the library takes them."""
        try:
            return Storage(
                anonymous=self.anonymous,
                endpoint=self.endpoint,
                region=self.region,
                profile=self.profile,
                retries=self.retries,
                timeout=self.request_timeout,
                concurrency=self.concurrency,
            )
        except ValueError as error:  # which begins with the name of the setting
            raise ValueError(f"--{str(error).replace('timeout', 'request_timeout', 1)}") from error


@dataclass(frozen=True, kw_only=True)
class HduFlags:
    """Which image of a FITS file is read."""

    hdu: int | str | tuple[str, int] | None = option(
        None,
        "fits: HDU to read, its number, EXTNAME, or EXTNAME,EXTVER (default: the Index's, or the "
        "first that holds an image)",
        type=hdu_name,
        metavar="N|NAME",
    )


@dataclass(frozen=True, kw_only=True)
class DeviceFlags:
    """Device on which the graph runs."""

    device: Literal["auto", "gpu", "cpu"] = option(
        "auto",
        "auto: the GPUs, or the CPU if none is visible; gpu never falls back",
        choices=("auto", "gpu", "cpu"),
    )


@dataclass(frozen=True, kw_only=True)
class ProcessFlags:
    """Number of child processes."""

    num_processes: int = option(whole_cores(), "child processes", type=at_least(1), metavar="N")


@dataclass(frozen=True, kw_only=True)
class ClusterFlags:
    """Workers on other machines, and the files that are for this one of several processes."""

    executor: str | None = option(
        None,
        "do the work by these workers: dask://HOST:PORT, mpi, or a function that returns a "
        "concurrent.futures.Executor",
        metavar="NAME|MODULE:FUNCTION",
    )
    num_shards: int | None = option(
        None, "processes of a job array, which share the files", type=at_least(1), metavar="N"
    )
    shard_id: int | None = option(
        None, "number of this one of them, from 0 on", type=at_least(0), metavar="I"
    )

    def __post_init__(self) -> None:
        if self.shard_id is None and self.num_shards is None:
            return
        if self.shard_id is None or self.num_shards is None:
            raise ValueError("--shard_id and --num_shards need each other")
        if self.shard_id >= self.num_shards:
            raise ValueError(
                f"--shard_id must lie in [0, --num_shards={self.num_shards}), got "
                f"{self.shard_id}: a job array begins with 0"
            )

    def in_shard(self, name: str) -> bool:
        """Return whether a file, or part of one, is for this process."""
        if self.shard_id is None or self.num_shards is None:
            return True
        return shard_of(name, self.num_shards) == self.shard_id

    def own_file(self, path: str) -> str:
        """Return the name of this process's own file: ``a.shard3of10.json`` for ``a.json``."""
        if self.shard_id is None:
            return path
        stem, suffix = os.path.splitext(path)
        return f"{stem}.shard{self.shard_id}of{self.num_shards}{suffix}"


def shard_of(name: str, num_shards: int) -> int:
    """Return the shard of a file: it depends on no other, so that files may come meanwhile."""
    return zlib.crc32(os.fsencode(name)) % num_shards


@dataclass(frozen=True, kw_only=True)
class TableFlags:
    """Tables for the calibration of AIA."""

    pointing_table: str | None = option(
        None, "aia: take the pointing from this master table, CSV or ECSV", metavar="FILE"
    )
    correction_table: str | None = option(
        None, "aia: divide by the degradation in this response table", metavar="FILE"
    )


@dataclass(frozen=True, kw_only=True)
class PipelineFlags(TableFlags):
    """The pipeline, and the calibration of AIA and HMI in it."""

    pipeline: str = option("fits", "what the files are", choices=("fits", "jpeg", "aia"))
    preset: str | None = option(
        None, "aia: calibrate and stretch by this recipe, a name or a .toml file", metavar="NAME"
    )
    order: int | None = option(
        None, "aia: spline, 1 is bilinear (default: 3)", type=int, choices=(1, 3)
    )
    exposure: bool | None = option(
        None,
        "aia: divide by the exposure time (default: as the preset says, or not)",
        action=argparse.BooleanOptionalAction,
    )
    psf: tuple[int, ...] | None = option(
        None,
        "aia: deconvolve these channels, which all files must be of",
        type=int,
        nargs="+",
        metavar="ANGSTROM",
    )

    def __post_init__(self) -> None:
        for name in self.calibration_settings():
            if self.pipeline != "aia":
                raise ValueError(f"--{name} is for --pipeline=aia, got {self.pipeline}")

    def calibration_settings(self) -> dict[str, Any]:
        """Return the settings of a `dali_pipelines.Calibration` that are given."""
        names = ("preset", "order", "pointing_table", "correction_table", "exposure", "psf")
        settings = {name: getattr(self, name) for name in names}
        return {name: value for name, value in settings.items() if value is not None}

    @cached_property
    def calibration(self) -> Calibration | None:
        """Calibration of AIA and HMI frames; None for other pipelines."""
        if self.pipeline != "aia":
            return None
        from dali_pipelines import Calibration

        return Calibration.of(**self.calibration_settings())


def factory_of(pipeline: str) -> Callable[..., ReaderPipeline]:
    """Return the pipeline factory of a ``--pipeline``."""
    from dali_pipelines import aia_pipeline, fits_pipeline, jpeg_pipeline

    factories: dict[str, Callable[..., ReaderPipeline]] = {
        "fits": fits_pipeline,
        "jpeg": jpeg_pipeline,
        "aia": aia_pipeline,
    }
    return factories[pipeline]


def suffixes_of(pipeline: str) -> Sequence[str]:
    """Return the suffixes of the files that a ``--pipeline`` reads."""
    from readers.index.table import SUFFIXES

    return SUFFIXES["jpeg" if pipeline == "jpeg" else "fits"]
