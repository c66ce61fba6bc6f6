"""From the reader processes to the graph: this version against an older one, in turn."""

from __future__ import annotations

import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np

from benchmarks.data import Settings, find_files
from benchmarks.report.tables import Sheet, number
from benchmarks.ways import one_loader

ROOT = Path(__file__).parents[2]
_SECONDS, _QUICK_SECONDS = 4.0, 0.5
_TINY = 512
"""Files."""

Figures = dict[str, float]


class Case(NamedTuple):
    """What a Loader reads."""

    title: str
    kind: Literal["fits", "jpeg", "npy"]
    batch_size: int
    settings: Mapping[str, Any] = MappingProxyType({})
    mcu_rows: bool = False


_WINDOW: dict[str, Any] = {"crop": 512, "window": "random"}
_PHOTO: dict[str, Any] = {"crop": 224, "window": "random"}
CASES = (
    Case("whole frames", "fits", 8),
    Case("512x512 windows of frames", "fits", 16, _WINDOW),
    Case("512x512 windows of frames", "fits", 64, _WINDOW),
    Case("224x224 windows of photographs", "jpeg", 64, _PHOTO),
    Case("224x224 windows of photographs, MCU index", "jpeg", 64, _PHOTO, True),
    Case("8x8 arrays", "npy", 16),
    Case("8x8 arrays", "npy", 64),
    Case("8x8 arrays", "npy", 256),
)

COLUMNS = {
    "readers_ms": "readers, CPU ms per sample",
    "main_thread_us": "main thread, CPU us per batch",
    "consumer_ms": "consumer, CPU ms per sample",
    "samples_per_s": "samples/s",
    "first_batch_s": "first batch, s",
    "memory_mb": "memory, MB",
}


def transport_suite(settings: Settings) -> Iterator[Sheet]:
    """Time the cases, each with both versions, round by round."""
    with tempfile.TemporaryDirectory() as folder, checkout(settings.against) as old:
        for case in CASES:
            paths, described = _files(case.kind, Path(folder), settings)
            job = {
                "paths": paths,
                "times": -(-100_000 // len(paths)),
                "mcu_rows": case.mcu_rows,
                "factory": f"{case.kind}_pipeline",
                "seconds": _QUICK_SECONDS if settings.quick else _SECONDS,
                "settings": {
                    "batch_size": case.batch_size,
                    "num_read_processes": settings.num_read_processes,
                    "num_threads": settings.num_threads,
                    **case.settings,
                },
            }
            for root in (ROOT, old):  # compiles what is not compiled
                timed(root, {**job, "seconds": 0.1})
            rounds = [(timed(ROOT, job), timed(old, job)) for _ in range(settings.rounds)]
            yield _sheet(case, rounds, described, settings)


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """Check a commit of this repository out.

    Raises
    ------
    ValueError
        If it is not there.
    """
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", commit], capture_output=True, check=False
    )
    if archive.returncode:
        reason = archive.stderr.decode().strip()
        raise ValueError(
            f"--against={commit}: cannot check it out ({reason}): name a commit of this clone, "
            "after `git fetch --unshallow` if the clone lacks some"
        )
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(folder, filter="data")
        yield Path(folder)


def timed(root: Path, job: dict[str, Any]) -> Figures:
    """Run a job with the packages of a folder."""
    command = [sys.executable, "-P", one_loader.__file__, json.dumps(job)]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    found = subprocess.run(
        command, env=environment, cwd=root, stdout=subprocess.PIPE, text=True, check=True
    )
    figures: Figures = json.loads(found.stdout)
    return figures


def _files(
    kind: Literal["fits", "jpeg", "npy"], folder: Path, settings: Settings
) -> tuple[list[str], str]:
    if kind != "npy":
        files = find_files(settings, kind, 16 if kind == "fits" else 144)
        return files.paths, files.described
    paths = [folder / f"{number}.npy" for number in range(_TINY)]
    for value, path in enumerate(paths):
        np.save(path, np.full((8, 8), value, np.float32))
    return [str(path) for path in paths], f"{_TINY} files of 8x8 float32"


def _sheet(
    case: Case, rounds: list[tuple[Figures, Figures]], described: str, settings: Settings
) -> Sheet:
    names = "this version", settings.against, "ratio"
    of_each: list[list[str]] = [[name] for name in names]
    for name in COLUMNS:
        new, old = zip(*((one[name], other[name]) for one, other in rounds), strict=True)
        ratios = [one / other for one, other in zip(new, old, strict=True)]
        for line, values in zip(of_each, (new, old, ratios), strict=True):
            line.append(number(statistics.median(values)))
    return Sheet(
        title=f"{case.title}, batches of {case.batch_size}",
        header=("version", *COLUMNS.values()),
        lines=tuple(tuple(line) for line in of_each),
        data=described,
        note=f"Medians of {len(rounds)} rounds. Ratios are of this version to {settings.against}, "
        f"round by round: below 1 is better, except for samples/s. {settings.num_read_processes} "
        f"readers, {settings.num_threads} DALI threads, which decode. The consumer is the main "
        "thread and DALI's threads. Memory that processes share counts once.",
    )
