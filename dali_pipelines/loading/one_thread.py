"""A Loader is for one thread at a time: a second one gets an error, and the first goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_IN_USE = (
    "this Loader is in use by another thread: share one iterator under a lock, or one Loader for "
    "each thread"
)


class OneThread:
    """Context manager that raises RuntimeError where another thread is inside."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise RuntimeError(_IN_USE)

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def __reduce__(self) -> Any:
        return OneThread, ()  # nobody is inside a copy


@dataclass(eq=False)
class Steps(Iterator[Any]):
    """Steps of a loop over a Loader; a generator alone would raise ValueError to another thread."""

    steps: Iterator[Any]
    one_thread: OneThread

    def __next__(self) -> Any:
        """Return the next step."""
        with self.one_thread:
            return next(self.steps)
