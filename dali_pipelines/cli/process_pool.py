"""Child processes that never outlive the command, and that Ctrl-C ends at once.

Not pebble's ProcessPool: its processes share a pipe, so that in 5.2.3, while this process is busy,
the task that killed one of them is not found, and all tasks fail (BrokenProcessPool).
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from contextlib import closing, contextmanager
from multiprocessing import resource_tracker
from typing import Any

AHEAD = 2
"""Tasks under way for each process. Results are taken in order, so this bounds the memory."""


class Crash(Exception):
    """A task killed its process."""


def process_map(
    function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]], num_processes: int
) -> Generator[Any, None, None]:
    """Yield ``function(*task)`` for each task, in order; closing it ends the processes at once.

    With one process the tasks are done in this one.

    Raises
    ------
    Crash
        If a process was killed.
    """
    if num_processes == 1:
        yield from (function(*task) for task in tasks)
        return
    with closing(isolated_map(function, tasks, num_processes)) as results:
        for result in results:
            if isinstance(result, Crash):
                raise result
            yield result


def isolated_map(
    function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]], num_processes: int
) -> Generator[Any, None, None]:
    """Yield ``function(*task)`` for each task, in order, or a Crash for one that kills its process.

    For code that a hostile file can bring down. Processes are spawned, as the caller may have
    started threads or CUDA by now. They import `function` by name, and the calling script with it.
    """
    resource_tracker.ensure_running()  # started later, it would let interrupts through
    children = [_Child(function) for _ in range(num_processes)]
    waiting: deque[_Child] = deque()
    try:
        for task in tasks:
            child = min(children, key=_Child.unfinished)
            child.submit(task)
            waiting.append(child)
            if len(waiting) >= AHEAD * num_processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for child in children:
            child.close()


class _Child:
    """One child process after the other: when it dies, the task that it was at is known."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._pool = _new_pool()
        self._pending: deque[tuple[tuple[Any, ...], Future[Any]]] = deque()

    def submit(self, task: tuple[Any, ...]) -> None:
        with _no_interrupts():
            try:
                future = self._pool.submit(self._function, *task)
            except BrokenExecutor as error:  # a task before it was the cause
                future = Future()
                future.set_exception(error)
        self._pending.append((task, future))

    def unfinished(self) -> int:
        return sum(not future.done() for _, future in self._pending)

    def result(self) -> Any:
        """Wait for the first result; Ctrl-C kills the process, which ends the wait."""
        from dali_pipelines.runtime.interrupts import interrupt_held

        _, future = self._pending.popleft()
        try:
            # In the midst of the wait it could leave the future's lock taken, for ever.
            with interrupt_held(self._kill):
                return future.result()
        except BrokenExecutor:
            self.close()
            self._pool = _new_pool()
            tasks = [task for task, _ in self._pending]
            self._pending.clear()
            for task in tasks:
                self.submit(task)
            return Crash()

    def close(self) -> None:
        """End the process without waiting for it, since a file system may hang."""
        self._kill()  # first: shutting down forgets it
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _kill(self) -> None:
        for process in list((self._pool._processes or {}).values()):
            process.kill()


def _new_pool() -> ProcessPoolExecutor:
    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, spawn, initializer=follow_parent)


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Hold Ctrl-C back; child processes started meanwhile leave it to this one for good."""
    # Not above: child processes import this module too, and have no need of the package.
    from dali_pipelines.runtime.interrupts import interrupt_held

    # A mask is inherited, but holds nothing back here: the system then gives the signal to another
    # thread, of a library, e.g., and Python raises its error in the main thread all the same.
    with interrupt_held():
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def follow_parent() -> None:
    """Let this child process end when its parent is killed."""
    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
