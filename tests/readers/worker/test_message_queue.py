"""Messages of a queue, and their fate when processes die or the queue is closed."""

from __future__ import annotations

import multiprocessing
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

import pytest

from readers.worker.message_queue import MessageQueue


class Number:
    """As DALI's ShmMessageDesc, which this package does not import."""

    def __init__(self, value: int = 0) -> None:
        self.value = value

    def get_size(self) -> int:
        return struct.calcsize("iiQQQ")

    def pack_into(self, buffer: bytearray, offset: int) -> None:
        struct.pack_into("iiQQQ", buffer, offset, 0, 0, 0, 0, self.value)

    def unpack_from(self, buffer: bytes, offset: int) -> Number:
        self.value = struct.unpack_from("iiQQQ", buffer, offset)[-1]
        return self


def values(messages: list[Any] | None) -> list[int] | None:
    return None if messages is None else [message.value for message in messages]


def echo(tasks: MessageQueue, results: MessageQueue) -> None:
    while (messages := tasks.get()) is not None:
        if results.put(messages) is None:
            break


def forked(target: Callable[..., None], *args: object) -> BaseProcess:
    process = multiprocessing.get_context("fork").Process(target=target, args=args)
    process.start()
    return process


@pytest.fixture
def queues() -> Iterator[tuple[Any, Any]]:
    made = MessageQueue(Number), MessageQueue(Number)
    yield made
    for queue in made:
        queue.close()


def test_each_message_goes_to_one_reader(queues: tuple[MessageQueue, MessageQueue]) -> None:
    tasks, results = queues
    readers = [forked(echo, tasks, results) for _ in range(4)]
    found: list[int] = []
    for start in range(0, 600, 60):
        assert tasks.put([Number(value) for value in range(start, start + 60)]) == 60
    while len(found) < 600:
        found += values(results.get(None)) or []
    assert sorted(found) == list(range(600))
    tasks.close()
    for reader in readers:
        reader.join(30)
        assert reader.exitcode == 0


def test_one_reader_keeps_the_order(queues: tuple[MessageQueue, MessageQueue]) -> None:
    tasks, results = queues
    reader = forked(echo, tasks, results)
    tasks.put([Number(value) for value in range(50)])
    found: list[int] = []
    while len(found) < 50:
        found += values(results.get(7)) or []
    assert found == list(range(50))
    tasks.close()
    reader.join(30)


def test_a_killed_reader_holds_up_no_other(queues: tuple[MessageQueue, MessageQueue]) -> None:
    tasks, results = queues
    readers = [forked(echo, tasks, results) for _ in range(3)]
    for number, reader in enumerate(readers[:2]):
        tasks.put([Number(number)] * 20)
        assert reader.pid is not None
        os.kill(reader.pid, signal.SIGKILL)
        reader.join()
    tasks.put([Number(9)])
    while 9 not in (values(results.get(None)) or [9]):
        pass
    tasks.close()
    readers[2].join(30)
    assert readers[2].exitcode == 0


def when_there_is(go: Path, act: Callable[[], None]) -> BaseProcess:
    """Return a process that acts as soon as there is a file."""

    def wait() -> None:
        while not go.exists():
            time.sleep(0.01)
        act()

    return forked(wait)


def test_messages_left_in_a_closed_queue_are_discarded(
    queues: tuple[MessageQueue, MessageQueue], tmp_path: Path
) -> None:
    tasks, results = queues
    reader = when_there_is(tmp_path / "go", lambda: echo(tasks, results))
    tasks.put([Number(1)])
    tasks.close()
    (tmp_path / "go").touch()
    reader.join(30)
    assert reader.exitcode == 0
    results.wait = lambda end, _: bool(select.select([end], [], [], 0)[0])
    assert results.get() is None


