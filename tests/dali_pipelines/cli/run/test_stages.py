"""What is counted of threads, against Python's own clocks."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dali_pipelines.cli.run.stages import CpuTime


def spin(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def test_all_threads_of_this_process_are_counted() -> None:
    before, clock = CpuTime.of(), time.process_time()
    release = threading.Event()

    def spin_and_wait() -> None:
        spin(0.1)
        release.wait()

    thread = threading.Thread(target=spin_and_wait)
    thread.start()
    spin(0.1)
    while time.process_time() < clock + 0.2:  # the thread may still be at it
        time.sleep(0.01)
    found = CpuTime.of() - before
    release.set()
    thread.join()
    assert found.used == pytest.approx(time.process_time() - clock, abs=0.05)
    assert found.queued >= 0


def test_threads_are_known_by_their_names() -> None:
    assert CpuTime.of(name="no thread has this name") == CpuTime()
    assert CpuTime.of(os.getpid(), name="").used > 0


def test_times_of_another_process_are_those_of_the_kernel() -> None:
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        while CpuTime.of(busy.pid).used < 0.2:
            time.sleep(0.01)
        before = kernels_times(busy.pid)
        found = CpuTime.of(busy.pid)
        after = kernels_times(busy.pid)
    finally:
        busy.kill()
        busy.wait()
    assert before[0] <= found.used <= after[0]
    assert before[1] <= found.queued <= after[1]
    assert CpuTime.of(busy.pid) == CpuTime()


def kernels_times(pid: int) -> tuple[float, float]:
    """Return the seconds on a core and in its queue, of a process with a single thread."""
    used, queued, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    return int(used) / 1e9, int(queued) / 1e9
