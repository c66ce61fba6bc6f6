"""Ctrl-C waits until DALI's queues are let go.

Python raises a KeyboardInterrupt between any two instructions of the main thread. DALI's queues,
which are Python, then keep a lock that nobody gives back, and closing them hangs; some C code drops
the error altogether (seen in ``torch.from_dlpack``), and the run goes on as if nothing were.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupt_held(when_held: Callable[[], None] | None = None) -> Iterator[None]:
    """Raise a KeyboardInterrupt that comes meanwhile at the end; a second one comes at once.

    A handler that somebody else has set for SIGINT is left in place.

    Parameters
    ----------
    when_held : callable, optional
        Called, in the main thread, when one is held.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    held = False

    def hold(number: int, frame: FrameType | None) -> None:
        nonlocal held
        if held:
            signal.default_int_handler(number, frame)
        held = True
        if when_held is not None:
            when_held()

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if held:
            raise KeyboardInterrupt from None
