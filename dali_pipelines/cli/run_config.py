"""Settings of ``dali-pipelines run`` and ``doctor``, and the Loader that they describe."""

# Imports at the top are light: functions import heavy modules.
from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from dali_pipelines.cli.errors import count
from dali_pipelines.cli.flag_types import location, number_of_bytes, number_or_share
from dali_pipelines.cli.options import flags_of, option
from dali_pipelines.cli.paths import index_at
from dali_pipelines.cli.pipeline_flags import (
    ImagesFlags,
    calibration_settings,
    factory_of,
    image_settings,
    suffixes_of,
)
from dali_pipelines.cli.shared_flags import DeviceFlags
from dali_pipelines.runtime.cgroup import whole_cores
from dali_pipelines.runtime.ranks import Ranks
from dali_pipelines.settings import DType

if TYPE_CHECKING:
    from dali_pipelines import Index, Loader


_COUNTS = ("num_read_processes", "num_gpus", "num_threads", "epochs", "max_batches")


@dataclass(frozen=True, kw_only=True)
class RunConfig(DeviceFlags, ImagesFlags):
    """Flags of `run`; tests/dali_pipelines/cli/run/test_run.py fixes their names."""

    COMMON: ClassVar[str] = (
        "data pipeline num_read_processes batch_size num_gpus crop window flip mean std epochs "
        "bad_sample config"
    )
    GROUPS: ClassVar[Mapping[str, str]] = {
        "data": "data pipeline hdu planes hdus variables bad_sample max_bad",
        "readers": "num_read_processes read_timeout restart_readers start_method",
        "objects of S3, Google Cloud Storage and web servers": "endpoint region profile anonymous "
        "retries request_timeout concurrency cache cache_bytes read_threads",
        "graph": "batch_size num_gpus device num_threads prefetch",
        "image": "crop window grid outside missing flip flip_probability rotate zoom random_area "
        "random_aspect_ratio resize_shorter resize interpolation stretch augment transform mean "
        "std dtype ragged outputs",
        "recordings": "duration short rate channels speeds features",
        "videos": "frames stride decode",
        "targets": "columns mask boxes labels",
        "frames of AIA and HMI": "preset size order center pointing_table correction_table "
        "exposure psf",
        "order and resume": "mode shuffle block_rows weights seed epochs epoch_steps max_batches "
        "tail state resume",
        "output": "report audit rejected",
    }

    data: str | Sequence[str] | None = option(
        None,
        "folder, glob, URL, .csv or Index file, or several folders, globs and files (default: the "
        "sample set)",
        type=location,
        nargs="+",
        metavar="DATA",
    )
    num_read_processes: int = option(
        4,
        "reader processes, divided among the shards; under torchrun, srun or mpirun those of each "
        "rank",
    )
    batch_size: int = option(16, "samples per shard and step")
    num_gpus: int = option(1, "shards, one on each GPU; without a GPU they are all on the CPU")
    num_threads: int | None = option(
        None, "DALI threads per shard (default: cores / shards)", type=int, metavar="N"
    )
    shuffle: bool | str | None = option(
        None,
        "a new order in each epoch (default: yes, but not in mode eval); blocks keep neighbouring "
        "rows close together, buckets put them into one step, see --block_rows",
        nargs="?",
        const=True,
        choices=("blocks", "buckets"),
    )
    epochs: int = option(1, "times to go through the data")
    max_batches: int | None = option(None, "stop after this many steps", type=int, metavar="N")
    bad_sample: str = option("raise", "what to do with unreadable files", choices=("raise", "skip"))
    max_bad: float | None = option(
        None,
        "maximum of unreadable files to skip: 10 is a number, 0.01 a share, 1.0 all",
        type=number_or_share,
        metavar="NUMBER",
    )
    rejected: str | None = option(None, "write a list of the skipped files", metavar="FILE.csv")
    restart_readers: int = option(0, "times to continue after a reader process has died")
    settings: dict[str, Any] = image_settings(
        "columns mean std dtype weights tail block_rows epoch_steps read_timeout start_method "
        "prefetch cache cache_bytes read_threads",
        columns={"metavar": "COLUMN"},
        dtype={"type": str, "choices": get_args(DType)},
        weights={"metavar": "COLUMN"},
        cache={"metavar": "FOLDER"},
        cache_bytes={"type": number_of_bytes, "metavar": "BYTES"},
    )
    calibration_settings: dict[str, Any] = calibration_settings("size")
    report: str | None = option(None, "write settings, figures and versions", metavar="FILE.json")
    audit: str | None = option(None, "write a line for each delivered sample", metavar="FILE.csv")
    state: str | None = option(
        None, "write the position where the run stopped, also after SIGTERM", metavar="FILE.json"
    )
    resume: str | None = option(None, "continue from this position", metavar="FILE.json")

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.data, list) and len(self.data) == 1:
            object.__setattr__(self, "data", self.data[0])
        for name in _COUNTS:
            value = getattr(self, name)
            if isinstance(value, int) and value < 1:
                raise ValueError(f"--{name} must be at least 1, got {value}")
        if self.pipeline == "chunked" and self.data is None:
            raise ValueError("--pipeline=chunked needs --data: a Zarr store, or an Index file")
        if self.pipeline in ("audio", "video") and self.data is None:
            raise ValueError(f"--pipeline={self.pipeline} has no sample set: set --data")
        if self.pipeline_config.mode == "eval" and self.resume is not None:
            raise ValueError("--resume is for --mode=train: eval begins each epoch again")

    def pipeline_settings(self) -> dict[str, Any]:
        """Return the keywords for the pipeline factory."""
        settings = super().pipeline_settings()
        shuffle = self.shuffle
        is_shuffled = settings.get("mode") != "eval" if shuffle is None else shuffle is True
        if is_shuffled and "block_rows" in settings:
            shuffle = "blocks"
        return {
            **settings,
            "batch_size": self.batch_size,
            "shuffle": shuffle,
            "num_threads": self.num_threads or max(1, whole_cores() // self.num_gpus),
            "num_epochs": self.epochs,
        }


def new_loader(config: RunConfig, index: Index, devices: Sequence[int | None]) -> Loader:
    """Make the Loader that the flags describe."""
    from dali_pipelines import Loader

    return Loader(
        factory_of(config.pipeline),
        index,
        num_read_processes=config.num_read_processes,
        devices=devices,
        bad_sample=config.bad_sample,  # type: ignore[arg-type]
        max_bad=config.max_bad,
        restart_readers=config.restart_readers,
        **config.factory_settings(),
    )


def open_index(config: RunConfig) -> Index:
    """Scan the data of --data, or of the sample set."""
    data = config.data
    if data is None:
        from dali_pipelines.cli.samples import sets

        make = sets.jpeg_samples if config.pipeline == "jpeg" else sets.fits_samples
        data = str(make())
    return index_at(data, suffixes_of(config.pipeline), config.storage)


def choose_devices(config: RunConfig, ranks: Ranks) -> list[int | None]:
    """Return a CUDA device for each shard of this process; or None for the CPU, and say so."""
    import torch  # noqa: F401 - its build decides which GPUs are of use

    devices = ranks.choose_devices(config.device, config.num_gpus)
    if devices[0] is None and config.device == "auto" and ranks.rank == 0:
        shards = config.num_gpus * ranks.world_size
        print(f"No GPU is visible: {count(shards, 'shard')} on the CPU.", file=sys.stderr)
    return devices


def of_run(config_class: type[Any], settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings of a file for `run` that the command of `config_class` has, too.

    They get their names in that command. Settings that `run` does not know stay, to be rejected.
    """
    own, theirs = ({flag.name for flag in flags_of(each)} for each in (config_class, RunConfig))
    renamed = {"files" if name == "data" else name: one for name, one in settings.items()}
    return {name: one for name, one in renamed.items() if name in own or name not in theirs}
