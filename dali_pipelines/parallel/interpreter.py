"""Calls in another interpreter, for code that a hostile file can crash.

multiprocessing is not suitable. It forbids daemons to start processes, and workers of an Executor
may be daemons. Its pools share a pipe, so if a process is killed while it sends a result, the
others stop.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from multiprocessing.connection import Connection
from typing import Any

from dali_pipelines.parallel.worker import fail
from dali_pipelines.runtime.interrupts import ctrl_c_blocked
from readers.worker.parent_watch import die_with

_END_S = 2
"""Seconds to wait for the end of a killed interpreter, which may hang in a file system."""


class Crash(Exception):
    """A task killed its interpreter."""


class Interpreter:
    """An interpreter for one call after another. It ends with this process at the latest.

    It imports functions by name, from the same folders as this process. It ignores Ctrl-C.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._is_closed = False

    def __call__(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return ``function(*args)``, or a Crash if the call killed the interpreter.

        The next call starts a new interpreter. Raises the exceptions of the function, and
        WorkerError if no interpreter can be started.
        """
        with self._lock:
            if self._is_closed:
                return Crash()
            starts = self._process is None
            if starts:
                self._start()
        call = pickle.dumps((function, args))
        try:
            if starts:
                self._connection.recv_bytes()
                starts = False
            self._connection.send_bytes(call)
            answer = self._connection.recv_bytes()
        except (OSError, EOFError):
            with self._lock:
                status = self._end()
            if starts and not self._is_closed:
                fail(f"cannot start {sys.executable}: it ends with status {status}")
            return Crash()
        succeeded, result = pickle.loads(answer)
        if not succeeded:
            raise result
        return result

    def close(self) -> None:
        """Kill the interpreter. Any thread may do this, even during a call."""
        with self._lock:
            self._is_closed = True
            self._end()

    def _start(self) -> None:
        self._socket, theirs = socket.socketpair()
        path = os.pathsep.join(str(entry) or os.getcwd() for entry in sys.path)
        with theirs, ctrl_c_blocked():  # inherited, until the interpreter ignores Ctrl-C
            arguments = str(os.getpid()), str(theirs.fileno())
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, *arguments],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path},
                pass_fds=[theirs.fileno()],
            )
        self._connection = Connection(os.dup(self._socket.fileno()))

    def _end(self) -> int | None:
        """Kill the interpreter, if there is one; return its exit status."""
        process, self._process = self._process, None
        if process is None:
            return None
        process.kill()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # ends the wait of the other thread
        self._socket.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
        return process.returncode


def isolated(function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Return ``function(*task)`` for each task, or a Crash if the task kills its interpreter."""
    with closing(Interpreter()) as interpreter:
        return [interpreter(function, *task) for task in tasks]


def main() -> None:
    """Serve calls. The arguments are the id of the calling process, and a socket."""
    die_with(int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(2, 1)  # keeps output of libraries out of the output of a command
    with Connection(int(sys.argv[2])) as connection, suppress(EOFError):
        connection.send_bytes(b"ready")
        while True:
            connection.send_bytes(_answer(connection.recv_bytes()))


def _answer(call: bytes) -> bytes:
    try:
        function, args = pickle.loads(call)
        return pickle.dumps((True, function(*args)))
    except Exception as error:
        told = traceback.format_exc()
        error.add_note(f"In another interpreter:\n{told}")
        try:
            return pickle.dumps((False, error))
        except Exception:  # a __reduce__ may raise anything
            return pickle.dumps((False, RuntimeError(told)))


if __name__ == "__main__":
    main()
