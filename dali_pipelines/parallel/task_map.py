"""Results of many tasks, in order, from child processes, threads or the workers of an Executor."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from dali_pipelines.parallel.interpreter import Crash, Interpreter, isolated
from dali_pipelines.parallel.worker import WorkerError, at_worker
from dali_pipelines.runtime.version import own_version
from readers.values import check_integer

Task = tuple[Any, ...]
"""Arguments of a function."""

AHEAD = 2
"""Maximum number of tasks per process that start before the oldest result is taken."""
MOST_AHEAD = 1024
"""The same for all workers of an Executor together, as their number is not known."""
_AT_ONCE = 32
"""Number of small tasks that an Executor gets as one task."""
_LOOK_S = 1.0
"""Seconds of each wait for a result. Python may only notice a Ctrl-C when a wait ends."""


def process_map(
    function: Callable[..., Any],
    tasks: Iterable[Task],
    num_processes: int,
    executor: Executor | None = None,
) -> Generator[Any, None, None]:
    """Yield ``function(*task)`` for each task, in order. Closing it ends the processes at once.

    With an `executor` its workers do the tasks. With ``num_processes=1`` this process does them.

    Raises
    ------
    Crash
        As soon as a child process is killed, even if earlier tasks are not finished.
    WorkerError
        If the workers of the executor cannot do the tasks.
    """
    if executor is not None:
        yield from _by_workers(executor, function, tasks)
    elif num_processes == 1:
        yield from (function(*task) for task in tasks)
    else:
        yield from _by_interpreters(function, tasks, num_processes, a_crash_ends_all=True)


def isolated_map(
    function: Callable[..., Any],
    tasks: Iterable[Task],
    num_processes: int,
    executor: Executor | None = None,
) -> Generator[Any, None, None]:
    """Yield ``function(*task)`` for each task, in order, or a Crash if a task kills its process.

    For code that a hostile file can crash. With an `executor`, child processes of its workers do
    the tasks.

    Raises
    ------
    WorkerError
        If the workers of the executor cannot do the tasks.
    """
    if executor is not None:
        calls = ((function, some) for some in _several(iter(tasks)))
        for results in _by_workers(executor, isolated, calls):
            yield from results
        return
    yield from _by_interpreters(function, tasks, num_processes, a_crash_ends_all=False)


def thread_map(
    function: Callable[[Any], Any],
    values: Iterable[Any],
    num_threads: int,
    executor: Executor | None = None,
) -> Generator[Any, None, None]:
    """Yield ``function(value)`` for each value, in order, from threads.

    With an `executor` the threads are in its workers.

    Raises
    ------
    ValueError
        If `num_threads` is not an integer, at least 1.
    WorkerError
        If the workers of the executor cannot do the tasks.
    """
    check_integer("num_threads", num_threads, 1)
    if executor is not None:
        calls = ((function, some, num_threads) for some in _several(iter(values)))
        for results in _by_workers(executor, in_threads, calls):
            yield from results
        return
    tasks = ((value,) for value in values)
    yield from _in_order([partial(_do, function)] * num_threads, tasks, AHEAD * num_threads)


def in_threads(function: Callable[[Any], Any], values: list[Any], num_threads: int) -> list[Any]:
    """Return the results of `thread_map`."""
    return list(thread_map(function, values, num_threads))


def _by_interpreters(
    function: Callable[..., Any],
    tasks: Iterable[Task],
    num_processes: int,
    *,
    a_crash_ends_all: bool,
) -> Generator[Any, None, None]:
    interpreters = [Interpreter() for _ in range(num_processes)]

    def end() -> None:
        for one in interpreters:
            one.close()

    do = partial(_do, a_crash_ends_all=a_crash_ends_all)
    workers = [partial(do, partial(one, function)) for one in interpreters]
    yield from _in_order(workers, tasks, AHEAD * num_processes, end)


def _several(values: Iterator[Any]) -> Iterator[list[Any]]:
    while some := list(islice(values, _AT_ONCE)):
        yield some


def _by_workers(
    executor: Executor, function: Callable[..., Any], tasks: Iterable[Task]
) -> Generator[Any, None, None]:
    calls = ((_Call(function, task).pickled(),) for task in tasks)
    with _worker_errors():
        yield from _in_order([partial(_submit, executor, pickle.loads)], calls, MOST_AHEAD)


@contextmanager
def _worker_errors() -> Iterator[None]:
    """Convert errors of an executor to WorkerError."""
    try:
        yield
    except BrokenExecutor as error:
        raise WorkerError(f"the executor has lost a worker: {error}") from error
    except CancelledError as error:
        raise WorkerError(
            "the executor has cancelled a task: check that its scheduler is running"
        ) from error
    except (ImportError, AttributeError) as error:
        reason = "a worker cannot import the package"
        remedy = "install the same dali-pipelines on its machine"
        raise WorkerError(f"{reason}: {error}: {remedy}") from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("distributed", "mpi4py"):
            raise
        raise WorkerError(f"the executor has failed: {error}") from error


class _Call:
    """A call that unpickling replaces by its result.

    If a worker cannot import the package, only the task fails. An error of the worker itself would
    make Dask start new workers forever.
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


