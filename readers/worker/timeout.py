"""Time limit for calls that may block, e.g. a read from a server that does not answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

Result = TypeVar("Result")


class TimeLimit(Exception):
    """A call took too long."""


def within(seconds: float | None, function: Callable[..., Result], *args: Any) -> Result:
    """Return the result of a function if it comes in time.

    Parameters
    ----------
    seconds : float or None
        None for no limit.
    function : callable
        Called in a thread of its own if there is a limit. After the limit the thread is abandoned:
        a blocking system call cannot be cancelled, and ends with the process.
    *args
        Arguments of the function.

    Raises
    ------
    TimeLimit
        If it takes longer.
    """
    if seconds is None:
        return function(*args)
    found: list[Any] = []

    def call() -> None:
        try:
            found.append((function(*args), None))
        except BaseException as error:
            found.append((None, error))

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(seconds)
    if not found:
        raise TimeLimit(f"reading took longer than {seconds:g} s (read_timeout)")
    result, error = found[0]
    if error is not None:
        raise error
    return result
