"""A Preprocessor, also in a process of its own: what its start takes, and whether memory grows.

    python -m benchmarks.ways.serving KIND FRAMEWORK FILE CALLS...

calls it with the content of FILE, and prints `Started` as JSON.
"""

# What is heavy is imported in the functions: they time it.
from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from dali_pipelines import ReaderPipeline
    from dali_pipelines.serving.preprocessor import Preprocessor

Kind = Literal["jpeg", "fits"]
Framework = Literal["torch", "numpy"]

SIDE, CROP, WINDOW = 256, 224, 512
"""Of photographs: the shorter side after resizing, and what is cut out of it; of frames."""
MEAN, STD = (123.7, 116.3, 103.5), (58.4, 57.1, 57.4)
SETTINGS: dict[Kind, dict[str, Any]] = {
    "jpeg": {"resize_shorter": SIDE, "crop": CROP, "mean": MEAN, "std": STD},
    "fits": {"crop": WINDOW},
}


def preprocessor(kind: Kind, framework: Framework, num_threads: int = 2) -> Preprocessor:
    """Make the Preprocessor that is timed."""
    from dali_pipelines import fits_pipeline, jpeg_pipeline
    from dali_pipelines.serving.preprocessor import Preprocessor

    factory = jpeg_pipeline if kind == "jpeg" else fits_pipeline
    return Preprocessor(factory, framework=framework, num_threads=num_threads, **SETTINGS[kind])


def graph(path: str, batch_size: int, num_threads: int) -> ReaderPipeline:
    """Make the same graph as a Loader has, which reads a photograph again and again."""
    from dali_pipelines import Index, jpeg_pipeline

    return jpeg_pipeline(
        Index.from_paths([path] * batch_size),
        **SETTINGS["jpeg"],
        mode="eval",
        batch_size=batch_size,
        num_threads=num_threads,
        num_read_processes=0,
        prefetch=1,
    )


@dataclass(frozen=True, kw_only=True)
class Started:
    """What was found in a process of its own."""

    import_s: float
    """Of this package, and of PyTorch if the tensors are its."""
    make_s: float
    """To make the Preprocessor, without its graphs."""
    first_s: float
    """The first call, which builds the graph."""
    second_s: float
    nbytes: list[int]
    """Resident memory after each of the numbers of calls."""
    seconds: list[float]
    """Time from the start of the first call to the ends of these."""


def started(kind: Kind, framework: Framework, path: str, calls: Sequence[int] = (2,)) -> Started:
    """Call a Preprocessor in a new process, at least twice.

    Parameters
    ----------
    kind, framework
        See `preprocessor`.
    path : str
        The file whose content it gets.
    calls : sequence of int
        Numbers of calls after which memory is looked at; they rise.
    """
    command = [sys.executable, "-m", "benchmarks.ways.serving", kind, framework, path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    output = subprocess.check_output([*command, *map(str, calls)], env=environment, text=True)
    return Started(**json.loads(output))


def main(kind: Kind, framework: Framework, path: str, calls: Sequence[int]) -> Started:
    """Start here."""
    content = Path(path).read_bytes()
    times = [time.perf_counter()]
    if framework == "torch":
        import torch  # noqa: F401

    import dali_pipelines.factories
    import dali_pipelines.serving.preprocessor  # noqa: F401

    times.append(time.perf_counter())
    pre = preprocessor(kind, framework)
    times.append(time.perf_counter())
    nbytes, seconds = [], []
    for number in range(1, max(calls) + 1):
        pre([content])
        if number <= 2:
            times.append(time.perf_counter())
        if number in calls:
            seconds.append(time.perf_counter() - times[2])
            nbytes.append(_resident())
    import_s, make_s, first_s, second_s = (after - before for before, after in pairwise(times))
    return Started(
        import_s=import_s,
        make_s=make_s,
        first_s=first_s,
        second_s=second_s,
        nbytes=nbytes,
        seconds=seconds,
    )


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    kind, framework, path, *calls = sys.argv[1:]
    found = main(kind, framework, path, [*map(int, calls)])  # type: ignore[arg-type]
    print(json.dumps(asdict(found)))