def test_after_the_end_readers_receive_and_send_nothing(
    queues: tuple[MessageQueue, MessageQueue], tmp_path: Path
) -> None:
    queue, _ = queues

    def get_and_put() -> None:
        assert queue.get() is None
        assert queue.put([Number()]) is None

    reader = when_there_is(tmp_path / "go", get_and_put)
    queue.close()
    (tmp_path / "go").touch()
    reader.join(30)
    assert reader.exitcode == 0


def test_closing_reaches_readers_though_another_process_has_a_copy(
    queues: tuple[MessageQueue, MessageQueue],
) -> None:
    """As the workers of a DataLoader have, which were forked meanwhile."""
    tasks, results = queues
    reader, bystander = forked(echo, tasks, results), forked(time.sleep, 600)
    tasks.close()
    reader.join(30)
    assert reader.exitcode == 0
    bystander.kill()
    bystander.join()


def test_a_forked_copy_cannot_close_it(queues: tuple[MessageQueue, MessageQueue]) -> None:
    tasks, results = queues
    reader, other = forked(echo, tasks, results), forked(tasks.close)
    other.join()
    tasks.put([Number(5)])
    assert values(results.get()) == [5]
    tasks.close()
    reader.join(30)


def test_more_than_fits_waits_for_the_readers(queues: tuple[MessageQueue, MessageQueue]) -> None:
    tasks, results = queues

    def count() -> None:
        for _ in range(3000):
            assert tasks.get() is not None
        results.put([Number(3000)])

    reader = forked(count)
    for value in range(3000):
        assert tasks.put([Number(value)]) == 1
    assert values(results.get()) == [3000]
    reader.join(30)


def test_a_closed_queue_gives_and_takes_nothing() -> None:
    queue = MessageQueue(Number)
    queue.close()
    queue.close()
    assert queue.get() is None
    assert queue.put([Number()]) is None


def serve(queue: MessageQueue, sent: Any) -> None:
    queue.open_shm(sent.detach())
    echo(queue, queue)


class Sent:
    """A file descriptor on its way to a process."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __reduce__(self) -> tuple[object, ...]:
        return _same, (DupFd(self._fd),)


def _same(sent: object) -> object:
    return sent


def test_a_spawned_reader_opens_the_descriptor_that_it_was_sent(
    queues: tuple[MessageQueue, MessageQueue],
) -> None:
    queue = queues[0]
    context = multiprocessing.get_context("spawn")
    reader = context.Process(target=serve, args=(queue, Sent(queue.shm.handle)))
    reader.start()
    queue.close_handle()
    queue.put([Number(4)])
    assert values(queue.get()) == [4]
    queue.close()
    reader.join(60)
    assert reader.exitcode == 0


def test_many_messages_pass_through_the_smallest_buffer(
    queues: tuple[MessageQueue, MessageQueue],
) -> None:
    tasks, _ = queues
    wait = tasks.wait

    def wait_for_little(end: socket.socket, event: int) -> bool:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # makes it 4.5 KiB, the least
        return wait(end, event)

    tasks.wait = wait_for_little

    def take_all() -> None:
        found: list[int] = []
        while found[-1:] != [299] and (messages := tasks.get(7)) is not None:
            found += values(messages) or []
        assert found == list(range(300))

    reader = forked(take_all)
    assert tasks.put([Number(value) for value in range(300)]) == 300
    reader.join(30)
    assert reader.exitcode == 0


@pytest.mark.parametrize("act", [MessageQueue.get, lambda queue: queue.put([Number(1)])])
def test_it_may_be_closed_by_another_thread(
    queues: tuple[MessageQueue, MessageQueue], act: Callable[[MessageQueue], object]
) -> None:
    """Just when what was waited for has come; no other file may get its descriptor by then."""
    tasks, _ = queues
    ends: list[tuple[socket.socket, int]] = []

    def wait(end: socket.socket, event: int) -> bool:
        ends.append((end, end.fileno()))
        tasks.close()
        return True

    tasks.wait = wait
    assert act(tasks) is None
    [(end, descriptor)] = ends
    with open(os.devnull) as other:
        assert other.fileno() != descriptor
    assert end.fileno() == descriptor
