"""Delay Ctrl-C while DALI's code runs.

Python raises a KeyboardInterrupt between any two instructions of the main thread. Some C code drops
the error (seen in ``torch.from_dlpack``), so that the run would go on; and an interrupted close
would be left half done.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

_held: list[int] | None = None
"""Interrupts that are delayed."""
_let_in = False
"""Whether the main thread is where an interrupt does no harm."""
_OWN = (__file__, contextmanager.__code__.co_filename)
"""Files whose code must not be interrupted: later interrupts would not be held, or be raised
twice."""

Result = TypeVar("Result")


@contextmanager
def interrupt_held() -> Iterator[None]:
    """Delay a KeyboardInterrupt to the end of the block; raise a second one at once.

    A handler for SIGINT that others have set is kept.
    """
    global _held
    if not _is_main() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    came: list[int] = []

    def hold(number: int, frame: FrameType | None) -> None:
        if _let_in or (came and frame is not None and frame.f_code.co_filename not in _OWN):
            signal.default_int_handler(number, frame)
        came.append(number)

    signal.signal(signal.SIGINT, hold)
    _held = came
    try:
        yield
    finally:
        _held = None
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if came:
            raise KeyboardInterrupt from None


def interruptible(wait: Callable[[], Result]) -> Result:
    """Wait where interrupts do no harm: raise one at once that comes or was delayed."""
    global _let_in
    if not _is_main():
        return wait()
    try:
        _let_in = True
        if _held:
            raise KeyboardInterrupt
        return wait()
    finally:
        _let_in = False


@contextmanager
def ctrl_c_blocked() -> Iterator[None]:
    """Block Ctrl-C in a process that starts meanwhile; here it is raised afterwards.

    A process that ignores it only once it has imported all would print a traceback before.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()
