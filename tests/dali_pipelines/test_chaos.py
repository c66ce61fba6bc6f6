"""Readers are killed at random, runs end anywhere and go on elsewhere: each row once per epoch.

A short form by default; the long form is ``CHAOS_EPOCHS=50 CHAOS_ROWS=200 pytest
tests/dali_pipelines/test_chaos.py --log-cli-level=INFO``.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import psutil
import pytest

from dali_pipelines import Index, Loader, ReaderProcessError, npy_pipeline

logger = logging.getLogger(__name__)

EPOCHS = int(os.environ.get("CHAOS_EPOCHS", "2"))
ROWS = int(os.environ.get("CHAOS_ROWS", "40"))
BAD = {ROWS // 7: b"", ROWS // 2: b"\x93NUMPY\x01\x00 no header"}
"""Contents of files that cannot be read."""


@pytest.fixture
def archive(tmp_path: Path) -> Index:
    for row in range(ROWS):
        path = tmp_path / f"{row:04d}.npy"
        np.save(path, np.full((16, 16), row, np.float32))
        if row in BAD:
            path.write_bytes(BAD[row])
    return Index.from_paths(sorted(tmp_path.iterdir()))


class Killer(threading.Thread):
    """Kill a reader of a Loader now and then."""

    def __init__(self, loader: Loader, seed: int) -> None:
        super().__init__(daemon=True)
        self.loader = loader
        self.random = random.Random(seed)
        self.kills = 0
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(self.random.uniform(0.1, 1.5)):
            readers = [p for pipe in list(self.loader._pipelines) for p in pipe.processes()]
            if readers:
                try:
                    os.kill(self.random.choice(readers).pid, signal.SIGKILL)
                    self.kills += 1
                except ProcessLookupError:  # died by the last kill
                    continue


@pytest.mark.timeout(60 * EPOCHS + 200)
def test_each_row_once_whatever_happens(archive: Index) -> None:
    chance = random.Random(EPOCHS)
    seen: Counter[tuple[int, int]] = Counter()
    state, kills, resumes, restarts, errors = None, 0, 0, 0, 0
    epoch = 0
    while epoch < EPOCHS:
        shards = chance.randint(1, 3)
        loader = Loader(
            npy_pipeline,
            archive,
            batch_size=chance.randint(1, 4),
            num_read_processes=shards * chance.randint(1, 2),
            devices=[None] * shards,
            start_method=chance.choice(["forkserver", "spawn"]),
            bad_sample="skip",
            restart_readers=chance.choice([0, 3]),
            seed=1,
        )
        if state is not None:
            loader.load_state_dict(state)
            resumes += 1
        steps, killer = chance.randint(5, 60), Killer(loader, chance.randrange(1000))
        killer.start()
        try:
            with loader:
                while epoch < EPOCHS and steps > 0:
                    for batches in loader:
                        seen.update(
                            (epoch, row) for batch in batches for row in batch["row"].tolist()
                        )
                        state = loader.state_dict()
                        steps -= 1
                        time.sleep(0.02)  # a training step
                        if steps <= 0:
                            break
                    epoch = loader.epoch
        except ReaderProcessError:
            errors += 1
            state = loader.state_dict()
            epoch = loader.epoch
        finally:
            killer.over.set()
            killer.join()
        kills, restarts = kills + killer.kills, restarts + loader.stats.restarts
        assert set(loader.stats.rejected) <= set(BAD)
    logger.info(
        "%d epochs of %d rows: %d kills, %d restarts, %d errors, %d resumes",
        *(EPOCHS, ROWS, kills, restarts, errors, resumes),
    )
    assert kills
    assert seen == Counter(
        (epoch, row) for epoch in range(EPOCHS) for row in range(ROWS) if row not in BAD
    )
    time.sleep(1)
    # The fork server and multiprocessing's resource tracker stay until this process ends.
    assert len(psutil.Process().children(recursive=True)) <= 2
