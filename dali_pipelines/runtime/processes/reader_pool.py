"""The pool of reader processes of a pipeline: asks for batches, and hands them to the graph.

The readers write into a slab, see `readers.worker.slab`, and the graph reads from it. DALI drops
the arrays of a batch as soon as the graph has run, because the outputs of a pipeline share no
memory with its inputs. Then the slot of the batch is used again. All arrays of a batch are views of
one array over the slab, and a weak reference to this array reports when DALI has dropped them. For
a GPU, the slots and blocks in use are page-locked, and the GPU may still copy from them. So the
slot is used again only after the outputs of the batch have arrived, too.
"""

from __future__ import annotations

import errno
import mmap
import multiprocessing
import os
import select
import socket
import threading
import weakref
from collections import deque
from contextlib import suppress
from functools import partial
from multiprocessing.process import BaseProcess
from multiprocessing.resource_tracker import ensure_running
from typing import Any

import numpy as np

from dali_pipelines.runtime.interrupts import ctrl_c_blocked
from dali_pipelines.runtime.pinned import Cuda, PinnedSlab
from dali_pipelines.runtime.processes.reader_processes import ReaderProcessError, ReaderProcesses
from dali_pipelines.runtime.tensor_lists import TensorLists, of_slab
from readers.source import Source
from readers.worker import read_loop, setup
from readers.worker.read_loop import MESSAGE, READY
from readers.worker.slab import BLOCK_UNIT, Bytes, Layout, SharedMemory, region_bytes, tasks_of

_MOST_SENT = 64 * MESSAGE.size
"""Bytes to send at once: the kernel accepts 2 KiB whole or not at all, however small
net.core.wmem_default is, so that no reader receives a part of a message."""
_RECEIVED = 64 << 10
"""Maximum number of bytes to receive at once."""
_MOST_SLOTS = 64
"""Minimum number of slots that there is address space for."""
_CLOSED = "this pipeline was closed by another thread while it waited for its readers"


