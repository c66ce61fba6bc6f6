"""A forked process is not held up by what threads did in the other one."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from readers.fork_safe_lock import ForkSafeLock
from readers.places.remote import TRAFFIC
from readers.quiet import without_warnings


def takes_it_all() -> int:
    """Fork a process that uses what has locks, and return its exit code."""
    if (child := os.fork()) == 0:
        signal.alarm(20)
        TRAFFIC.add(1)
        with without_warnings, LOCK:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


LOCK = ForkSafeLock()


@pytest.mark.parametrize("lock", [LOCK, TRAFFIC._lock, without_warnings._lock])
def test_a_lock_of_another_thread_is_free_in_a_forked_process(lock: ForkSafeLock) -> None:
    held, forked = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            forked.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        assert takes_it_all() == 0
    finally:
        forked.set()
        thread.join()


def test_it_excludes_other_threads_and_not_its_own() -> None:
    left, lock = list[str](), ForkSafeLock()

    def enter(name: str) -> None:
        with lock:
            left.append(name)

    with lock:
        thread = threading.Thread(target=enter, args=("other",))
        thread.start()
        enter("inner")
        left.append("outer")
    thread.join()
    assert left == ["inner", "outer", "other"]
