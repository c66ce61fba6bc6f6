"""Whatever way a reader process arrives: it leaves Ctrl-C alone, and watches its consumer."""

from __future__ import annotations

import multiprocessing
import os
from typing import Any

import pytest

from readers import arrival


@pytest.fixture
def arrived(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found: list[Any] = []
    monkeypatch.setattr(arrival, "_leave_interrupts", lambda: found.append("left"))
    monkeypatch.setattr(arrival, "die_with", found.append)
    monkeypatch.setattr(arrival, "keep_freed_memory", lambda: found.append("kept"))
    return found


def test_by_the_pickler(arrived: list[Any]) -> None:
    pickled = arrival.dumps({"a": 1})
    assert arrived == []
    assert arrival.loads(pickled) == {"a": 1}
    assert arrived == ["left", os.getpid(), "kept"]


def test_by_fork(arrived: list[Any]) -> None:
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    with arrival.forks_arrive():
        inside = context.Process(target=lambda: queue.put(list(arrived)))
        inside.start()
        assert queue.get() == ["left", os.getpid(), "kept"]
        inside.join()
    outside = context.Process(target=lambda: queue.put(list(arrived)))
    outside.start()
    assert queue.get() == []
    outside.join()
