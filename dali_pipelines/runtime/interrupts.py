"""Ctrl-C is never lost, and only this process handles it, not those that it starts."""

from __future__ import annotations

import signal
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.util import Finalize
from types import FrameType

_FINALIZERS = weakref.finalize.__call__.__code__, Finalize.__call__.__code__
_count = 0
"""Number of interrupts while `_raise` was the handler."""


class NoInterruptLost:
    """Context manager that raises KeyboardInterrupt at its end if one was dropped in the block.

    Python raises KeyboardInterrupt between any two instructions of the main thread, but drops it
    inside a finalizer, such as those of pipelines. Some C code drops it, too. Without this, the run
    would go on. A handler for SIGINT that other code has set is kept.
    """

    def __enter__(self) -> None:
        self._before, self._count = signal.getsignal(signal.SIGINT), _count
        is_main = threading.current_thread() is threading.main_thread()
        # Our handler may still be set, if an interrupt came just before a block set the old one.
        self._is_active = is_main and self._before in (signal.default_int_handler, _raise)
        if self._is_active:
            signal.signal(signal.SIGINT, _raise)

    def __exit__(self, *error: object) -> None:
        if self._is_active:
            signal.signal(signal.SIGINT, self._before)
            if _count != self._count:
                raise KeyboardInterrupt from None


def _raise(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt; in a finalizer only count it, so that the finalizer completes."""
    global _count
    _count += 1
    inner = frame
    while inner is not None:
        if inner.f_code in _FINALIZERS:
            return
        inner = inner.f_back
    signal.default_int_handler(number, frame)


@contextmanager
def ctrl_c_blocked() -> Iterator[None]:
    """Block Ctrl-C in processes that start in the block; this process raises it afterwards.

    A process can only ignore Ctrl-C after its imports. Before that, it would print a traceback.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
