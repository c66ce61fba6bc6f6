"""What is said of reader processes that have died, and how the others are ended."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import psutil
import pytest

from dali_pipelines.runtime.processes import reader_processes
from dali_pipelines.runtime.processes.reader_processes import ReaderProcesses

pytestmark = pytest.mark.slow

LIMIT_S = 60


class Watched:
    """Readers that do nothing until they are let go, or what they are given to do."""

    def __init__(self, *actions: Any, method: str = "fork") -> None:
        self.channel = Channel()
        context: Any = multiprocessing.get_context(method)
        self.processes: list[BaseProcess] = [
            context.Process(target=action, args=args) for action, *args in actions
        ]
        for process in self.processes:
            process.start()
        self.readers = ReaderProcesses(self.processes, self.channel.close)

    def wait(self) -> None:
        """Wait until the first one has ended."""
        assert wait([self.processes[0].sentinel], LIMIT_S)


class Channel:
    """A connection that readers see closed when it is."""

    def __init__(self) -> None:
        self.theirs, self.own = multiprocessing.get_context("fork").Pipe(duplex=False)

    def close(self) -> None:
        self.own.close()


def die(number: int) -> None:
    faulthandler.disable()  # pytest's
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)  # a script that a test ran may have left its own
    signal.raise_signal(number)


def leave_a_child(end: Connection) -> None:
    if (child := os.fork()) == 0:
        time.sleep(600)
        os._exit(0)
    end.send(child)
    signal.raise_signal(signal.SIGKILL)


def sleep_on() -> None:
    time.sleep(600)


def wait_for_end(channel: Channel) -> None:
    channel.own.close()  # a copy
    with suppress(EOFError):
        channel.theirs.recv()


@pytest.fixture
def leftovers() -> Iterator[list[BaseProcess]]:
    processes: list[BaseProcess] = []
    yield processes
    for process in processes:
        process.kill()
        process.join()


@pytest.mark.parametrize(
    ("number", "cause"),
    [
        (signal.SIGKILL, "killed from outside"),
        (signal.SIGBUS, "no memory for its samples"),
        (signal.SIGSEGV, "it crashed"),
        (signal.SIGTERM, "SIGTERM"),
        (signal.SIGHUP, "it was ended by SIGHUP"),
        (signal.SIGRTMIN + 1, f"its exit code is -{signal.SIGRTMIN + 1}"),
    ],
)
def test_the_cause_of_a_death(number: int, cause: str) -> None:
    watched = Watched([die, number], [sleep_on])
    watched.wait()
    assert cause in str(watched.readers.death())
    assert str(watched.processes[0].pid) in str(watched.readers.death())
    watched.readers.close()
    assert cause in str(watched.readers.death())
    assert not watched.processes[1].is_alive()


@pytest.mark.parametrize("code", [0, 3])
def test_a_reader_that_left(code: int) -> None:
    watched = Watched([os._exit, code], [sleep_on])
    watched.wait()
    expected = "it ended early" if code == 0 else "its exit code is 3"
    assert expected in str(watched.readers.death())
    watched.readers.close()


def test_a_death_is_noticed_where_exit_codes_are_lost(caplog: pytest.LogCaptureFixture) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        watched = Watched([die, signal.SIGKILL], [sleep_on])
        watched.wait()
        expected = f"reader process {watched.processes[0].pid} has died: its exit code is unknown"
        assert expected in str(watched.readers.death())
        watched.readers.close()
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert not caplog.text


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_death_is_noticed_while_a_child_of_the_reader_lives(method: str) -> None:
    """As one that a Reader forked, which has the reader's end of all pipes, too."""
    ours, theirs = multiprocessing.get_context("fork").Pipe(duplex=False)
    watched = Watched([leave_a_child, theirs], method=method)
    assert ours.poll(LIMIT_S), "the reader has not forked"
    child = ours.recv()
    try:
        assert "killed from outside" in str(watched.readers.death())
        watched.readers.close()
        assert watched.processes[0] not in multiprocessing.active_children()
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_death_is_noticed_where_other_code_waited_for_it() -> None:
    watched = Watched([die, signal.SIGKILL], [sleep_on])
    assert watched.processes[0].pid is not None
    os.waitpid(watched.processes[0].pid, 0)
    assert "its exit code is unknown" in str(watched.readers.death())
    watched.readers.close()


def test_the_one_that_died_is_named_not_those_that_were_let_go() -> None:
    watched = Watched([die, signal.SIGKILL], [sleep_on])
    watched.readers.close()
    assert f"{watched.processes[0].pid} has died: it was killed" in str(watched.readers.death())


def test_readers_that_are_ended_have_not_died() -> None:
    watched = Watched([sleep_on], [sleep_on])
    watched.readers.close()
    assert watched.readers.death() is None
    assert [process.exitcode for process in watched.processes] == [-signal.SIGKILL] * 2


def test_a_reader_that_waits_is_let_go_gently() -> None:
    channel = Channel()
    context = multiprocessing.get_context("fork")
    process = context.Process(target=wait_for_end, args=(channel,))
    process.start()
    ReaderProcesses([process], channel.close).close()
    assert process.exitcode == 0


def test_a_stopped_reader_is_ended() -> None:
    """As after Ctrl-Z, or in a debugger: SIGTERM does not reach it."""
    watched = Watched([sleep_on])
    assert watched.processes[0].pid is not None
    os.kill(watched.processes[0].pid, signal.SIGSTOP)
    watched.readers.close()
    assert not watched.processes[0].is_alive()


def test_one_that_cannot_be_killed_holds_nobody_up(
    leftovers: list[BaseProcess], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As where a read hangs in the kernel: neither the end, nor that of the interpreter."""
    watched = Watched([sleep_on])
    leftovers += watched.processes
    with monkeypatch.context() as patched:
        patched.setattr(watched.processes[0], "kill", lambda: None)
        patched.setattr(reader_processes, "_KILLED_S", 1.0)
        watched.readers.close()
    assert watched.processes[0].is_alive()
    assert f"reader process {watched.processes[0].pid} " in caplog.text
    assert watched.processes[0] not in multiprocessing.active_children()


def test_they_are_ended_when_nobody_has_them_any_more() -> None:
    watched = Watched([sleep_on])
    [process] = watched.processes
    del watched.readers
    assert not process.is_alive()


def test_a_forked_copy_does_not_touch_them() -> None:
    watched = Watched([sleep_on])
    child = os.fork()
    if child == 0:
        try:
            watched.readers.close()
            del watched.readers
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert not select.select([watched.processes[0].sentinel], [], [], 0)[0]
    assert psutil.Process(watched.processes[0].pid).is_running()
    watched.readers.close()
    assert not watched.processes[0].is_alive()
