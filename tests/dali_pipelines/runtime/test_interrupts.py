"""Ctrl-C, at any moment: the loop ends soon, nothing hangs, and the Loader can go on.

A short form by default; the long form is ``INTERRUPTS=200 pytest
tests/dali_pipelines/runtime/test_interrupts.py``.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
import pytest
from fakes import LateReader, MarkingReader

from dali_pipelines import Index, Loader, npy_pipeline
from dali_pipelines.config import PipelineConfig
from dali_pipelines.frameworks.choose import FrameworkName
from dali_pipelines.frameworks.contract import Batch
from dali_pipelines.frameworks.outputs import Outputs
from dali_pipelines.graph.decode import decode_array
from dali_pipelines.graph.pipeline import ReaderPipeline, reader_pipeline
from dali_pipelines.runtime import interrupts
from dali_pipelines.runtime.interrupts import NoInterruptLost
from dali_pipelines.settings import StartMethod

pytestmark = pytest.mark.slow

INTERRUPTS = int(os.environ.get("INTERRUPTS", "6"))
LIMIT_S = 30.0
"""From Ctrl-C to the end of the loop, on a machine that has other things to do."""


@pytest.fixture(autouse=True)
def default_handler() -> Iterator[None]:
    """As in a script; test runners have their own."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted(seconds: float, action: Callable[[], object]) -> None:
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        action()
    finally:
        timer.join()


def ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


def dropped() -> None:
    with suppress(KeyboardInterrupt):
        ctrl_c()


def guard(*actions: Callable[[], object]) -> None:
    with NoInterruptLost():
        for action in actions:
            action()


def fail() -> None:
    raise RuntimeError("the readers were killed")


def test_an_interrupt_that_is_dropped_is_raised_at_the_end() -> None:
    done: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        guard(dropped, partial(done.append, 1))
    assert done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    guard()  # raises nothing


def test_one_that_is_not_dropped_comes_at_once() -> None:
    done: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        guard(ctrl_c, partial(done.append, 1))
    assert not done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_finalizer_is_not_interrupted() -> None:
    done: list[int] = []
    reader = LateReader()

    def close() -> None:
        ctrl_c()
        done.append(1)

    with pytest.raises(KeyboardInterrupt):
        guard(weakref.finalize(reader, close))
    assert done


def test_it_takes_the_place_of_an_error_that_it_led_to() -> None:
    with pytest.raises(KeyboardInterrupt):
        guard(dropped, fail)


def test_the_innermost_raises() -> None:
    done: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        guard(partial(guard, dropped), partial(done.append, 1))
    assert not done


def test_a_handler_of_the_user_is_left_in_place() -> None:
    seen = []
    signal.signal(signal.SIGINT, lambda number, _: seen.append(number))
    guard(ctrl_c, lambda: seen.append(0))
    assert seen == [signal.SIGINT, 0]


def test_in_a_thread_no_handler_is_set() -> None:
    seen = []
    look = partial(signal.getsignal, signal.SIGINT)
    thread = threading.Thread(target=guard, args=(lambda: seen.append(look()),))
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]


def press_at(place: int, action: Callable[[], object]) -> bool:
    """Press Ctrl-C at one of the places where the code that guards it can be interrupted.

    Returns
    -------
    bool
        Whether there is such a place.
    """
    passed = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal passed
        if event in ("call", "line") and frame.f_code.co_filename == interrupts.__file__:
            passed += 1
            if passed == place + 1:
                handler = signal.getsignal(signal.SIGINT)
                assert callable(handler)
                handler(signal.SIGINT, frame)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return passed > place


@pytest.mark.parametrize("first", [(), (dropped,)], ids=["one", "two"])
def test_wherever_it_comes_the_next_one_is_not_lost(
    first: tuple[Callable[[], object], ...],
) -> None:
    for place in itertools.count():
        if not press_at(place, partial(guard, *first)):
            break
        guard()  # raises nothing
        with pytest.raises(KeyboardInterrupt):
            guard(dropped)
    assert place > 5


