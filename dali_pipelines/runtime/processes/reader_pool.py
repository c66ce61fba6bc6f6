"""Start DALI's pool of reader processes, with some of its parts replaced.

What it then shares with the readers has no lock and no condition variable, see
`readers.worker.message_queue`, and there is no thread that watches them, see
`dali_pipelines.runtime.processes.reader_processes`.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from multiprocessing.resource_tracker import ensure_running
from typing import Any

from dali_pipelines.runtime.dali_private import (
    ShmMessageDesc,
    WorkerArgs,
    pool_replaced,
    replaced,
)
from dali_pipelines.runtime.interrupts import ctrl_c_blocked
from dali_pipelines.runtime.processes.reader_processes import ReaderProcessError, ReaderProcesses
from readers.worker.message_queue import MessageQueue

_HEAD = 64 << 10
"""Bytes at the start of each piece of shared memory for a task, before the samples."""

_starting = threading.Lock()
"""Parts, and variables of the environment, are replaced for all threads, so threads start their
pools and the fork server one after the other."""


def _forget_other_threads() -> None:
    """Replace the lock in a forked process: the thread that holds it was not copied."""
    global _starting
    _starting = threading.Lock()


os.register_at_fork(after_in_child=_forget_other_threads)


@contextmanager
def alone() -> Iterator[None]:
    """Let no other thread start reader processes or the fork server in this block."""
    with _starting:
        yield


_terminate = BaseProcess.terminate


class _StartingPool:
    """One of DALI's pools while it starts: what replaces its parts."""

    def __init__(self) -> None:
        self.readers: list[ReaderProcesses] = []
        self._queues: list[MessageQueue] = []
        self._sockets: list[socket.socket | None] = []
        self._thread = threading.get_ident()
        self._start = BaseProcess.start

    def queue(self, *args: Any, **kwargs: Any) -> MessageQueue:
        self._queues.append(MessageQueue(ShmMessageDesc, *args, **kwargs))
        return self._queues[-1]

    def arguments(self, **arguments: Any) -> Any:
        self._sockets.append(arguments["setup_socket"])
        return WorkerArgs(**arguments)

    def observe(self, *args: Any) -> ReaderProcesses:
        # The readers have copies. DALI keeps the last one open: sending handles to that reader
        # after its death would not fail, but wait forever for room in the socket.
        for end in filter(None, self._sockets):
            end.close()
        self.readers.append(ReaderProcesses(*args))
        return self.readers[-1]

    def start(self, process: BaseProcess) -> None:
        spawned = getattr(process, "_start_method", None) == "spawn"
        if not spawned or threading.get_ident() != self._thread:
            self._start(process)
            return
        ensure_running()  # as it starts, it would let Ctrl-C in
        with ctrl_c_blocked():
            self._start(process)

    def terminate(self, process: BaseProcess) -> None:
        # DALI then waits without limit, and a reader may have inherited that SIGTERM is ignored, or
        # a handler for it.
        if threading.get_ident() == self._thread:
            process.kill()
        else:
            _terminate(process)

    def close(self) -> None:
        # An interrupt during a fork leaves a reader that no Process object knows.
        for queue in self._queues:
            queue.close()


@contextmanager
def started_readers() -> Iterator[list[ReaderProcesses]]:
    """Replace parts of the pool that DALI starts in this block; yield a list of its readers.

    OSError if /dev/shm is full, ReaderProcessError if a reader dies, RuntimeError in a daemonic
    process.
    """
    pool = _StartingPool()
    with (
        alone(),
        pool_replaced(
            queue=pool.queue,
            arguments=pool.arguments,
            observer=pool.observe,
            allocated=_reserve_task,
        ),
        replaced(BaseProcess, "start", lambda process: pool.start(process)),
        replaced(BaseProcess, "terminate", lambda process: pool.terminate(process)),
    ):
        try:
            yield pool.readers
        except BaseException as error:
            pool.close()
            clear = _clear(error, pool.readers)
            if clear is None:
                raise
            # The traceback through DALI explains nothing.
            raise clear from None


def _clear(error: BaseException, readers: list[ReaderProcesses]) -> Exception | None:
    """Return the error to raise instead of one from DALI's calls; None to keep that."""
    if isinstance(error, (RuntimeError, ConnectionError, EOFError)):
        if readers and (death := readers[-1].death()):
            return ReaderProcessError(death)
        if not isinstance(error, RuntimeError):
            cause = "a reader process or the fork server died while it was started"
            return ReaderProcessError(cause)
    elif isinstance(error, OSError) and error.errno == errno.ENOSPC:
        remedy = "give it more room (docker run --shm-size, or --ipc=host)"
        reason = f"readers cannot be started, /dev/shm is full: {remedy}"
        return OSError(errno.ENOSPC, reason)
    elif isinstance(error, AssertionError) and "daemonic" in str(error):
        return RuntimeError(
            "this process is daemonic, as workers of a DataLoader are, and may not start reader "
            "processes: loop over the Loader in the main process, or call the factory of its "
            "pipeline here, with num_read_processes=0, which a Loader does not take"
        )
    return None


def _reserve_task(handle: int, nbytes: int) -> None:
    """Reserve the pages of new shared memory that a task is written to.

    DALI's is files that have a length but no pages. Where /dev/shm is full, a process that writes
    to such a page is killed by SIGBUS. A reader's death is reported, that of the consumer is not.
    """
    os.posix_fallocate(handle, 0, min(nbytes, _HEAD))