class ReaderPool:
    """The callback for ``fn.external_source(batch=True)``: each call returns the next batch.

    Parameters
    ----------
    source : Source
        Reads the samples, in the reader processes.
    num_readers : int
        Processes.
    start_method : {"forkserver", "spawn", "fork"}
        How they are started.
    ahead : int
        Batches that the readers keep ready, besides the one in use.
    cuda : Cuda, optional
        Page-locks the slab for a GPU. A batch is then in use until `note_outputs` is called.
    """

    def __init__(
        self,
        source: Source,
        num_readers: int,
        start_method: str,
        ahead: int,
        cuda: Cuda | None = None,
    ) -> None:
        self._source, self._num_readers, self._method = source, num_readers, start_method
        self._tasks = tasks_of(source.schedule.batch_size, num_readers)
        self._num_slots = ahead * (1 if cuda is None else 2) + 1
        self._cuda, self._finished = cuda, 0
        self._dropped = set[int]()  # batches, whose outputs have not come yet
        self._free = deque(range(self._num_slots))
        self._asked = self._taken = 0
        self._slots = dict[int, int]()  # by batch
        self._left = dict[int, int]()  # samples that are not read yet, by batch
        self._held = dict[int, weakref.ref[Bytes]]()  # by batch
        self._asking = threading.Lock()
        self._channel: _Channel | None = None
        self._map: mmap.mmap | None = None
        self._shared: SharedMemory | None = None
        self._pinned: PinnedSlab | None = None
        self._new_blocks = list[tuple[int, int]]()
        self.readers: ReaderProcesses | None = None

    def start(self) -> None:
        """Start the reader processes, and ask for the first batches.

        Raises
        ------
        OSError
            If a limit of this process leaves too little address space, or too few open files.
        ReaderProcessError
            If a reader process dies.
        RuntimeError
            In a daemonic process.
        """
        if self.readers is not None:
            return
        if multiprocessing.current_process().daemon:
            raise RuntimeError(
                "this process is daemonic, as workers of a DataLoader are, and may not start "
                "reader processes: loop over the Loader in the main process, or call the factory "
                "of its pipeline here, with num_read_processes=0, which a Loader does not take"
            )
        try:
            processes = self._started(*self._opened())
        except (ConnectionError, EOFError):
            cause = "a reader process or the fork server died while it was started"
            raise ReaderProcessError(cause) from None
        except OSError as error:
            if error.errno != errno.EMFILE:
                raise
            raise OSError(
                error.errno,
                f"{error.strerror}, while {self._num_readers} reader processes were started: raise "
                "the limit (ulimit -n), or use fewer num_read_processes",
            ) from None
        assert self._channel is not None
        self.readers = ReaderProcesses(processes, self._channel.close)
        self._poll = select.poll()
        self._poll.register(self._channel.fileno, select.POLLIN)
        for end in self.readers.exits.values():
            self._poll.register(end, select.POLLIN)
        self._ask()
        self._num_starting = self._num_readers
        while self._num_starting:
            self._receive()

    def close(self) -> None:
        """End the reader processes; the memory is freed with the last array that is a view of it.

        DALI keeps this pool in a reference cycle, until garbage is collected.
        """
        if self.readers is not None:
            self.readers.close()
            self.readers.processes.clear()
            self.readers.exits.clear()
            if self._map is not None and self._shared is not None:
                # Processes forked meanwhile, such as other readers, have mapped it, too.
                weakref.finalize(self._map, _give_back, self._shared, self._consumer).atexit = False
        elif self._channel is not None:  # interrupted during the start
            self._channel.close()
        self._map = self._shared = None

    def unpin(self) -> None:
        """Undo the page-locking, after the graph has ended with its last copy to the GPU."""
        if self._pinned is not None:
            self._pinned.close()
            self._pinned = None

    def _opened(self) -> tuple[SharedMemory, socket.socket]:
        """Open the slab and the socket; return the readers' end of the socket."""
        batch_size, num_readers = self._source.schedule.batch_size, self._num_readers
        room = region_bytes(num_readers)
        most_slots = max(_MOST_SLOTS, 2 * self._num_slots)
        self._layout = Layout(self._source.specs, batch_size, num_readers, room, most_slots)
        shared = SharedMemory(self._layout.nbytes)
        self._map, self._shared, self._consumer = shared.map(), shared, os.getpid()
        if self._cuda is not None:
            self._pinned = PinnedSlab(np.frombuffer(self._map, np.uint8), self._cuda)
        own, theirs = socket.socketpair()
        self._channel = _Channel(own)
        return shared, theirs

    def _started(self, shared: SharedMemory, theirs: socket.socket) -> list[BaseProcess]:
        context: Any = multiprocessing.get_context(self._method)
        # A forked process already has the Source, so pickling is not needed.
        sent = self._source if self._method == "fork" else setup.dumps(self._source)
        processes: list[BaseProcess] = []
        if self._method == "spawn":
            ensure_running()  # its start would unblock Ctrl-C
        try:
            with ctrl_c_blocked():
                for number in range(self._num_readers):
                    arguments = os.getpid(), sent, self._layout, shared, number, theirs
                    processes.append(context.Process(target=read_loop.run, args=arguments))
                    processes[-1].start()
        except BaseException:
            assert self._channel is not None
            self._channel.close()
            for process in processes:
                if process.pid is not None:
                    process.kill()
            raise
        finally:
            theirs.close()
        return processes

    # Slots: free -> asked for -> held by DALI -> dropped -> free.

    def _ask(self, wait: bool = False) -> None:
        """Ask the readers for a batch in each free slot.

        Any thread may call this. If an array is dropped during a call, this is called again inside
        the call. A second call that does not `wait` returns at once, as the first one asks for all
        free slots.
        """
        while self._free and self._asking.acquire(blocking=wait):
            try:
                while self._free:
                    batch, slot = self._asked, self._free.popleft()
                    self._slots[batch], self._left[batch] = slot, self._layout.batch_size
                    self._asked += 1
                    assert self._channel is not None
                    self._channel.send(
                        [(batch, slot, count, first) for first, count in self._tasks]
                    )
            finally:
                self._asking.release()

    def _drop(self, batch: int) -> None:
        """Note that DALI has dropped a batch; any thread may call this."""
        del self._held[batch]
        self._dropped.add(batch)
        self._use_again()

    def note_outputs(self) -> None:
        """Note that the outputs of one more batch have arrived: the graph is done with it."""
        self._finished += 1
        self._use_again()

    def _use_again(self) -> None:
        for batch in self._dropped.copy():
            if batch < self._finished or self._cuda is None:
                # Another thread may have freed the slot meanwhile.
                with suppress(KeyError):
                    self._dropped.remove(batch)
                    self._free_slot(self._slots.pop(batch))
        self._ask()

    def _free_slot(self, slot: int) -> None:
        self._free.append(slot)

    def __call__(self) -> TensorLists:
        """Wait for the next batch and return its arrays, in the order of the specs.

        Raises
        ------
        ReaderProcessError
            If a reader process has died.
        RuntimeError
            If the pool was closed.
        """
        batch = self._taken
        while batch >= self._asked:
            if not self._free:
                # DALI holds all slots, and drops none before it gets another batch.
                if self._num_slots == self._layout.most_slots:
                    raise RuntimeError(f"the graph holds {self._num_slots} batches")
                self._free.append(self._num_slots)
                self._num_slots += 1
            self._ask(wait=True)
        while self._left[batch] > 0:
            self._receive()
        del self._left[batch]
        self._taken += 1
        if (shared := self._map) is None:
            raise RuntimeError(_CLOSED)
        # NumPy's views of this array keep a reference to it, not to the map below it.
        memory = np.frombuffer(shared, np.uint8)
        self._held[batch] = weakref.ref(memory, partial(_dropped, weakref.ref(self), batch))
        return self._of_slab(memory, self._slots[batch])

    def _of_slab(self, memory: Bytes, slot: int) -> TensorLists:
        if (pinned := self._pinned) is not None:
            # Not earlier: with start_method "fork", CUDA starts after the readers.
            parts, self._new_blocks = [self._layout.slot(slot), *self._new_blocks], []
            if pinned.add(parts):
                with pinned.current():
                    return of_slab(self._layout, memory, slot, is_pinned=True)
        return of_slab(self._layout, memory, slot)

    def _receive(self) -> None:
        """Wait for answers of the readers."""
        assert self._channel is not None
        assert self.readers is not None
        events = select.POLLIN | (select.POLLOUT if self._channel.has_unsent else 0)
        self._poll.modify(self._channel.fileno, events)
        ready = dict(self._poll.poll())
        if self._channel.is_closed:
            raise RuntimeError(_CLOSED)
        if ready == {self._channel.fileno: select.POLLOUT}:
            with self._asking:
                self._channel.flush()
            self._ask()
            return
        found = b""
        if ready.keys() == {self._channel.fileno}:
            found = self._channel.receive()
        if not found:
            if death := self.readers.death():
                raise ReaderProcessError(death)
            raise RuntimeError(_CLOSED)
        for batch, reader, count, first in MESSAGE.iter_unpack(found):
            if batch >= 0:
                self._left[batch] -= count
            elif batch == READY:
                self._num_starting -= 1
            elif self._pinned is not None:
                at = self._layout.region(reader) + first * BLOCK_UNIT
                self._new_blocks.append((at, count * BLOCK_UNIT))


