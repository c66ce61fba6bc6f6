"""Reader processes go when their consumer has gone: DALI's outlive a SIGKILL or SIGTERM of it.

They watch from their arrival on, not from their first sample: with more readers than a batch has
samples, some never get one. Forked readers arrive by `forks_die_with_this_process`; to the others
DALI sends the Source by a pickler, which this module is.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import threading
from collections.abc import Iterator
from multiprocessing.util import register_after_fork
from typing import Any


def dumps(source: Any) -> bytes:
    """Pickle a Source for a reader process."""
    return pickle.dumps((os.getpid(), source))


def loads(pickled: bytes) -> Any:
    """Unpickle it there, and watch the process that pickled it."""
    pid, source = pickle.loads(pickled)
    _die_with(pid)
    return source


@contextlib.contextmanager
def forks_die_with_this_process() -> Iterator[None]:
    """Let the processes that multiprocessing forks meanwhile watch this one."""
    consumer = _Consumer()
    # Forgotten by multiprocessing when the object goes, at the end of the block.
    register_after_fork(consumer, lambda consumer: _die_with(consumer.pid))
    yield


class _Consumer:
    def __init__(self) -> None:
        self.pid = os.getpid()


def _die_with(pid: int) -> None:
    """Kill this process when the consumer has gone.

    A pidfd is used, and not PR_SET_PDEATHSIG, because that fires when the *thread* that started the
    readers ends, and under forkserver it watches the server.
    """

    def watch() -> None:
        with contextlib.suppress(ProcessLookupError):  # gone already
            poll = select.poll()
            poll.register(os.pidfd_open(pid), select.POLLIN)
            poll.poll()
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="die-with-consumer", daemon=True).start()
