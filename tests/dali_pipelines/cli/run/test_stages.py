"""What is counted of threads, against Python's own clocks."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

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


def test_two_processes_on_one_core_wait_for_it() -> None:
    core = min(os.sched_getaffinity(0))
    code = f"import os; os.sched_setaffinity(0, [{core}])\nwhile True: pass"
    busy = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    try:
        deadline = time.monotonic() + 120
        least = 0.0
        while least < 0.1 and time.monotonic() < deadline:
            time.sleep(0.1)
            found = [CpuTime.of(process.pid) for process in busy]
            least = min(min(one.used, one.queued) for one in found)
        assert least >= 0.1, (found, [process.poll() for process in busy])
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert CpuTime.of(busy[0].pid) == CpuTime()