def _dropped(pool: weakref.ref[ReaderPool], batch: int, _: object) -> None:
    if (found := pool()) is not None:
        found._drop(batch)


def _give_back(shared: SharedMemory, process: int) -> None:
    if os.getpid() == process:  # a forked copy drops only its own view
        shared.give_back()


class _Channel:
    """The consumer's end of the socket that it shares with all readers."""

    def __init__(self, end: socket.socket) -> None:
        self._end, self._consumer = end, os.getpid()
        self._unsent = bytearray()
        self.is_closed = False
        self.fileno = end.fileno()
        # Not in close(): another thread may be waiting at this descriptor, so the number must not
        # be reused yet.
        weakref.finalize(self, end.close).atexit = False

    def send(self, messages: list[tuple[int, int, int, int]]) -> None:
        """Send messages, which readers receive one by one; no effect on a closed channel.

        This does not wait. Messages that do not fit into the socket are left for `flush`. Waiting
        could last forever: readers take no tasks before their answers are received, and this same
        thread receives them.
        """
        self._unsent += b"".join(MESSAGE.pack(*message) for message in messages)
        self.flush()

    def flush(self) -> None:
        """Send the messages that are left, as far as they fit."""
        flags = socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT
        try:
            while self._unsent:
                del self._unsent[: self._end.send(self._unsent[:_MOST_SENT], flags)]
        except BlockingIOError:
            pass
        except OSError:  # closed meanwhile
            self._unsent.clear()

    @property
    def has_unsent(self) -> bool:
        """Whether `flush` has something to do."""
        return bool(self._unsent)

    def receive(self) -> bytes:
        """Return messages that have arrived; none if this is closed, or if no reader is left."""
        try:
            return self._end.recv(_RECEIVED)
        except ConnectionResetError:
            return b""

    def close(self) -> None:
        """Tell the readers to end."""
        if not self.is_closed and os.getpid() == self._consumer:
            # Readers notice this even if a forked process has a copy of this end.
            self._end.shutdown(socket.SHUT_RDWR)
        self.is_closed = True
