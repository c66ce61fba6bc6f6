"""Tasks in other interpreters: what kills them is found, and Ctrl-C ends them."""

from __future__ import annotations

import operator
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from deadly import die_of
from fakes import die_within_a_result

from dali_pipelines.parallel.interpreter import Crash, Interpreter, isolated
from dali_pipelines.parallel.task_map import isolated_map, process_map, thread_map
from dali_pipelines.parallel.worker import WorkerError

NAMES = ["a", "b", "deadly1", "c", "deadly2", "deadly3", "d", "e", "f", "g"]


def is_found(results: list[Any]) -> bool:
    return [None if isinstance(one, Crash) else one for one in results] == [
        None if name.startswith("deadly") else name for name in NAMES
    ]


@pytest.mark.parametrize("num_processes", [1, 2])
def test_a_task_that_kills_its_process_is_told_from_those_beside_it(num_processes: int) -> None:
    assert is_found(list(isolated_map(die_of, ((name,) for name in NAMES), num_processes)))


def test_also_those_of_a_worker() -> None:
    assert is_found(isolated(die_of, [(name,) for name in NAMES]))


@pytest.mark.parametrize("mapped", [isolated_map, process_map])
def test_what_is_raised_is_raised_here(mapped: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="three") as found:
        list(mapped(int, [("1",), ("three",)], 2))
    assert "Traceback" in "".join(found.value.__notes__)


@pytest.mark.timeout(100)
def test_a_process_that_dies_within_its_result() -> None:
    """What it had begun to send is not waited for."""
    with closing(Interpreter()) as interpreter:
        assert isinstance(interpreter(die_within_a_result), Crash)
        assert interpreter(die_of, "harmless") == "harmless"


def test_an_interpreter_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(WorkerError, match=r"cannot start /bin/false.*status 1"):
        list(isolated_map(die_of, [("a",)], 1))


@pytest.mark.parametrize("mapped", [process_map, isolated_map])
def test_an_interrupt_at_the_start_leaves_no_process(
    mapped: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    start, started = subprocess.Popen, []

    def start_and_interrupt(*args: Any, **keywords: Any) -> Any:
        started.append(start(*args, **keywords))
        if len(started) == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", start_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        list(mapped(die_of, [("a",)], 2))
    assert started
    assert all(process.returncode is not None for process in started)
    assert capfd.readouterr().err == ""


@pytest.mark.timeout(100)
@pytest.mark.parametrize("after", [1, 7, 100])
def test_an_interrupt_leaves_no_thread(after: int) -> None:
    others = {*threading.enumerate()}
    results = isolated_map(die_of, ((str(number),) for number in range(1000)), 2)
    assert [next(results) for _ in range(after)] == [str(number) for number in range(after)]
    threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        list(results)
    assert not [one for one in {*threading.enumerate()} - others if "Timer" not in str(one)]


@pytest.mark.timeout(100)
@pytest.mark.parametrize("mapped", [isolated_map, process_map])
def test_a_map_ends_without_its_endless_tasks(mapped: Callable[..., Any]) -> None:
    others = {*threading.enumerate()}
    results = mapped(time.sleep, ((seconds,) for seconds in (0, 3600, 3600)), 2)
    assert next(results) is None
    results.close()
    assert {*threading.enumerate()} == others


@pytest.mark.timeout(100)
def test_a_crash_does_not_wait_for_endless_tasks() -> None:
    tasks = [(time.sleep, 3600), (die_of, "deadly")]
    with pytest.raises(Crash):
        list(process_map(operator.call, tasks, 2))


def test_threads_end_with_their_map() -> None:
    others = {*threading.enumerate()}
    results = thread_map(str, range(1000), 3)
    assert [next(results), next(results)] == ["0", "1"]
    results.close()
    assert {*threading.enumerate()} == others


_DONE: list[int] = []
_MAY_GO_ON = threading.Event()


def note(number: int) -> int:
    """Note that a task is done; all but the first wait."""
    if number:
        assert _MAY_GO_ON.wait(100)
    _DONE.append(number)
    return number


class _Counting(ThreadPoolExecutor):
    """One worker; tells when so many tasks have been submitted."""

    def __init__(self, count: int) -> None:
        super().__init__(1)
        self.left, self.has_all = count, threading.Event()

    def submit(self, *args: Any, **keywords: Any) -> Future[Any]:
        future = super().submit(*args, **keywords)
        self.left -= 1
        if not self.left:
            self.has_all.set()
        return future


@pytest.mark.timeout(100)
@pytest.mark.parametrize("how", ["closed", "failed"])
def test_workers_do_not_go_on_with_tasks_that_nobody_waits_for(how: str) -> None:
    _DONE.clear()
    _MAY_GO_ON.clear()

    def use(results: Any) -> None:
        with closing(results):
            assert next(results) == 0
            assert executor.has_all.wait(100)
            if how == "failed":
                raise KeyboardInterrupt

    with _Counting(100) as executor:
        try:
            use(process_map(note, ((number,) for number in range(100)), 1, executor))
        except KeyboardInterrupt:
            assert how == "failed"
        _MAY_GO_ON.set()
    assert _DONE in ([0], [0, 1])
