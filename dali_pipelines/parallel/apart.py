"""Calls in an interpreter of their own, for code that a hostile file can bring down.

Workers of an Executor may be daemons, which multiprocessing forbids child processes, or threads
beside others, or ranks of MPI, which may not be killed.
"""

from __future__ import annotations

import io
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dali_pipelines.parallel.process_pool import Crash
from dali_pipelines.parallel.worker import fail
from readers.worker.parent_watch import die_with


def apart(function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Return ``function(*task)`` for each task, or a Crash for one that kills the interpreter.

    Interpreters end with this process.

    Raises
    ------
    WorkerError
        If they cannot do any task.
    """
    results: list[Any] = []
    while len(results) < len(tasks):
        results += _results(function, tasks[len(results) :])
        if len(results) < len(tasks):
            results.append(Crash())
    return results


def _results(function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
    """Yield the results that a new interpreter has until it ends."""
    ended = subprocess.run(
        [sys.executable, "-m", "dali_pipelines.parallel.apart", str(os.getpid())],
        input=pickle.dumps((function, tasks)),
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=False,
    )
    answers = io.BytesIO(ended.stdout)
    if answers.read(len(_READY)) != _READY:
        fail(f"cannot start {sys.executable}, which ends with status {ended.returncode}")
    while True:
        try:
            succeeded, result = pickle.load(answers)
        except (EOFError, pickle.UnpicklingError):  # none, or cut off
            return
        if not succeeded:
            raise result
        yield result


_READY = b"ready"


def main() -> None:
    """Do the tasks that stand on stdin, and write their results to stdout."""
    die_with(int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the worker decides
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # what libraries print
        function, tasks = pickle.load(sys.stdin.buffer)
        answers.write(_READY)
        for task in tasks:
            answers.flush()
            try:
                answer = True, function(*task)
            except Exception as error:
                answer = False, error
            answers.write(pickle.dumps(answer))


if __name__ == "__main__":
    main()
