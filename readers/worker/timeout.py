"""Time limit for calls that may block, such as reads from a server that does not answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, TypeVar

Result = TypeVar("Result")


class TimeLimit(Exception):
    """A call exceeded its time limit."""


def within(seconds: float | None, function: Callable[..., Result], *args: Any) -> Result:
    """Return the result of a function, or raise TimeLimit if it takes longer; None for no limit.

    With a limit the function runs in a new thread. After the limit the thread is abandoned, because
    a blocking system call cannot be cancelled.
    """
    if seconds is None:
        return function(*args)
    future: Future[Result] = Future()

    def call() -> None:
        try:
            future.set_result(function(*args))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    wait([future], seconds)
    if not future.done():
        raise TimeLimit(f"reading took longer than {seconds:g} s (read_timeout)")
    return future.result()
