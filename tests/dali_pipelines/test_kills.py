"""Reader processes are killed, busy and idle: each death is an error, soon, and nothing hangs.

A short form by default; the long form is ``KILLS=100 pytest tests/dali_pipelines/test_kills.py
--log-cli-level=INFO``.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import time
from collections import deque
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import MarkingReader

from dali_pipelines import Index, Loader, ReaderProcessError
from dali_pipelines.config import PipelineConfig
from dali_pipelines.decode import decode_array
from dali_pipelines.pipeline import ReaderPipeline, reader_pipeline

logger = logging.getLogger(__name__)

KILLS = int(os.environ.get("KILLS", "3"))
"""Of busy and again of idle readers; 6 go once through all of `PLACES`."""
LIMIT_S = 5.0
"""From the kill to the error, in a consumer that does nothing but wait for batches."""

PLACES = [
    (1, "spawn"),
    (2, "forkserver"),
    (4, "spawn"),
    (1, "forkserver"),
    (2, "spawn"),
    (4, "forkserver"),
]
"""Reader processes, and how they are started."""


def pipeline(marks: Path, pause_s: float, index: Index, **config: Any) -> ReaderPipeline:
    reader = MarkingReader(folder=str(marks), pause_s=pause_s)
    return reader_pipeline(index, reader, decode_array, PipelineConfig(**config))


@pytest.mark.timeout(10 * KILLS + 60)
@pytest.mark.parametrize("busy", [True, False], ids=["busy", "idle"])
def test_a_killed_reader_is_reported(npy_index: Index, tmp_path: Path, busy: bool) -> None:
    chance, taken_s = random.Random(KILLS), []
    for number, (processes, start_method) in enumerate(islice(cycle(PLACES), KILLS)):
        marks = tmp_path / str(number)
        marks.mkdir()
        factory = partial(pipeline, marks, 0.1 if busy else 0.0)
        with Loader(
            factory,
            npy_index,
            batch_size=4,
            num_read_processes=processes,
            devices=[None],
            start_method=start_method,
        ) as loader:
            endless = (batches for _ in iter(int, 1) for batches in loader)
            next(endless)
            victim = chance.choice(loader._pipelines[0].processes()).pid
            if busy:
                while not stopped_at_work(victim, marks):
                    next(endless)
            else:
                wait_for_rest(marks)
            os.kill(victim, signal.SIGKILL)
            began = time.monotonic()
            with pytest.raises(ReaderProcessError, match=f"{victim} has died: it was killed from"):
                deque(endless, maxlen=0)
            taken_s.append(time.monotonic() - began)
        # Whether it died at work, as it should have.
        assert (marks / str(victim)).exists() == busy
    logger.info(
        "%d %s readers killed: reported after %.2f s (median), %.2f s (longest)",
        *(KILLS, "busy" if busy else "idle", np.median(taken_s), max(taken_s)),
    )
    assert max(taken_s) < LIMIT_S


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
