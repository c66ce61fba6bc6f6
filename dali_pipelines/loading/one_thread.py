"""Only one thread at a time can use a Loader: a second one gets an error, the first goes on.

At exit, Python ends a daemon thread as soon as the thread needs the GIL. Inside DALI or PyTorch
this aborts the process. So threads that use a Loader are stopped earlier, between two steps.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

_IN_USE = (
    "this Loader is in use by another thread: share one iterator under a lock, or make one Loader "
    "for each thread"
)
_PATIENCE_S = 5.0
"""Time for a step to end at exit, and once more after the Loader was closed."""

_all: weakref.WeakSet[OneThread] = weakref.WeakSet()
_exiting = False


class OneThread:
    """Context manager that raises RuntimeError if another thread is inside.

    At exit no other thread can enter or leave. `close`, a method of the Loader, ends the wait of a
    thread inside.
    """

    def __init__(self, close: Callable[[], None]) -> None:
        self._lock = threading.RLock()
        self._close = weakref.WeakMethod(close)  # the Loader has this object
        _all.add(self)
        _stop_at_exit()

    def __enter__(self) -> None:
        _stay_at_exit()
        if not self._lock.acquire(blocking=False):
            raise RuntimeError(_IN_USE)

    def __exit__(self, *error: object) -> None:
        self._lock.release()
        _stay_at_exit()

    def stop(self) -> None:
        """Wait for the thread inside, and close the Loader."""
        self._lock.acquire(timeout=_PATIENCE_S)
        if (close := self._close()) is not None:
            close()
        self._lock.acquire(timeout=_PATIENCE_S)


@cache
def _stop_at_exit() -> None:
    """Stop all Loaders at exit, before DALI ends pipelines and pools: last in, first out.

    DALI ends pools by `weakref.finalize`, which registers itself with atexit at its first use. So
    it is used here first.
    """
    weakref.finalize(OneThread, bool)
    atexit.register(_stop_all)
    os.register_at_fork(after_in_child=_all.clear)


def _stop_all() -> None:
    global _exiting
    _exiting = True
    for one_thread in list(_all):
        one_thread.stop()


def _stay_at_exit() -> None:
    """Block a daemon thread forever if the process is ending."""
    if _exiting and threading.current_thread() is not threading.main_thread():
        threading.Event().wait()


@dataclass(eq=False)
class Steps(Iterator[Any]):
    """Steps of a loop over a Loader.

    In another thread, a plain generator would raise ValueError without a remedy.
    """

    steps: Iterator[Any]
    one_thread: OneThread

    def __next__(self) -> Any:
        """Return the next step."""
        with self.one_thread:
            return next(self.steps)
