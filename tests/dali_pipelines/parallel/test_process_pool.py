import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing import util
from typing import Any

import psutil
import pytest
from deadly import die_of
from fakes import die_within_a_result

from dali_pipelines.parallel.process_pool import Crash, ProcessPool
from dali_pipelines.parallel.task_map import isolated_map, process_map


def test_a_task_that_kills_its_process_is_told_from_those_beside_it() -> None:
    names = ["a", "b", "deadly1", "c", "deadly2", "deadly3", "d", "e", "f", "g"]
    for num_processes in (1, 2):
        found = list(isolated_map(die_of, ((name,) for name in names), num_processes))
        assert [None if isinstance(result, Crash) else result for result in found] == [
            None if name.startswith("deadly") else name for name in names
        ]


@pytest.mark.timeout(100)
def test_a_process_that_dies_within_its_result() -> None:
    """What it had begun to send is not waited for, then or when Python ends."""
    with ProcessPool(1) as pool:
        with pytest.raises(Crash):
            pool.submit(die_within_a_result).result()
        assert pool.submit(die_of, "harmless").result() == "harmless"


def test_no_thread_looks_after_a_killed_process() -> None:
    """Python woke it at its exit while it closed its pipe, and had a traceback."""
    before = {*threading.enumerate()}
    pool = ProcessPool(2)
    assert [*pool.map(die_of, ["a", "b", "c", "d"])] == ["a", "b", "c", "d"]
    pool.shutdown(wait=False)
    managers = [one for one in {*threading.enumerate()} - before if "Manager" in type(one).__name__]
    assert managers == []


@pytest.fixture
def other_thread() -> Iterator[None]:
    """Take the signals that the main thread holds back, as a library's threads do."""
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    yield
    done.set()
    thread.join()


def has_ended(process: psutil.Process) -> bool:
    """Return whether a child has ended; to wait for it is left to the pool, which would spin."""
    with suppress(psutil.NoSuchProcess):
        return process.status() == psutil.STATUS_ZOMBIE
    return True


@pytest.mark.usefixtures("other_thread")
@pytest.mark.parametrize("pool_map", [process_map, isolated_map])
def test_an_interrupt_at_the_start_leaves_no_process(
    pool_map: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    start = util.spawnv_passfds
    started = []

    def start_and_interrupt(path: Any, arguments: Any, descriptors: Any) -> int:
        pid = start(path, arguments, descriptors)
        if "spawn_main" in str(arguments):
            started.append(psutil.Process(pid))
        if len(started) == 1:  # a second one would be obeyed at once
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)  # the other thread has to run
        return pid

    monkeypatch.setattr(util, "spawnv_passfds", start_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        list(pool_map(die_of, [("a",)], 2))
    assert started
    deadline = time.monotonic() + 60
    while not all(map(has_ended, started)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert capfd.readouterr().err == ""


@pytest.mark.timeout(100)
@pytest.mark.parametrize("pool_map", [process_map, isolated_map])
def test_an_interrupt_leaves_no_lock_of_a_wait_taken(
    pool_map: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes between the taking of the lock and the ``with`` that gives it back."""
    enter, main = threading.Condition.__enter__, threading.main_thread()
    others = set(threading.enumerate())
    armed: list[bool] = []

    def enter_and_interrupt(condition: threading.Condition) -> bool:
        found = enter(condition)
        in_wait = sys._getframe(1).f_code.co_name == "wait" and threading.current_thread() is main
        if armed and in_wait:
            armed.clear()
            signal.raise_signal(signal.SIGINT)
        return found

    monkeypatch.setattr(threading.Condition, "__enter__", enter_and_interrupt)
    results = pool_map(die_of, ((str(number),) for number in range(1000)), 2)
    assert next(results) == "0"
    armed.append(True)
    with pytest.raises(KeyboardInterrupt):
        list(results)
    results.close()
    for thread in set(threading.enumerate()) - others:  # those of the pool, which set the results
        thread.join(20)
        assert not thread.is_alive()
