"""Lock between threads that stays usable in a forked process."""

from __future__ import annotations

import os
import threading


class ForkSafeLock:
    """Reentrant lock that is free in a forked process.

    A fork copies a held lock, but not the thread that would release it: a forked reader process
    would wait forever. The thread that forks must not hold this lock. Only use module-level
    instances, because an instance is never freed.
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
