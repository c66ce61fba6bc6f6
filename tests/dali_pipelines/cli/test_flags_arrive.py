"""Each flag of run, show and stats that is a setting of a pipeline, or of the Loader, arrives."""

from __future__ import annotations

import shlex
import shutil
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from dali_pipelines import Boxes, Index, Mask, Noise, Stretch
from dali_pipelines.cli.main import main

FLAGS = {
    command: names.split()
    for command, names in tomllib.loads(Path(__file__).with_name("flags.toml").read_text()).items()
}
COMMANDS = {
    "run": (["--data=rows.parquet", "--device=cpu"], "dali_pipelines", "Loader"),
    "show": (["rows.parquet", "--output=a.png"], "dali_pipelines", "Loader"),
    "stats": (["rows.parquet"], "dali_pipelines.pixel_statistics", "pixel_statistics"),
}
"""How each is called, and the function that gets its settings."""
OTHERS = (
    *("data", "pipeline", "num_gpus", "device", "max_batches"),
    *("report", "audit", "rejected", "state", "resume"),
    *("correction_table", "pointing_table"),
)
"""Flags of what a run reads and writes, and of files that must be there."""


class Case:
    """A flag as it is written, and the keyword that the Loader gets."""

    def __init__(self, text: str, name: str, value: Any, pipeline: str = "fits") -> None:
        self.words, self.name, self.value, self.pipeline = text, name, value, pipeline

    def __repr__(self) -> str:
        return self.words


def storage(name: str, value: Any) -> Callable[[dict[str, Any]], bool]:
    return lambda settings: getattr(settings["storage"], name) == value


def calibration(name: str, value: Any) -> Callable[[dict[str, Any]], bool]:
    return lambda settings: getattr(settings["calibration"], name) == value


CASES = {
    "anonymous": Case("--anonymous", "", storage("anonymous", True)),
    "augment": Case("--augment 'Noise(1)'", "augment", (Noise(1),)),
    "bad_sample": Case("--bad_sample=skip", "bad_sample", "skip"),
    "batch_size": Case("--batch_size=7", "batch_size", 7),
    "block_rows": Case("--shuffle --block_rows=3", "block_rows", 3),
    "boxes": Case("--boxes=b", "targets", {"boxes": Boxes("b")}),
    "cache": Case("--cache=there --cache_bytes=1000", "cache", "there"),
    "cache_bytes": Case("--cache=there --cache_bytes=1000", "cache_bytes", 1000),
    "center": Case("--center=sun", "", calibration("center", "sun"), "aia"),
    "channels": Case("--channels=1", "channels", 1, "jpeg"),
    "columns": Case("--columns b c", "columns", ("b", "c")),
    "concurrency": Case("--concurrency=3", "", storage("concurrency", 3)),
    "crop": Case("--crop 5 6", "crop", (5, 6)),
    "decode": Case("--decode=graph", "decode", "graph", "video"),
    "dtype": Case("--dtype=float16", "dtype", "float16"),
    "duration": Case("--duration=1.5", "duration", 1.5, "audio"),
    "endpoint": Case("--endpoint=http://a.b", "", storage("endpoint", "http://a.b")),
    "epoch_steps": Case("--epoch_steps=5", "epoch_steps", 5),
    "epochs": Case("--epochs=3", "num_epochs", 3),
    "exposure": Case("--exposure", "", calibration("exposure", True), "aia"),
    "features": Case("--features=mfcc", "features", "mfcc", "audio"),
    "flip": Case("--flip=hv", "flip", "hv"),
    "flip_probability": Case("--flip=h --flip_probability=0.2", "flip_probability", 0.2),
    "frames": Case("--frames=3", "frames", 3, "video"),
    "grid": Case("--grid 2 3 --crop=9 --window=random", "grid", (2, 3)),
    "hdu": Case("--hdu=SCI,2", "hdu", ("SCI", 2)),
    "hdus": Case("--hdus image=SCI dq=3", "hdus", {"image": "SCI", "dq": 3}),
    "interpolation": Case("--resize=8 --interpolation=bicubic", "interpolation", "bicubic"),
    "labels": Case("--boxes=b --labels=c", "targets", {"boxes": Boxes("b", labels="c")}),
    "mask": Case("--mask=b", "targets", {"mask": Mask("b", dtype="int32")}),
    "max_bad": Case("--bad_sample=skip --max_bad=0.5", "max_bad", 0.5),
    "mean": Case("--mean 2 3", "mean", (2.0, 3.0)),
    "missing": Case("--crop=9 --outside=fill --missing=-3", "missing", -3.0),
    "mode": Case("--mode=eval", "mode", "eval"),
    "num_read_processes": Case("--num_read_processes=3", "num_read_processes", 3),
    "num_threads": Case("--num_threads=9", "num_threads", 9),
    "order": Case("--order=1", "", calibration("order", 1), "aia"),
    "outputs": Case("--outputs matrix", "outputs", ("matrix",)),
    "outside": Case("--crop=9 --outside=fill", "outside", "fill"),
    "planes": Case("--planes 2 0", "planes", (2, 0)),
    "prefetch": Case("--prefetch=5", "prefetch", 5),
    "preset": Case("--preset=era5", "stretch", "era5", "chunked"),
    "profile": Case("--profile=mine", "", storage("profile", "mine")),
    "psf": Case("--psf 171", "", calibration("psf", (171,)), "aia"),
    "ragged": Case("--ragged=list", "ragged", "list"),
    "random_area": Case("--random_area 0.1 0.9 --resize=8", "random_area", (0.1, 0.9)),
    "random_aspect_ratio": Case(
        "--random_area 0.1 1 --resize=8 --random_aspect_ratio 0.5 2",
        "random_aspect_ratio",
        (0.5, 2),
    ),
    "rate": Case("--rate=8000", "rate", 8000, "audio"),
    "read_threads": Case("--read_threads=3", "read_threads", 3),
    "read_timeout": Case("--read_timeout=9", "read_timeout", 9.0),
    "region": Case("--region=eu-west-1", "", storage("region", "eu-west-1")),
    "request_timeout": Case("--request_timeout=7", "", storage("timeout", 7.0)),
    "resize": Case("--resize 7 8", "resize", (7, 8)),
    "resize_shorter": Case("--crop=8 --resize_shorter=9", "resize_shorter", 9),
    "restart_readers": Case("--restart_readers=4", "restart_readers", 4),
    "retries": Case("--retries=8", "", storage("retries", 8)),
    "rotate": Case("--crop=8 --rotate=30", "rotate", 30.0),
    "seed": Case("--seed=9", "seed", 9),
    "short": Case("--short=pad", "short", "pad", "video"),
    "shuffle": Case("--no-shuffle", "shuffle", False),
    "size": Case("--size 60 70", "", calibration("size", (60, 70)), "aia"),
    "speeds": Case("--speeds 0.9 1.1", "speeds", (0.9, 1.1), "audio"),
    "start_method": Case("--start_method=spawn", "start_method", "spawn"),
    "std": Case("--std 2 3", "std", (2.0, 3.0)),
    "stretch": Case(
        "--stretch 'sqrt(clip=[0, 9])'", "stretch", (Stretch(kind="sqrt", clip=(0, 9)),)
    ),
    "stride": Case("--stride=2", "stride", 2, "video"),
    "tail": Case("--tail=drop", "tail", "drop"),
    "transform": Case("--transform=shutil:copyfileobj", "transform", shutil.copyfileobj),
    "variables": Case("--variables u v", "variables", ("u", "v"), "chunked"),
    "weights": Case("--weights=w", "weights", "w"),
    "window": Case("--crop=8 --window=random", "window", "random"),
    "zoom": Case("--crop=8 --zoom 0.5 2", "zoom", (0.5, 2.0)),
}


