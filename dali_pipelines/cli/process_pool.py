"""Child processes that never outlive the command, and that Ctrl-C ends at once."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess
from typing import Any

AHEAD = 4
"""Tasks under way for each process. Results are taken in order, so this bounds the memory."""


def process_map(
    function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]], num_processes: int
) -> Generator[Any, None, None]:
    """Yield ``function(*task)`` for each task, in order; closing it ends the processes at once.

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

    def kill() -> None:
        # Not waited for, since a file system may hang.
        for child in set(multiprocessing.active_children()) - others:
            child.kill()

    spawn = multiprocessing.get_context("spawn")
    resource_tracker.ensure_running()  # started later, it would let interrupts through
    with ProcessPoolExecutor(num_processes, spawn, initializer=follow_parent) as pool:
        try:
            pending: deque[Future[Any]] = deque()
            for task in tasks:
                with _no_interrupts():
                    pending.append(pool.submit(function, *task))
                if len(pending) >= AHEAD * num_processes:
                    yield _result(pending.popleft(), kill)
            while pending:
                yield _result(pending.popleft(), kill)
        except BaseException:
            kill()
            raise


class Crash(Exception):
    """A task killed its process; given in place of its result."""


def isolated_map(
    function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]], num_processes: int
) -> Generator[Any, None, None]:
    """Yield ``function(*task)`` for each task, in order, or a Crash for one that kills its process.

    For code that a hostile file can bring down. Otherwise it is like `process_map`.
    """
    resource_tracker.ensure_running()  # started later, it would let interrupts through
    lanes = [_Lane(function) for _ in range(num_processes)]
    waiting: deque[_Lane] = deque()
    try:
        for number, task in enumerate(tasks):
            lane = lanes[number % num_processes]
            lane.submit(task)
            waiting.append(lane)
            if len(waiting) >= 2 * num_processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for lane in lanes:
            lane.close()


class _Lane:
    """One child process after the other: when it dies, the task that it was at is known."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._pool = self._new_pool()
        self._pending: deque[tuple[tuple[Any, ...], Future[Any]]] = deque()

    def submit(self, task: tuple[Any, ...]) -> None:
        with _no_interrupts():
            try:
                future = self._pool.submit(self._function, *task)
            except BrokenExecutor as error:  # a task before it was the cause
                future = Future()
                future.set_exception(error)
        self._pending.append((task, future))

    def result(self) -> Any:
        _, future = self._pending.popleft()
        try:
            return _result(future, self._kill)
        except BrokenExecutor:
            self.close()
            self._pool = self._new_pool()
            tasks = [task for task, _ in self._pending]
            self._pending.clear()
            for task in tasks:
                self.submit(task)
            return Crash()

    def close(self) -> None:
        """End the process without waiting for it, since a file system may hang."""
        processes = self._processes()  # shutting down forgets them
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.kill()

    def _kill(self) -> None:
        for process in self._processes():
            process.kill()

    def _processes(self) -> list[BaseProcess]:
        return list((self._pool._processes or {}).values())

    @staticmethod
    def _new_pool() -> ProcessPoolExecutor:
        spawn = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(1, spawn, initializer=follow_parent)


def _result(future: Future[Any], kill: Callable[[], None]) -> Any:
    """Wait for a result; Ctrl-C kills the processes, which ends the wait."""
    from dali_pipelines.runtime.interrupts import interrupt_held

    # In the midst of the wait it could leave the future's lock taken, for ever.
    with interrupt_held(kill):
        return future.result()


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Hold Ctrl-C back; child processes started meanwhile leave it to this one for good."""
    # Not above: child processes import this module too, and have no need of the package.
    from dali_pipelines.runtime.interrupts import interrupt_held

    # A mask is inherited, but holds nothing back here: the system then gives the signal to another
    # thread, a library's say, and Python raises its error in the main thread all the same.
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
