"""What a reader process does with its tasks, here in a thread."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from jobs import run
from numpy.typing import NDArray

from readers.buffers import buffer
from readers.contract import SampleSpec
from readers.places.remote import TRAFFIC
from readers.worker.read_loop import MESSAGE, ReadLoop
from readers.worker.slab import Layout, Region, SharedMemory

TIMEOUT_S = 60
BATCH = 6


@dataclass
class Numbers:
    """A Source of arrays that hold the number of their sample; it waits for `gate`."""

    read_threads: int = 1
    requests: int = 0
    """That each sample makes."""
    gate: threading.Event = field(default_factory=threading.Event)
    begun: list[int] = field(default_factory=list)
    threads: set[int] = field(default_factory=set)

    specs = (
        SampleSpec(name="pixels", dtype="int64", ndim=2),
        SampleSpec(name="number", dtype="int64", shape=()),
    )

    def __call__(self, info: Any) -> tuple[NDArray[Any], ...]:
        number = info.idx_in_epoch
        for _ in range(self.requests):
            TRAFFIC.add(begun=1)
        self.begun.append(number)
        self.threads.add(threading.get_ident())
        assert self.gate.wait(TIMEOUT_S)
        pixels = buffer(8 * (number + 1)).view(np.int64).reshape(1, -1)
        pixels[...] = number
        return pixels, np.array(number)


class Consumer:
    """A consumer whose reader is a thread."""

    def __init__(self, source: Numbers) -> None:
        self.source, self.layout = source, Layout(source.specs, BATCH, 1)
        shared = SharedMemory(self.layout.nbytes)
        self.memory = np.frombuffer(shared.map(), np.uint8)
        self.end, theirs = socket.socketpair()
        self.end.settimeout(TIMEOUT_S)
        region = Region(shared, self.layout.region(0), 1 << 30)
        loop = ReadLoop(source, self.layout, region, theirs)
        self.thread = threading.Thread(target=self._serve, args=(loop, theirs))
        self.thread.start()

    def _serve(self, loop: ReadLoop, theirs: socket.socket) -> None:
        with closing(theirs):
            while task := loop.next_task():
                loop.read(*task)

    def ask(self, *tasks: tuple[int, int, int, int]) -> None:
        self.end.sendall(b"".join(MESSAGE.pack(*task) for task in tasks))

    def answers(self, count: int) -> set[tuple[int, ...]]:
        return {MESSAGE.unpack(self.end.recv(MESSAGE.size)) for _ in range(count)}

    def check(self, batch: int, slot: int) -> None:
        """Look for the arrays of a whole batch."""
        table = self.layout.table(self.memory, slot)
        (numbers,) = self.layout.over_batch(self.memory, slot)
        for index, (first, *shape) in enumerate(table.tolist()):
            number = batch * BATCH + index
            assert shape == [1, number + 1]
            assert (np.ndarray(shape, np.int64, self.memory, first) == number).all()
            assert numbers[index] == number


@pytest.fixture
def consumer() -> Iterator[Callable[..., Consumer]]:
    made: list[Consumer] = []

    def make(source: Numbers) -> Consumer:
        made.append(Consumer(source))
        return made[-1]

    yield make
    for one in made:
        one.source.gate.set()
        one.end.shutdown(socket.SHUT_RDWR)
        one.thread.join(TIMEOUT_S)
        assert not one.thread.is_alive()
        one.end.close()


def test_a_task_may_have_any_number_of_samples() -> None:
    assert MESSAGE.unpack(MESSAGE.pack(10**9, 140, 70_000, 10**6)) == (10**9, 140, 70_000, 10**6)


@pytest.mark.parametrize("read_threads", [1, 3])
def test_samples_lie_in_their_slot(consumer: Callable[..., Consumer], read_threads: int) -> None:
    source = Numbers(read_threads)
    source.gate.set()
    reads = consumer(source)
    tasks = [(batch, slot, 3, first) for batch, slot in ((0, 2), (1, 0)) for first in (0, 3)]
    reads.ask(*tasks)
    assert reads.answers(4) == set(tasks)
    reads.check(0, 2)
    reads.check(1, 0)
    reads.ask((7, 2, 6, 0))
    assert reads.answers(1) == {(7, 2, 6, 0)}
    reads.check(1, 0)
    reads.check(7, 2)


def test_memory_is_used_again_with_its_slot(consumer: Callable[..., Consumer]) -> None:
    source = Numbers()
    source.gate.set()
    reads = consumer(source)
    firsts: list[int] = []
    for batch in range(60):
        reads.ask((batch, batch % 2, BATCH, 0))
        assert reads.answers(1) == {(batch, batch % 2, BATCH, 0)}
        firsts += reads.layout.table(reads.memory, batch % 2)[:, 0].tolist()
    assert max(firsts) - min(firsts) < 10 << 20, "each batch takes new memory"


@dataclass
class Keeping(Numbers):
    """A Source that returns memory of its first sample again."""

    kept: list[NDArray[Any]] = field(default_factory=list)

    def __call__(self, info: Any) -> tuple[NDArray[Any], ...]:
        found = super().__call__(info)
        self.kept.append(found[0])
        return self.kept[0], found[1]


def test_a_source_that_keeps_memory_is_told() -> None:
    """Else both samples would show the same array, and the next batch would write into it."""
    source = Keeping()
    source.gate.set()
    layout = Layout(source.specs, BATCH, 1)
    shared = SharedMemory(layout.nbytes)
    region = Region(shared, layout.region(0), 1 << 30)
    ours, theirs = socket.socketpair()
    with closing(ours), closing(theirs):
        loop = ReadLoop(source, layout, region, theirs)
        loop.read(0, 0, 1, 0)
        with pytest.raises(RuntimeError, match=r"readers\.buffer.*each sample"):
            loop.read(0, 0, 1, 1)


def test_no_more_are_begun_than_threads_are_free(consumer: Callable[..., Consumer]) -> None:
    source = Numbers(read_threads=2, requests=1)
    reads = consumer(source)
    reads.ask((0, 0, 3, 0), (0, 0, 3, 3))
    reads.end.settimeout(0.2)
    with pytest.raises(TimeoutError):
        reads.answers(1)
    assert sorted(source.begun) == [0, 1]
    source.gate.set()
    reads.end.settimeout(TIMEOUT_S)
    assert reads.answers(2) == {(0, 0, 3, 0), (0, 0, 3, 3)}
    reads.check(0, 0)


@pytest.mark.parametrize("requests", [0, 1])
def test_threads_rest_while_nothing_is_requested(
    consumer: Callable[..., Consumer], requests: int
) -> None:
    """As where all is in the cache."""
    source = Numbers(read_threads=4, requests=requests)
    source.gate.set()
    reads = consumer(source)
    for batch in range(20):
        reads.ask((batch, 0, BATCH, 0))
        reads.answers(1)
    source.threads.clear()
    for batch in range(20, 30):
        reads.ask((batch, 0, BATCH, 0))
        reads.answers(1)
    assert (source.threads == {reads.thread.ident}) == (requests == 0)


FAILING = """
import socket, sys
import numpy as np
from readers.contract import SampleSpec
from readers.worker.read_loop import ReadLoop
from readers.worker.slab import Layout, Region, SharedMemory

