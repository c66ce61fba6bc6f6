"""What is done as a reader process arrives, before its first sample.

With more readers than a batch has samples, some never get one. Forked readers arrive by
`forks_arrive`; to the others DALI sends the Source by a pickler, which this module is.
"""

from __future__ import annotations

import mmap
import os
import pickle
import signal
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.reduction import DupFd
from multiprocessing.util import register_after_fork
from typing import Any

from readers.worker.malloc import keep_freed_memory
from readers.worker.parent_watch import die_with


class Parcel:
    """A pickled Source, in memory that the reader processes open by a file descriptor.

    multiprocessing writes what it sends to a spawned process into a pipe. If that process dies
    before it reads, and this is more than the pipe holds (64 KiB), then its parent waits for ever.
    """

    def __init__(self, pickled: bytes) -> None:
        self._keep(os.memfd_create("source"))
        with open(self._fd, "wb", closefd=False) as file:
            file.write(pickled)

    def open(self) -> bytes:
        """Return what is in it."""
        with mmap.mmap(self._fd, 0, prot=mmap.PROT_READ) as memory:
            return bytes(memory)

    def _keep(self, fd: int) -> None:
        self._fd = fd
        weakref.finalize(self, os.close, fd)

    def __getstate__(self) -> Any:
        return DupFd(self._fd)

    def __setstate__(self, sent: Any) -> None:
        self._keep(sent.detach())


def dumps(source: Any) -> Parcel:
    """Pickle a Source for reader processes."""
    return Parcel(pickle.dumps((os.getpid(), source)))


def loads(parcel: Parcel) -> Any:
    """Unpickle it in one."""
    pid, source = pickle.loads(parcel.open())
    _arrive(pid)
    return source


@contextmanager
def forks_arrive() -> Iterator[None]:
    """Let the processes that multiprocessing forks meanwhile be reader processes of this one."""
    consumer = _Consumer()
    # Forgotten by multiprocessing when the object goes, at the end of the block.
    register_after_fork(consumer, lambda consumer: _arrive(consumer.pid))
    yield


class _Consumer:
    def __init__(self) -> None:
        self.pid = os.getpid()


def _arrive(consumer: int) -> None:
    _leave_signals()
    die_with(consumer)
    keep_freed_memory()


def _leave_signals() -> None:
    """Leave signals that terminals and schedulers send to all processes of a job to the consumer.

    A forked reader would run the handlers that its consumer has set, which may save a checkpoint,
    say. SIGTERM ends it.
    """
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
