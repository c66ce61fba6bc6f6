"""Reader processes are killed, at any moment: each death is an error, soon, and nothing hangs.

A short form by default; the long form, 500 kills in all, is ``KILLS=125 pytest
tests/dali_pipelines/test_kills.py --log-cli-level=INFO``.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import cycle, islice
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from fakes import DyingReader, MarkingReader

from dali_pipelines import Index, Loader, ReaderProcessError
from dali_pipelines.config import PipelineConfig
from dali_pipelines.graph.decode import decode_array
from dali_pipelines.graph.pipeline import ReaderPipeline, reader_pipeline
from dali_pipelines.settings import StartMethod

pytestmark = pytest.mark.slow

logger = logging.getLogger(__name__)

KILLS = int(os.environ.get("KILLS", "2"))
"""At each of the moments; 8 go once through all of `PLACES`."""
LIMIT_S = 30.0
"""From the kill to the error, on a machine that has other things to do. What hangs takes longer."""

PLACES: list[tuple[int, StartMethod, str]] = [
    (1, "forkserver", "main"),
    (2, "fork", "other"),
    (2, "forkserver", "other"),
    (4, "fork", "main"),
    (4, "forkserver", "main"),
    (2, "spawn", "other"),
    (1, "fork", "main"),
    (4, "spawn", "main"),
]
"""Reader processes, how they are started, and the thread that waits for batches."""
START_S = {"fork": 0.1, "forkserver": 0.1, "spawn": 2.0}
"""About what a start takes: within it a reader is killed that starts."""


def pipeline(marks: Path, pause_s: float, index: Index, **config: Any) -> ReaderPipeline:
    reader = MarkingReader(folder=str(marks), pause_s=pause_s)
    return reader_pipeline(index, reader, decode_array, PipelineConfig(**config))


def killed_at_work(
    loader: Loader, method: StartMethod, marks: Path, chance: random.Random
) -> float:
    batches = endless(loader)
    next(batches)
    victim = chance.choice(loader.pipelines[0].processes()).pid
    assert victim is not None
    while not stopped_at_work(victim, marks):
        next(batches)
    os.kill(victim, signal.SIGKILL)
    taken_s = seconds_to_error(batches, f"{victim} has died: it was killed from")
    assert (marks / str(victim)).exists()  # whether it died at work, as it should have
    return taken_s


def killed_idle(loader: Loader, method: StartMethod, marks: Path, chance: random.Random) -> float:
    batches = endless(loader)
    next(batches)
    wait_for_rest(marks)
    victim = chance.choice(loader.pipelines[0].processes()).pid
    assert victim is not None
    os.kill(victim, signal.SIGKILL)
    taken_s = seconds_to_error(batches, f"{victim} has died: it was killed from")
    assert not (marks / str(victim)).exists()
    return taken_s


def killed_at_start(
    loader: Loader, method: StartMethod, marks: Path, chance: random.Random
) -> float:
    before = psutil.Process().children()
    found: list[float] = []

    def kill() -> None:
        while not readers_that_start(method, before):
            time.sleep(0.001)
        time.sleep(chance.uniform(0, START_S[method]))
        victim = chance.choice(readers_that_start(method, before) or [0])
        if victim:  # 0 where the start has failed by itself
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
        found.append(time.monotonic())
        # The victim may have been another process that had just been forked: then all readers run.
        while not has_failed.wait(1):
            readers = [each.pid or 0 for one in loader.pipelines for each in one.processes()]
            if readers and all(map(runs, readers)):
                os.kill(chance.choice(readers), signal.SIGKILL)
                found[:] = [time.monotonic()]

    has_failed = threading.Event()
    killer = threading.Thread(target=kill)
    killer.start()
    try:
        seconds_to_error(endless(loader), "has died")
        ended = time.monotonic()
    finally:
        has_failed.set()
        killer.join()
    return ended - found[0]


def killed_while_closing(
    loader: Loader, method: StartMethod, marks: Path, chance: random.Random
) -> float:
    next(endless(loader))
    processes = loader.pipelines[0].processes()
    victim = chance.choice(processes)
    timer = threading.Timer(chance.uniform(0, 0.02), victim.kill)
    timer.start()
    began = time.monotonic()
    loader.close()
    taken_s = time.monotonic() - began
    timer.join()
    assert not any(process.is_alive() for process in processes)
    return taken_s


@pytest.mark.timeout(20 * KILLS + 60)
@pytest.mark.parametrize(
    ("kill", "pause_s", "first"),
    [
        (killed_at_start, 0.0, 0),
        (killed_at_work, 0.1, 2),
        (killed_idle, 0.0, 4),
        (killed_while_closing, 0.02, 0),
    ],
)
def test_a_killed_reader_is_reported(
    npy_index: Index,
    tmp_path: Path,
    kill: Callable[[Loader, StartMethod, Path, random.Random], float],
    pause_s: float,
    first: int,
) -> None:
    chance, taken_s = random.Random(KILLS), []
    for number, place in enumerate(islice(cycle(PLACES), first, first + KILLS)):
        processes, start_method, thread = place
        marks = tmp_path / str(number)
        marks.mkdir()
        with (
            ThreadPoolExecutor(1) as other,
            Loader(
                partial(pipeline, marks, pause_s),
                npy_index,
                batch_size=4,
                num_read_processes=processes,
                devices=[None],
                start_method=start_method,
            ) as loader,
        ):
            kill_now = partial(kill, loader, start_method, marks, chance)
            taken_s.append(kill_now() if thread == "main" else other.submit(kill_now).result())
    logger.info(
        "%s, %d times: reported after %.2f s (median), %.2f s (longest)",
        *(kill.__name__, KILLS, np.median(taken_s), max(taken_s)),
    )
    assert max(taken_s) < LIMIT_S


def endless(loader: Loader) -> Iterator[object]:
    return (batches for _ in iter(int, 1) for batches in loader)


def seconds_to_error(batches: Iterator[object], message: str) -> float:
    began = time.monotonic()
    with pytest.raises(ReaderProcessError, match=message):
        deque(batches, maxlen=0)
    return time.monotonic() - began


def readers_that_start(method: str, before: list[psutil.Process]) -> list[int]:
    """Find the reader processes of this one, which do not tell it their pid yet."""
    if method == "forkserver":
        server = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
        return [each.pid for each in psutil.Process(server).children()] if server else []
    new = [each for each in psutil.Process().children() if each not in before]
    return [each.pid for each in new if "resource_tracker" not in command(each)]


def runs(pid: int) -> bool:
    with suppress(psutil.Error):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def command(process: psutil.Process) -> str:
    with suppress(psutil.Error):  # ended meanwhile
        return " ".join(process.cmdline())
    return ""


def stopped_at_work(pid: int, marks: Path) -> bool:
    """Stop a reader, if it is at work."""
    os.kill(pid, signal.SIGSTOP)
    if (marks / str(pid)).exists():
        return True
    os.kill(pid, signal.SIGCONT)
    return False


def wait_for_rest(marks: Path) -> None:
    """Wait until all readers have had nothing to do for a while."""
    seen = -1
    while (now := marks.stat().st_mtime_ns) != seen:  # of the last mark made or taken away
        seen = now
        time.sleep(0.2)


def dying_pipeline(marker: Path, index: Index, **config: Any) -> ReaderPipeline:
    reader = DyingReader(marker=str(marker))
    return reader_pipeline(index, reader, decode_array, PipelineConfig(**config))


@pytest.mark.parametrize("restarts", [0, 1])
def test_a_start_that_failed_is_tried_again(
    npy_index: Index, tmp_path: Path, restarts: int
) -> None:
    factory = partial(dying_pipeline, tmp_path / "marker")
    with Loader(
        factory,
        npy_index,
        batch_size=4,
        devices=[None],
        start_method="forkserver",
        restart_readers=restarts,
    ) as loader:
        if not restarts:
            with pytest.raises(ReaderProcessError, match=r"process \d+ has died"):
                loader.start()
        rows = Counter(row for [batch] in loader for row in batch["row"].tolist())
        assert rows == dict.fromkeys(range(len(npy_index)), 1)
        assert loader.stats.restarts == restarts
