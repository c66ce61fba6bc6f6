"""A reader process, however it starts, leaves signals alone and watches its consumer."""

from __future__ import annotations

import io
import multiprocessing
import os
import resource
import signal
from multiprocessing.context import set_spawning_popen
from multiprocessing.reduction import ForkingPickler
from types import SimpleNamespace
from typing import Any

import pytest

from readers.worker import setup


@pytest.fixture
def arrived(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found: list[Any] = []
    # Fakes, one of them private: the real ones would change the process of the tests.
    monkeypatch.setattr(setup, "_ignore_signals", lambda: found.append("left"))
    monkeypatch.setattr(setup, "die_with", found.append)
    monkeypatch.setattr(setup, "keep_freed_memory", lambda: found.append("kept"))
    monkeypatch.setattr("gc.freeze", lambda: found.append("frozen"))
    return found


def test_all_of_it(arrived: list[Any]) -> None:
    pickled = setup.dumps({"a": 1})
    assert arrived == []
    setup.set_up(7)
    assert arrived == ["left", 7, "kept", "frozen"]
    assert setup.loads(pickled) == {"a": 1}


def test_a_reader_has_the_credentials_of_its_consumer_and_no_older_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fork server, whose environment a reader gets, has that of its own start."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "new")
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", "file")
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    parcel = setup.dumps(None)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "old")
    monkeypatch.delenv("GOOGLE_SERVICE_ACCOUNT")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "removed since")
    monkeypatch.setenv("OTHER", "stays")
    setup.loads(parcel)
    expected = {"AWS_ACCESS_KEY_ID": "new", "GOOGLE_SERVICE_ACCOUNT": "file", "OTHER": "stays"}
    found = {name: os.environ.get(name) for name in (*expected, "AWS_SESSION_TOKEN")}
    assert found == {**expected, "AWS_SESSION_TOKEN": None}


def leave(parcel: setup.Parcel) -> None:
    raise SystemExit(len(parcel.open()) >> 20)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_parcel_needs_no_room_in_the_pipe(method: str) -> None:
    """A spawned process that dies at once would leave its parent waiting for room there."""
    parcel = setup.Parcel(bytes(5 << 20))
    context: Any = multiprocessing.get_context(method)
    process = context.Process(target=leave, args=(parcel,))
    process.start()
    process.join(60)
    assert process.exitcode == 5
    buffer = io.BytesIO()
    popen = SimpleNamespace(duplicate_for_child=lambda fd: fd, DupFd=int)
    set_spawning_popen(popen)  # type: ignore[arg-type]
    try:
        ForkingPickler(buffer).dump(parcel)
    finally:
        set_spawning_popen(None)
    assert len(buffer.getvalue()) < 1000


def test_a_forked_reader_runs_no_handler_of_its_consumer() -> None:
    """It would save a checkpoint of its own, say, where a scheduler signals all processes."""
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    before = [signal.signal(number, lambda *_: None) for number in signals]
    context = multiprocessing.get_context("fork")
    queue, consumer = context.SimpleQueue(), os.getpid()

    def report() -> None:
        setup.set_up(consumer)
        queue.put(list(map(signal.getsignal, signals)))

    try:
        reader = context.Process(target=report)
        reader.start()
        assert queue.get() == [signal.SIG_IGN, signal.SIG_DFL, signal.SIG_IGN]
        reader.join()
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


def test_a_reader_that_cannot_watch_its_consumer_does_not_start() -> None:
    """It would stay where its consumer is killed."""
    context, consumer = multiprocessing.get_context("fork"), os.getpid()

    def run() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
        setup.set_up(consumer)

    reader = context.Process(target=run)
    reader.start()
    reader.join()
    assert reader.exitcode == 1


@pytest.mark.timeout(60)
def test_a_reader_whose_consumer_has_exited_ends() -> None:
    context = multiprocessing.get_context("fork")
    consumer = context.Process(target=int)
    consumer.start()
    consumer.join()

    def run() -> None:
        setup.set_up(consumer.pid or 0)
        signal.pause()

    reader = context.Process(target=run)
    reader.start()
    reader.join()
    assert reader.exitcode == -signal.SIGKILL