class Failing:
    read_threads = int(sys.argv[1])
    def __call__(self, info):
        raise ZeroDivisionError("a bug of the Source")

layout = Layout((SampleSpec(name="a", dtype="uint8", ndim=1),), 4, 1)
shared = SharedMemory(layout.nbytes)
region = Region(shared, layout.region(0), 1 << 30)
own, theirs = socket.socketpair()
loop = ReadLoop(Failing(), layout, region, theirs)
loop.read(0, 0, 4, 0)
loop.next_task()
"""


@pytest.mark.parametrize("read_threads", [1, 3])
def test_a_bug_of_the_source_ends_the_process(read_threads: int) -> None:
    """Its consumer would wait for ever for a sample that is lost."""
    found = run([sys.executable, "-c", FAILING, str(read_threads)], timeout=TIMEOUT_S)
    assert found.returncode == 1
    assert "a bug of the Source" in found.stderr


STUCK = """
import os
import socket
import threading
from readers.contract import SampleSpec
from readers.worker.read_loop import MESSAGE, run
from readers.worker.slab import Layout, SharedMemory

class Leaving:
    read_threads = 1
    def __call__(self, info):
        threading.Thread(target=threading.Event().wait).start()
        raise SystemExit("the Reader leaves")

layout = Layout((SampleSpec(name="a", dtype="uint8", ndim=1),), 1, 1)
own, theirs = socket.socketpair()
own.send(MESSAGE.pack(0, 0, 1, 0))
run(os.getppid(), Leaving(), layout, SharedMemory(layout.nbytes), 0, theirs)
"""


def test_a_reader_that_fails_does_not_wait_for_threads_of_its_own() -> None:
    """Nor would its consumer notice that it has ended."""
    found = run([sys.executable, "-c", STUCK], timeout=TIMEOUT_S)
    assert found.returncode == 1
    assert "the Reader leaves" in found.stderr
