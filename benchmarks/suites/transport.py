"""From the reader processes to the graph: this version against an older one, in turn.

With a GPU, also without memory that the GPU reads directly.
"""

from __future__ import annotations

import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np

from benchmarks.data import Settings, find_files
from benchmarks.report.tables import Sheet, number
from benchmarks.ways import one_loader
from benchmarks.ways.loaders import devices

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


class Version(NamedTuple):
    """What is timed."""

    name: str
    root: Path
    job: Mapping[str, Any] = MappingProxyType({})


def transport_suite(settings: Settings) -> Iterator[Sheet]:
    """Time the cases, each with all versions, round by round."""
    device = devices(1)[0]
    older = checkout(settings.against) if settings.against else nullcontext()
    with tempfile.TemporaryDirectory() as folder, older as old:
        versions = [Version("this version", ROOT)]
        if device is not None:
            versions.append(Version("another copy", ROOT, {"pinned": False}))
        if old is not None:
            versions.append(Version(settings.against, old))
        for case in CASES:
            paths, described = _files(case.kind, Path(folder), settings)
            job = {
                "paths": paths,
                "times": -(-100_000 // len(paths)),
                "mcu_rows": case.mcu_rows,
                "factory": f"{case.kind}_pipeline",
                "seconds": _QUICK_SECONDS if settings.quick else _SECONDS,
                "device": device,
                "pinned": True,
                "settings": {
                    "batch_size": case.batch_size,
                    "num_read_processes": settings.num_read_processes,
                    "num_threads": settings.num_threads,
                    **case.settings,
                },
            }
            for one in versions:  # compiles what is not compiled
                timed(one.root, {**job, **one.job, "seconds": 0.1})
            rounds = [
                [timed(one.root, {**job, **one.job}) for one in versions]
                for _ in range(settings.rounds)
            ]
            yield _sheet(case, [one.name for one in versions], rounds, described, settings)


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
    case: Case,
    names: Sequence[str],
    rounds: Sequence[Sequence[Figures]],
    described: str,
    settings: Settings,
) -> Sheet:
    others = [f"ratio to {name}" for name in names[1:]]
    lines: list[list[str]] = [[name] for name in (*names, *others)]
    for column in COLUMNS:
        of_each = list(zip(*([one[column] for one in each] for each in rounds), strict=True))
        ratios = [
            [one / other for one, other in zip(of_each[0], of_other, strict=True)]
            for of_other in of_each[1:]
        ]
        for line, values in zip(lines, (*of_each, *ratios), strict=True):
            line.append(number(statistics.median(values)))
    return Sheet(
        title=f"{case.title}, batches of {case.batch_size}",
        header=("version", *COLUMNS.values()),
        lines=tuple(tuple(line) for line in lines),
        data=described,
        note=f"Medians of {len(rounds)} rounds. Ratios are of this version to the other, "
        f"round by round: below 1 is better, except for samples/s. {settings.num_read_processes} "
        f"readers, {settings.num_threads} DALI threads, which decode on a CPU. The consumer is the "
        "main thread and DALI's threads. Memory that processes share counts once. *Another copy*, "
        "with a GPU: CUDA does not page-lock the memory of readers.",
    )
