"""Go through an archive of FOLDER while readers die or stop, and runs end and resume.

Started by test_chaos.py. Prints what happened as JSON.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from dali_pipelines import Loader

KILLS = 6
"""At most, for each epoch: on a machine too busy to get anywhere in between, it must end, too."""


class Killer(threading.Thread):
    """Stop or kill a reader of a Loader now and then, so many times at most."""

    def __init__(self, loader: Loader, seed: int, most: int) -> None:
        super().__init__(daemon=True)
        self.loader = loader
        self.most = most
        self.random = random.Random(seed)
        self.kills = 0
        self.struck = threading.Event()
        self.over = threading.Event()

    def run(self) -> None:
        while self.kills < self.most and not self.over.wait(self.random.uniform(0.1, 1.5)):
            readers = [p for pipe in self.loader.pipelines for p in pipe.processes()]
            if readers:
                victim = self.random.choice(readers).pid
                assert victim is not None
                try:
                    os.kill(victim, signal.SIGSTOP)
                    self.over.wait(self.random.choice([0, 0.5]))
                    os.kill(victim, self.random.choice([signal.SIGKILL, signal.SIGCONT]))
                    self.kills += 1
                    self.struck.set()
                except ProcessLookupError:  # died by the last kill
                    continue


def main(folder: str, num_epochs: int) -> None:
    """Go through all epochs, whatever happens."""
    # Readers that are spawned import this file again.
    from dali_pipelines import Index, Loader, ReaderProcessError, npy_pipeline

    archive = Index.scan(folder)
    chance = random.Random(num_epochs)
    seen: Counter[tuple[int, int]] = Counter()
    found: Counter[str] = Counter()
    state, epoch = None, 0
    while epoch < num_epochs:
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
            found["resumes"] += 1
        kills = KILLS * num_epochs - found["kills"]
        steps, killer = chance.randint(5, 60), Killer(loader, chance.randrange(1000), kills)
        killer.start()
        try:
            with loader:
                while epoch < num_epochs and steps > 0:
                    for batches in loader:
                        seen.update(
                            (epoch, row) for batch in batches for row in batch["row"].tolist()
                        )
                        state = loader.state_dict()
                        steps -= 1
                        time.sleep(0.02)  # a training step
                        if found["kills"] == 0:  # on a slow machine a short run may end before
                            killer.struck.wait()
                        if steps <= 0:
                            break
                    epoch = loader.epoch
        except ReaderProcessError:
            found["errors"] += 1
            state = loader.state_dict()
            epoch = loader.epoch
        finally:
            killer.over.set()
            killer.join()
        found["kills"] += killer.kills
        found["restarts"] += loader.stats.restarts
        found["rejected"] = max(found["rejected"], len(loader.stats.rejected))
    time.sleep(1)
    # The fork server and multiprocessing's resource tracker stay until this process ends.
    found["processes"] = len(psutil.Process().children(recursive=True))
    json.dump({**found, "seen": [[*place, n] for place, n in seen.items()]}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
