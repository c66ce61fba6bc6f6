"""What is done as a reader process arrives, before its first sample.

With more readers than a batch has samples, some never get one. Forked readers arrive by
`forks_arrive`; to the others DALI sends the Source by a pickler, which this module is.
"""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.util import register_after_fork
from typing import Any

from readers.heap import keep_freed_memory
from readers.orphans import die_with


def dumps(source: Any) -> bytes:
    """Pickle a Source for a reader process."""
    return pickle.dumps((os.getpid(), source))


def loads(pickled: bytes) -> Any:
    """Unpickle it there."""
    pid, source = pickle.loads(pickled)
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
    _leave_interrupts()
    die_with(consumer)
    keep_freed_memory()


def _leave_interrupts() -> None:
    """Leave Ctrl-C, which a terminal sends to all processes of a script, to the consumer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
