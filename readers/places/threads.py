"""Threads that end with their process, even in the middle of a call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

Result = TypeVar("Result")


class DaemonThreads:
    """Calls functions in threads, in the order of submission.

    Unlike a ``ThreadPoolExecutor``, it does not keep the process alive until all calls have
    returned, which takes long if a server does not answer.
    """

    def __init__(self, num_threads: int) -> None:
        self._left = num_threads
        self._tasks: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._lock = threading.Lock()

    def submit(self, function: Callable[..., Result], *args: Any) -> Future[Result]:
        """Call a function in one of the threads."""
        future: Future[Result] = Future()

        def call() -> None:
            try:
                future.set_result(function(*args))
            except BaseException as error:
                future.set_exception(error)

        self._tasks.put(call)
        with self._lock:
            if self._left:
                self._left -= 1
                threading.Thread(target=self._work, daemon=True).start()
        return future

    def _work(self) -> None:
        while True:
            self._tasks.get()()