def stuck_pipeline(marks: Path, index: Index, **config: Any) -> ReaderPipeline:
    reader = MarkingReader(folder=str(marks), pause_s=600)
    return reader_pipeline(index, reader, decode_array, PipelineConfig(**config))


def test_a_reader_that_is_stuck_does_not_hold_up_the_end(npy_index: Index, tmp_path: Path) -> None:
    factory = partial(stuck_pipeline, tmp_path)
    with Loader(factory, npy_index, batch_size=4, num_read_processes=2, devices=[None]) as loader:
        loader.start()
        readers = [psutil.Process(process.pid) for process in loader.pipelines[0].processes()]
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            interrupted(0.5, partial(next, iter(loader)))
        assert time.monotonic() - began < LIMIT_S
        assert not any(reader.is_running() for reader in readers)
        assert loader.step == 0


def late_pipeline(index: Index, **config: Any) -> ReaderPipeline:
    return reader_pipeline(index, LateReader(), decode_array, PipelineConfig(**config))


def test_a_reader_that_does_not_arrive_does_not_hold_up_the_end(npy_index: Index) -> None:
    loader = Loader(
        late_pipeline, npy_index, batch_size=4, devices=[None], start_method="forkserver"
    )
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        interrupted(2, loader.start)
    assert time.monotonic() - began < LIMIT_S
    assert not loader.pipelines


@pytest.mark.parametrize("start_method", ["fork", "forkserver", "spawn"])
def test_readers_leave_it_to_the_consumer(npy_index: Index, start_method: StartMethod) -> None:
    """A terminal sends it to all processes of a script."""
    with Loader(
        npy_pipeline, npy_index, batch_size=4, devices=[None], start_method=start_method
    ) as loader:
        batches = [next(iter(loader))]
        for process in loader.pipelines[0].processes():
            assert process.pid is not None
            os.kill(process.pid, signal.SIGINT)
        batches += loader
        assert [len(batch["row"]) for [batch] in batches] == [4, 4, 4, 4, 4, 3]
        assert loader.stats.restarts == 0


def test_what_c_code_drops_is_not_lost(npy_index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    take = Outputs.__next__

    def drop_and_take(outputs: Outputs) -> Batch:
        with suppress(KeyboardInterrupt):
            ctrl_c()
        return take(outputs)

    monkeypatch.setattr(Outputs, "__next__", drop_and_take)
    with Loader(npy_pipeline, npy_index, batch_size=4, framework="numpy") as loader:
        with pytest.raises(KeyboardInterrupt):
            next(iter(loader))
        monkeypatch.undo()
        assert [len(batch["row"]) for [batch] in loader] == [4, 4, 4, 4, 4, 3]


def loop(loader: Loader, seconds: float) -> None:
    """Loop over it; each step has its own rows, also after an interrupt in another loop."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        first = 4 * loader.step
        for batches in loader:
            rows = [row for batch in batches for row in batch["row"].tolist()]
            assert rows == list(range(23))[first : first + 4]
            first = 4 * loader.step


@pytest.mark.timeout(20 * INTERRUPTS + 60)
@pytest.mark.parametrize("framework", ["torch", "numpy"])
def test_any_moment_will_do(npy_index: Index, framework: FrameworkName) -> None:
    """Small images: most of the time is spent in DALI's queues."""
    chance = random.Random(INTERRUPTS)
    settings: dict[str, Any] = {"num_read_processes": 4, "devices": [None, None], "shuffle": False}
    with Loader(npy_pipeline, npy_index, batch_size=2, framework=framework, **settings) as loader:
        for _ in range(INTERRUPTS):
            loader.start()
            after = chance.uniform(0, 0.5)
            with pytest.raises(KeyboardInterrupt):
                interrupted(after, partial(loop, loader, after + LIMIT_S))
        loader.load_state_dict({**loader.state_dict(), "epoch": 0, "position": 0})
        rows = [row for batches in loader for batch in batches for row in batch["row"].tolist()]
        assert sorted(rows) == list(range(len(npy_index)))
