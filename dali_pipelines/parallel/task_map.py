"""Results of many tasks in their order, from child processes or from the workers of an Executor."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import (
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ThreadPoolExecutor,
    wait,
)
from contextlib import closing, contextmanager
from itertools import islice
from typing import Any

from dali_pipelines.parallel.apart import apart
from dali_pipelines.parallel.process_pool import Crash, ProcessPool
from dali_pipelines.parallel.worker import WorkerError, at_worker
from dali_pipelines.runtime.interrupts import interrupt_held
from dali_pipelines.runtime.version import own_version
from readers.values import check_integer

Task = tuple[Any, ...]
"""Arguments of a function."""

AHEAD = 2
"""Tasks under way for each process. Results are taken in order, so this bounds the memory."""
MOST_AHEAD = 1024
"""The same for all workers of an Executor, whose number is not known."""
_AT_ONCE = 32
"""Small tasks that a worker gets together, or an interpreter that it starts for them."""
_POLL_S = 0.2
"""Seconds until a wait looks for Ctrl-C."""


def process_map(
    function: Callable[..., Any],
    tasks: Iterable[Task],
    num_processes: int,
    executor: Executor | None = None,
) -> Generator[Any, None, None]:
    """Yield ``function(*task)`` for each task, in order; closing it ends the processes at once.

    With an `executor` its workers do the tasks, else with one process this one.

    Raises
    ------
    Crash
        If a child process was killed.
    WorkerError
        If the workers of the executor cannot do the tasks.
    """
    if executor is not None:
        yield from _by_workers(executor, function, tasks)
    elif num_processes == 1:
        yield from (function(*task) for task in tasks)
    else:
        with closing(isolated_map(function, tasks, num_processes)) as results:
            for result in results:
                if isinstance(result, Crash):
                    raise result
                yield result


def isolated_map(
    function: Callable[..., Any],
    tasks: Iterable[Task],
    num_processes: int,
    executor: Executor | None = None,
) -> Generator[Any, None, None]:
    """Yield ``function(*task)`` for each task, in order, or a Crash for one that kills its process.

    For code that a hostile file can bring down. With an `executor` its workers do the tasks, in
    child processes of theirs.

    Raises
    ------
    WorkerError
        If the workers of the executor cannot do the tasks.
    """
    if executor is not None:
        calls = ((function, some) for some in _several(iter(tasks)))
        for results in _by_workers(executor, apart, calls):
            yield from results
        return
    pool = ProcessPool(num_processes)
    try:
        for future in _done(pool, function, tasks, AHEAD * num_processes):
            try:
                yield future.result()
            except Crash as crash:
                yield crash
    finally:
        pool.shutdown(wait=False)


def thread_map(
    function: Callable[[Any], Any],
    values: Iterable[Any],
    num_threads: int,
    executor: Executor | None = None,
) -> Generator[Any, None, None]:
    """Yield ``function(value)`` for each value, in order, from threads.

    With an `executor` these are threads of its workers.

    Raises
    ------
    ValueError
        If `num_threads` is not an integer, at least 1.
    WorkerError
        If the workers of the executor cannot do it.
    """
    check_integer("num_threads", num_threads, 1)
    if executor is not None:
        calls = ((function, some, num_threads) for some in _several(iter(values)))
        for results in _by_workers(executor, in_threads, calls):
            yield from results
        return
    with ThreadPoolExecutor(num_threads) as threads:
        tasks = ((value,) for value in values)
        for future in _done(threads, function, tasks, AHEAD * num_threads):
            yield future.result()


def in_threads(function: Callable[[Any], Any], values: list[Any], num_threads: int) -> list[Any]:
    """Return the results of `thread_map`."""
    return list(thread_map(function, values, num_threads))


def _several(values: Iterator[Any]) -> Iterator[list[Any]]:
    while some := list(islice(values, _AT_ONCE)):
        yield some


def _by_workers(
    executor: Executor, function: Callable[..., Any], tasks: Iterable[Task]
) -> Generator[Any, None, None]:
    calls = ((_Call(function, task).pickled(),) for task in tasks)
    with _worker_errors(), closing(_done(executor, pickle.loads, calls, MOST_AHEAD)) as done:
        for future in done:
            yield future.result()


@contextmanager
def _worker_errors() -> Iterator[None]:
    """Turn what an executor raises for tasks that it cannot do into a WorkerError."""
    try:
        yield
    except BrokenExecutor as error:
        raise WorkerError(f"the executor has lost a worker: {error}") from error
    except CancelledError as error:
        raise WorkerError("the executor has dropped a task: is its scheduler gone?") from error
    except (ImportError, AttributeError) as error:
        reason = "a worker cannot import what it needs, install the same dali-pipelines there"
        raise WorkerError(f"{reason}: {error}") from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("distributed", "mpi4py"):
            raise
        raise WorkerError(f"the executor has failed: {error}") from error


class _Call:
    """A call that is done as it is unpickled, and replaced by its result.

    Where a worker cannot import the package, its task fails, and not the worker: Dask's would be
    replaced for ever.
    """

    def __init__(self, function: Callable[..., Any], task: Task) -> None:
        self._reduced = at_worker, (own_version(), function, *task)

    def __reduce__(self) -> tuple[Callable[..., Any], Task]:
        return self._reduced

    def pickled(self) -> bytes:
        try:
            return pickle.dumps(self)
        except Exception as error:  # a __reduce__ may raise anything
            raise WorkerError(f"a task cannot be sent to the workers: {error}") from error


def _done(
    executor: Executor, function: Callable[..., Any], tasks: Iterable[Task], most: int
) -> Generator[Future[Any], None, None]:
    """Submit the tasks, at most so many ahead, and yield their Futures in order, once done."""
    waiting: deque[Future[Any]] = deque()
    try:
        for task in tasks:
            # In the midst of this, or of a wait, an interrupt could leave a lock taken, for ever.
            with interrupt_held():
                waiting.append(_submitted(executor, function, task))
            if len(waiting) >= most:
                yield _waited_for(waiting[0])
                waiting.popleft()
        while waiting:
            yield _waited_for(waiting[0])
            waiting.popleft()
    finally:
        for future in waiting:
            future.cancel()


def _submitted(executor: Executor, function: Callable[..., Any], task: Task) -> Future[Any]:
    try:
        return executor.submit(function, *task)
    except BrokenExecutor:
        raise
    except RuntimeError as error:  # as concurrent.futures says that it is shut down
        raise WorkerError(f"the executor takes no tasks: {error}: give a running one") from error


def _waited_for(future: Future[Any]) -> Future[Any]:
    while not future.done():
        with interrupt_held():
            wait([future], timeout=_POLL_S)
    return future
