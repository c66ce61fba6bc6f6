"""Lock between the threads of a process that a process forked from it can use."""

from __future__ import annotations

import os
import threading


class ForkSafeLock:
    """Lock that is free in a forked process: the thread that held it was not copied.

    Any other lock that a thread holds during a fork is never released there, and a forked reader
    process would wait for it forever. The thread that forks must not hold it, but may take it more
    than once. Make one only for as long as the process lives.
    """

    def __init__(self) -> None:
        self._renew()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
