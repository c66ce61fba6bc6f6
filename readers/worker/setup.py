"""Start-up of a reader process: source, signals, parent watch, memory settings."""

from __future__ import annotations

import gc
import io
import mmap
import os
import pickle
import signal
import weakref
from multiprocessing.reduction import DupFd
from typing import Any

from readers.places.stores import environment
from readers.worker.malloc import keep_freed_memory
from readers.worker.parent_watch import die_with


class Parcel:
    """Pickled Source in memory that reader processes open through a file descriptor.

    multiprocessing sends objects to a new process through a pipe. If the objects are larger than
    the pipe (64 KiB) and the process dies before it reads them, its parent waits forever.
    """

    def __init__(self, pickled: bytes) -> None:
        self._keep(os.memfd_create("source"))
        with open(self._fd, "wb", closefd=False) as file:
            file.write(pickled)

    def open(self) -> bytes:
        """Return the pickled bytes."""
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
    """Pickle a Source and the environment, for reader processes that are not forked.

    The environment may have credentials of remote storage that the fork server lacks, because it
    started earlier. The pickle of the Source does not contain them.
    """
    return Parcel(pickle.dumps(environment()) + pickle.dumps(source))


def loads(parcel: Parcel) -> Any:
    """Set this reader process's environment, and return the unpickled Source."""
    file = io.BytesIO(parcel.open())
    variables = pickle.load(file)
    for name in environment().keys() - variables.keys():
        del os.environ[name]
    os.environ.update(variables)
    return pickle.load(file)


def set_up(consumer: int) -> None:
    """Set up this process as a reader of process `consumer`."""
    _ignore_signals()
    die_with(consumer)
    keep_freed_memory()
    # The garbage collector writes to all objects that it tracks: forks would copy shared memory.
    gc.freeze()


def _ignore_signals() -> None:
    """Ignore all signals with a handler, and SIGINT; SIGTERM ends the reader.

    Terminals and schedulers send signals to all processes of a job. The consumer handles them. A
    forked reader would run handlers of the consumer, which may for example save a checkpoint.
    """
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # blocked during start-up
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
