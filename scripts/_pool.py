"""A pool of child processes that never outlives the script, and that Ctrl-C ends at once."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import Any

AHEAD = 4
"""Tasks under way for each process. Results are taken in order, so this bounds the memory."""


def process_map(
    function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]], num_processes: int
) -> Generator[Any, None, None]:
    """Give ``function(*task)`` for each task, in order; closing it ends the processes at once.

    Processes are spawned, as the caller may have started threads or CUDA by now. They import
    `function` by name, and the calling script with it.

    Raises
    ------
    concurrent.futures.BrokenExecutor
        If a process was killed.
    """
    if num_processes == 1:
        yield from (function(*task) for task in tasks)
        return
    others = set(multiprocessing.active_children())
    spawn = multiprocessing.get_context("spawn")
    resource_tracker.ensure_running()  # started later, it would let interrupts through
    with ProcessPoolExecutor(num_processes, spawn, initializer=_follow_parent) as pool:
        try:
            pending: deque[Future[Any]] = deque()
            for task in tasks:
                with _no_interrupts():
                    pending.append(pool.submit(function, *task))
                if len(pending) >= AHEAD * num_processes:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        except BaseException:
            # Not waited for, since a file system may hang.
            for child in set(multiprocessing.active_children()) - others:
                child.kill()
            raise


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Hold Ctrl-C back; child processes started meanwhile leave it to this one for good."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _follow_parent() -> None:
    """Let this child process end when its parent is killed."""
    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
