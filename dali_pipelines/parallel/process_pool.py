"""Child processes that never outlive the command, and that Ctrl-C ends at once.

Not pebble's ProcessPool: its processes share a pipe, so that in 5.2.3, while this process is busy,
the task that killed one of them is not found, and all tasks fail (BrokenProcessPool).
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import (
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from functools import partial
from multiprocessing import resource_tracker
from typing import ParamSpec, TypeVar, cast

from dali_pipelines.runtime.interrupts import ctrl_c_blocked

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


_END_S = 2
"""For threads that wait for killed processes, which may hang in a file system."""


class Crash(Exception):
    """A task killed its process."""


class ProcessPool(Executor):
    """An Executor whose tasks run in child processes, one at a time in each.

    A task that kills its process raises Crash, and the others go on: for code that a hostile file
    can bring down. Processes are spawned, as the caller may have started threads or CUDA by now.
    They import functions by name, and the calling script with them.

    Parameters
    ----------
    num_processes : int
        Processes at most; they start with the first tasks.
    """

    def __init__(self, num_processes: int) -> None:
        resource_tracker.ensure_running()  # started later, it would let interrupts through
        self._threads = ThreadPoolExecutor(num_processes)
        self._own = threading.local()
        self._processes: set[ProcessPoolExecutor] = set()
        self._lock = threading.Lock()
        self._ended = False

    def submit(
        self,
        function: Callable[Arguments, Result],
        /,
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Future[Result]:
        """Let one of the processes call a function; return its Future."""
        return self._threads.submit(self._do, partial(function, *args, **kwargs))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End all processes, after their tasks or, without `wait`, at once.

        A file system may hang, so that a process does not end by itself.
        """
        if wait:
            self._threads.shutdown(cancel_futures=cancel_futures)
        with self._lock:
            self._ended = True
            managers = [_kill(process) for process in self._processes]
        self._threads.shutdown(wait=False, cancel_futures=True)
        # At the exit of Python one that is about to end would be woken by a pipe that it closes.
        until = time.monotonic() + _END_S
        for manager in filter(None, managers):
            manager.join(max(0, until - time.monotonic()))

    def _do(self, call: Callable[[], Result]) -> Result:
        """Do a task in the process that belongs to this thread: if it dies, its task is known."""
        try:
            process: ProcessPoolExecutor | None = getattr(self._own, "process", None)
            if process is None:
                process = self._own.process = self._start()
            return process.submit(call).result()
        except BrokenExecutor:
            self._own.process = None
            raise Crash from None

    def _start(self) -> ProcessPoolExecutor:
        spawn = multiprocessing.get_context("spawn")
        with self._lock:
            if self._ended:
                raise CancelledError
            process = ProcessPoolExecutor(1, spawn, initializer=follow_parent)
            # The process inherits it, and leaves Ctrl-C to this one for good.
            with ctrl_c_blocked():
                process.submit(os.getpid)  # which starts it
            # Its end of the pipe of results alone is left: if it is killed within one, the thread
            # that reads them finds the end of the pipe, and does not wait for the rest.
            process._result_queue._writer.close()  # type: ignore[attr-defined]
            self._processes.add(process)
        return process


def _kill(pool: ProcessPoolExecutor) -> threading.Thread | None:
    """Kill the process of a pool; return the thread of this process that looks after it."""
    # typeshed has another type for it.
    manager = cast("threading.Thread | None", pool._executor_manager_thread)
    for process in list((pool._processes or {}).values()):
        process.kill()
    pool.shutdown(wait=False, cancel_futures=True)
    return manager


def follow_parent() -> None:
    """Let this child process end when its parent is killed."""
    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
