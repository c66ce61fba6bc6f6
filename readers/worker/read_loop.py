"""What a reader process does: take tasks, read their samples into the slab, answer.

A task is a part of the batch of a slot; all readers take theirs from one socket. With several
threads, samples of a task, and of the next ones, are read at the same time. But where nothing has
to be waited for, as all is in the cache, threads would only take turns: samples are then read one
after the other.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from readers.buffers import buffers_from
from readers.places.remote import TRAFFIC
from readers.places.threads import DaemonThreads
from readers.worker import setup
from readers.worker.slab import Layout, NoMemory, Region, SharedMemory, Writer

MESSAGE = struct.Struct("=iiii")
"""Batch, slot, number of samples, and first of them, of a task, or of the answer that it is done.
A reader that is ready to take tasks first answers with batch `READY`."""
READY = -1
NO_MEMORY = 112
"""Exit code of a reader that found no memory for a sample."""

_CALM = 64
"""Samples without a request, beside those that are being read, before the threads rest."""


class Source(Protocol):
    """The part of `readers.source.Source` that is used here."""

    read_threads: int

    def __call__(self, info: Any) -> tuple[NDArray[Any], ...]:
        """Read the sample of DALI's SampleInfo."""
        ...


@dataclass(slots=True)
class Info:
    """The part of DALI's SampleInfo that a Source uses."""

    idx_in_epoch: int


def run(
    consumer: int,
    sent: setup.Parcel | Source,
    layout: Layout,
    shared: SharedMemory,
    number: int,
    end: socket.socket,
) -> None:
    """Be a reader of process `consumer` until it closes its end of the socket, or is gone."""
    setup.set_up(consumer)
    source = setup.loads(sent) if isinstance(sent, setup.Parcel) else sent
    memory = np.frombuffer(shared.map(), np.uint8)
    region = Region(shared, memory, layout.region(number), layout.region_bytes)
    loop = ReadLoop(source, layout, region, end)
    loop.answer(READY, 0, 0, 0)
    try:
        while task := loop.next_task():
            loop.read(*task)
    except NoMemory:
        traceback.print_exc()
        os._exit(NO_MEMORY)


class ReadLoop:
    """Reads the samples of tasks with a Source, at most `read_threads` of them at the same time."""

    def __init__(self, source: Source, layout: Layout, region: Region, end: socket.socket) -> None:
        self._source, self._layout, self._region, self._end = source, layout, region, end
        self._most = source.read_threads
        self._threads = DaemonThreads(self._most)
        self._free = threading.Semaphore(self._most)
        self._requests = self._calm = 0
        self._views = dict[int, tuple[NDArray[np.int64], list[NDArray[Any]]]]()  # by slot
        self._own = threading.local()

    def next_task(self) -> tuple[int, int, int, int] | None:
        """Wait for a task; None if the consumer has closed its end, or is gone."""
        try:
            found = self._end.recv(MESSAGE.size)
        except ConnectionResetError:  # it is gone, with answers that it has not received
            return None
        return MESSAGE.unpack(found) if found else None

    def answer(self, *message: int) -> None:
        """Send a message to the consumer, unless that is gone."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self._end.sendall(MESSAGE.pack(*message), socket.MSG_NOSIGNAL)

    def read(self, batch: int, slot: int, count: int, first: int) -> None:
        """Read the samples of a task; with threads, return when one is free for the next task."""
        self._region.begin(slot, batch)
        if slot not in self._views:
            memory = self._region.memory
            views = self._layout.table(memory, slot), self._layout.over_batch(memory, slot)
            self._views[slot] = views
        task = _Task(batch, slot, count, partial(self.answer, batch, slot, count, first))
        for index in range(first, first + count):
            if self._most == 1 or self._is_calm():
                self._read(task, index)
                continue
            # Without this a reader would take all tasks that are waiting from the others.
            self._free.acquire()
            self._threads.submit(self._read_in_thread, task, index)

    def _is_calm(self) -> bool:
        before, self._requests = self._requests, TRAFFIC.num_begun
        self._calm = self._calm + 1 if self._requests == before else 0
        return self._calm > self._most + _CALM

    def _read_in_thread(self, task: _Task, index: int) -> None:
        try:
            self._read(task, index)
        except BaseException as error:
            # The consumer would wait for ever for a reader that has lost a sample.
            traceback.print_exc()
            os._exit(NO_MEMORY if isinstance(error, NoMemory) else 1)
        self._free.release()

    def _read(self, task: _Task, index: int) -> None:
        writer = self._writer(task)
        writer.begin()
        with buffers_from(writer.empty):
            arrays = self._source(Info(task.batch * self._layout.batch_size + index))
        table, over_batch = self._views[task.slot]
        for number, columns in zip(self._layout.varying, self._layout.columns, strict=True):
            array = arrays[number]
            table[index, columns] = writer.place(array), *array.shape
        for number, whole in zip(self._layout.fixed, over_batch, strict=True):
            whole[index] = arrays[number]
        task.done()

    def _writer(self, task: _Task) -> Writer:
        """Return what this thread writes the samples of a batch with."""
        batch, writer = getattr(self._own, "writer", (None, None))
        if writer is None or batch != task.batch:
            writer = Writer(self._region, task.slot)
            self._own.writer = task.batch, writer
        return writer


class _Task:
    """A part of a batch. Threads may read its samples at the same time."""

    def __init__(self, batch: int, slot: int, count: int, answer: Callable[[], None]) -> None:
        self.batch, self.slot = batch, slot
        self._left, self._answer = count, answer
        self._lock = threading.Lock()

    def done(self) -> None:
        """Note that a sample was read, and answer after the last one."""
        with self._lock:
            self._left -= 1
            is_last = not self._left
        if is_last:
            self._answer()