# ---- Threads that do tasks or submit them ------------------------------------------------------

_Jobs = SimpleQueue[tuple[int, Task] | None]
"""Numbers and tasks; None for no more."""
_Done = SimpleQueue[tuple[int | None, Future[Any]]]
"""Numbers of tasks, and their results. A Crash that ends all tasks has None as number."""


def _in_order(
    workers: Sequence[Callable[[_Jobs, _Done], None]],
    tasks: Iterable[Task],
    most: int,
    end: Callable[[], None] | None = None,
) -> Generator[Any, None, None]:
    """Let threads do the tasks, at most `most` ahead, and yield the results in order.

    When this is closed, the threads take no more tasks, and `end` stops tasks that are running.
    """
    # SimpleQueue is written in C. In other queues, Ctrl-C could leave a Condition locked.
    jobs: _Jobs = SimpleQueue()
    done: _Done = SimpleQueue()
    found: dict[int, Future[Any]] = {}
    asked, threads = 0, list[Thread]()
    try:
        for worker in workers:
            thread = Thread(target=worker, args=(jobs, done), daemon=True)
            thread.start()
            threads.append(thread)
        for task in tasks:
            jobs.put((asked, task))
            asked += 1
            if asked >= most:
                yield _result(asked - most, found, done)
        for number in range(max(0, asked - most + 1), asked):
            yield _result(number, found, done)
    finally:
        with suppress(Empty):
            while True:
                jobs.get_nowait()
        for _ in workers:
            jobs.put(None)
        if end is not None:
            end()
        for thread in threads:
            thread.join()


def _result(number: int, found: dict[int, Future[Any]], done: _Done) -> Any:
    while number not in found:
        try:
            other, future = done.get(timeout=_LOOK_S)
        except Empty:
            continue
        if other is None:
            raise future.result()
        found[other] = future
    return found.pop(number).result()


def _do(
    function: Callable[..., Any], jobs: _Jobs, done: _Done, *, a_crash_ends_all: bool = False
) -> None:
    """Do tasks in this thread. A Crash may end all tasks at once, even while earlier tasks run."""
    while (job := jobs.get()) is not None:
        future = _future(function, *job[1])
        is_crash = future.exception() is None and isinstance(future.result(), Crash)
        done.put((None if is_crash and a_crash_ends_all else job[0], future))


def _future(function: Callable[..., Any], *task: Any) -> Future[Any]:
    future = Future[Any]()
    try:
        future.set_result(function(*task))
    except BaseException as error:
        future.set_exception(error)
    return future


def _submit(executor: Executor, function: Callable[..., Any], jobs: _Jobs, done: _Done) -> None:
    """Submit tasks to an executor; at the end cancel the waiting ones."""
    waiting: dict[int, Future[Any]] = {}

    def note(number: int, future: Future[Any]) -> None:
        waiting.pop(number, None)
        done.put((number, future))

    while (job := jobs.get()) is not None:
        number, task = job
        future = _future(_submitted, executor, function, task)
        if future.exception() is None:
            future = waiting[number] = future.result()
        future.add_done_callback(partial(note, number))
    for future in list(waiting.values()):
        future.cancel()


def _submitted(executor: Executor, function: Callable[..., Any], task: Task) -> Future[Any]:
    try:
        return executor.submit(function, *task)
    except BrokenExecutor:
        raise
    except RuntimeError as error:  # concurrent.futures raises this after a shutdown
        raise WorkerError(f"the executor takes no tasks: {error}: pass a running one") from error
