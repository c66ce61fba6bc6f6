"""Reader processes on the side of their consumer: notice deaths, and end them all."""

from __future__ import annotations

import logging
import multiprocessing.process
import os
import signal
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize

from readers.worker.read_loop import NO_MEMORY

logger = logging.getLogger(__name__)

_GRACE_S = 1.0
"""Time for a reader to end by itself, and for the exit code of a dead one to arrive."""
_KILLED_S = 10.0
"""Time for a killed reader to end: the kernel may need some to free its memory."""

_CAUSES = {
    -signal.SIGBUS: "there was no memory for its samples: use a smaller batch_size or prefetch",
    -signal.SIGKILL: "it was killed from outside (SIGKILL), most likely as memory ran out: use "
    "fewer num_read_processes, or a smaller batch_size or prefetch",
    -signal.SIGSEGV: "it crashed while it read (SIGSEGV): run with fewer files to find the cause",
    -signal.SIGTERM: "it was stopped by SIGTERM",
    128 + signal.SIGTERM: "it was stopped by SIGTERM",  # exit code of an inherited handler
    NO_MEMORY: "there was no memory for its samples, see its own output for the reason: use a "
    "smaller batch_size or prefetch",
    0: "it ended early, see its own output for the reason",
}


_Codes = dict[int | None, int | None]
"""Exit codes by process, None for one that is unknown."""
_UNKNOWN = 255
"""Exit code that multiprocessing returns if the fork server did not report one."""


class _Exit:
    """The exit of a reader process: its descriptor can be read once the process has ended."""

    def __init__(self, process: BaseProcess) -> None:
        self._fd = process.sentinel
        # The sentinel is a pipe. Unless a fork server started the reader, its children inherit the
        # other end, and the pipe stays open until they end, too.
        if getattr(process, "_start_method", None) != "forkserver" and process.pid is not None:
            # The process has ended and SIGCHLD is ignored; or too many files are open; or this
            # system lacks the call.
            with suppress(OSError, AttributeError):
                self._fd = os.pidfd_open(process.pid)
                weakref.finalize(self, os.close, self._fd).atexit = False

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._fd


_Exits = dict[int | None, _Exit]
"""By process."""


class ReaderProcessError(RuntimeError):
    """A reader process has died; the pipelines are closed and can be started again."""


class ReaderProcesses:
    """The reader processes of one pipeline.

    They end at `close`, when this object is garbage-collected, or at exit, before multiprocessing
    waits for its processes. A forked copy of this object does not end them.

    Parameters
    ----------
    processes : sequence of BaseProcess
        They have been started.
    tell_end : callable
        Tells them to end.
    """

    def __init__(self, processes: Sequence[BaseProcess], tell_end: Callable[[], None]) -> None:
        self.processes = list(processes)
        self.exits: _Exits = {process.pid: _Exit(process) for process in processes}
        self._codes: _Codes = {}
        arguments = self.processes, self.exits, tell_end, self._codes
        self.close = Finalize(self, _end, arguments, exitpriority=0)

    def death(self) -> str | None:
        """Return which reader has died and why; None if none has, or after `close`."""
        if not self._codes and self.close.still_active():
            _note_ended(self.processes, self.exits, self._codes, time.monotonic() + _GRACE_S)
        # Exit code 0 comes last: these readers may have ended because another one died.
        for pid, code in sorted(self._codes.items(), key=lambda item: item[1] == 0):
            return f"reader process {pid} has died: {self._cause(code)}"
        return None

    def _cause(self, code: int | None) -> str:
        if code == _UNKNOWN and getattr(self.processes[0], "_start_method", None) == "forkserver":
            return "the fork server that started it was probably killed"
        return _cause(code)


def _cause(code: int | None) -> str:
    if code is None:
        return "its exit code is unknown, as SIGCHLD is ignored, or other code waited for it"
    if code in _CAUSES:
        return _CAUSES[code]
    try:
        return f"it was ended by {signal.Signals(-code).name}"
    except ValueError:  # it ended by itself, or by a signal without a name
        return f"its exit code is {code}, see its own output for the reason"


def _end(
    processes: Sequence[BaseProcess], exits: _Exits, tell_end: Callable[[], None], codes: _Codes
) -> None:
    try:
        tell_end()
        _wait(processes, exits, codes, _GRACE_S)
    finally:
        left = [process for process in processes if process.pid not in codes]
        for process in left:
            process.kill()
    killed: _Codes = {}
    _wait(left, exits, killed, _KILLED_S)
    for process in left:
        if process.pid not in killed:
            logger.warning(
                "reader process %d was killed and has not ended: its storage may hang", process.pid
            )
            # Otherwise multiprocessing would wait for it at exit.
            vars(multiprocessing.process)["_children"].discard(process)


def _wait(processes: Sequence[BaseProcess], exits: _Exits, codes: _Codes, seconds: float) -> None:
    """Wait until all have ended or the time is over, and note the exit codes."""
    deadline = time.monotonic() + seconds
    while len(codes) < len(processes) and time.monotonic() < deadline:
        _note_ended(processes, exits, codes, deadline)


def _note_ended(
    processes: Sequence[BaseProcess], exits: _Exits, codes: _Codes, deadline: float
) -> None:
    """Wait until a reader has ended or the time is over; note the exit codes, None if unknown."""
    living = {
        exits[process.pid].fileno(): process for process in processes if process.pid not in codes
    }
    ended = wait([*living], max(0, deadline - time.monotonic()))
    for end, process in living.items():
        if end in ended:
            # Not by join(): it would wait for a process that only closed its end of the pipe.
            grace = time.monotonic() + _GRACE_S
            while process.exitcode is None and time.monotonic() < grace:
                time.sleep(0.002)
            codes[process.pid] = process.exitcode
            process.join(0)  # multiprocessing forgets it
