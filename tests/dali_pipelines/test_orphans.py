"""A consumer is killed: its readers go, and with them the memory that they share.

A short form by default; the long form is ``ORPHANS=20 pytest
tests/dali_pipelines/test_orphans.py --log-cli-level=INFO``.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from jobs import Job
from private_shm import private_shm

pytestmark = pytest.mark.slow

logger = logging.getLogger(__name__)

TIMES = int(os.environ.get("ORPHANS", "1"))
LIMIT_S = 10.0
"""A second does on a machine that has nothing else to do."""

READERS, BATCH = 3, 2
"""More readers than samples, so that some have not read anything yet."""

START_METHODS = ("fork", "spawn", "forkserver")
"""One Loader each in a consumer; forked readers come first, as they inherit what is open."""

CONSUMER = """
def main():
    import sys, time
    from dali_pipelines import Index, Loader, npy_pipeline
    folder, moment, readers, batch_size, *start_methods = sys.argv[1:]
    index = Index.scan(folder)
    loaders = [Loader(npy_pipeline, index, batch_size=int(batch_size), devices=[None],
                      start_method=start_method, num_read_processes=int(readers))
               for start_method in start_methods]
    for loader in loaders:
        loader.start()
    if moment == "started":
        print("ready", flush=True)
        time.sleep(100)
    while True:
        for batches in zip(*loaders):
            time.sleep(0.01)
            print("ready", flush=True)

if __name__ == "__main__":
    main()
"""


@pytest.mark.timeout(20 * TIMES + 60)
@pytest.mark.parametrize(
    ("number", "moment"),
    [(signal.SIGKILL, "started"), (signal.SIGKILL, "mid-epoch"), (signal.SIGTERM, "mid-epoch")],
)
def test_nothing_outlives_its_consumer(
    npy_folder: Path, tmp_path: Path, number: signal.Signals, moment: str
) -> None:
    script = tmp_path / "consumer.py"
    script.write_text(CONSUMER)
    arguments = [str(npy_folder), moment, str(READERS), str(BATCH), *START_METHODS]
    command = [sys.executable, str(script), *arguments]
    taken_s = []
    for _ in range(TIMES):
        with Job(
            command, stdout=subprocess.PIPE, text=True, preexec_fn=private_shm("64m")
        ) as consumer:
            assert consumer.stdout is not None
            assert consumer.stdout.readline() == "ready\n"
            # Its mounts tell the processes that come from it; while they are open, no others can
            # get the same number.
            with Path(f"/proc/{consumer.pid}/ns/mnt").open("rb") as mounts:
                mark = os.fstat(mounts.fileno())
                try:
                    for _ in range(0 if moment == "started" else 2):
                        assert consumer.stdout.readline() == "ready\n"
                    taken_s.append(seconds_until_all_is_gone(consumer.pid, mark, number))
                finally:
                    for process in marked(mark):
                        process.kill()
    logger.info(
        "%s to a consumer %s, %d times: all gone after %.2f s at most",
        *(number.name, moment, TIMES, max(taken_s)),
    )


def seconds_until_all_is_gone(pid: int, mark: os.stat_result, number: int) -> float:
    shm = os.open(f"/proc/{pid}/root/dev/shm", os.O_RDONLY | os.O_DIRECTORY)
    try:
        assert len(marked(mark)) >= 1 + READERS * len(START_METHODS)
        os.kill(pid, number)
        began = time.monotonic()
        # Other memory has no name, and goes with the last process that has it open.
        while (left := marked(mark)) or os.listdir(shm):
            assert time.monotonic() - began < LIMIT_S, (left, os.listdir(shm))
            time.sleep(0.01)
        return time.monotonic() - began
    finally:
        os.close(shm)


def marked(mark: os.stat_result) -> list[psutil.Process]:
    """Return the processes that have these mounts, but for dead ones that wait for their parent."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.path.samestat(os.stat(f"/proc/{process.pid}/ns/mnt"), mark):
                found.append(process)
        except OSError:  # ended meanwhile, or somebody else's
            continue
    return found
