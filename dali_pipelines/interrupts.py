"""Ctrl-C waits until DALI's code is left.

Python raises a KeyboardInterrupt between any two instructions of the main thread. Some C code drops
the error (seen in ``torch.from_dlpack``), and the run goes on as if nothing were; and what is being
closed would be left half closed.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_held = False
"""Whether an interrupt is held back."""
_let_in = False
"""Whether the main thread is where one does no harm."""


@contextmanager
def interrupt_held(when_held: Callable[[], None] | None = None) -> Iterator[None]:
    """Raise a KeyboardInterrupt that comes meanwhile at the end; a second one comes at once.

    A handler that somebody else has set for SIGINT is left in place.

    Parameters
    ----------
    when_held : callable, optional
        Called, in the main thread, when one is held.
    """
    global _held
    if not _is_main() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def hold(number: int, frame: FrameType | None) -> None:
        global _held
        if _held or _let_in:
            signal.default_int_handler(number, frame)
        _held = True
        if when_held is not None:
            when_held()

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        came, _held = _held, False
        if came:
            raise KeyboardInterrupt from None


@contextmanager
def interrupts_let_in() -> Iterator[None]:
    """Raise a KeyboardInterrupt that comes meanwhile, or is held, at once: nothing is under way."""
    global _let_in
    if not _is_main():
        yield
        return
    _let_in = True
    try:
        if _held:
            raise KeyboardInterrupt
        yield
    finally:
        _let_in = False


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()