def test_all_flags_are_here() -> None:
    assert {*CASES} == {*FLAGS["run"]} - {*OTHERS}


OF_SHEET = {("show", "columns"), ("show", "size")}
"""Of the sheet that show makes, not of its images."""


def arriving() -> Iterator[tuple[str, str]]:
    """Yield each command with each flag that shall arrive."""
    for command in COMMANDS:
        for flag in {*CASES} & {*FLAGS[command]}:
            needs_arrays = command != "run" and CASES[flag].pipeline == "chunked"
            if (command, flag) not in OF_SHEET and not needs_arrays:
                yield command, flag


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("flags") / "rows.parquet"
    Index.from_paths(["/nowhere/a"]).save(path)
    return path


def taken(command: str, rows: Path, pipeline: str, flags: str) -> dict[str, Any]:
    """Return the settings that arrive with some flags."""
    given: list[dict[str, Any]] = []
    words, module, taker = COMMANDS[command]

    def take(*_: Any, **settings: Any) -> None:
        given.append(settings)
        raise ValueError("seen")

    with pytest.MonkeyPatch.context() as patch, suppress(ValueError):  # not all commands show it
        patch.setattr(import_module(module), taker, take)
        patch.chdir(rows.parent)
        main([command, *words, f"--pipeline={pipeline}", *shlex.split(flags)])
    (settings,) = given
    return settings


_WITHOUT: dict[tuple[str, str], dict[str, Any]] = {}
"""Settings without flags, by command and pipeline."""


@pytest.mark.parametrize(("command", "flag"), sorted(arriving()))
def test_a_flag_arrives(command: str, flag: str, rows: Path) -> None:
    case = CASES[flag]
    with_it = taken(command, rows, case.pipeline, case.words)
    key = command, case.pipeline
    without = _WITHOUT.get(key) or _WITHOUT.setdefault(key, taken(command, rows, key[1], ""))
    if case.name:
        assert with_it[case.name] == case.value
        assert without.get(case.name) != case.value
    else:
        assert case.value(with_it)
        assert not case.value(without)
