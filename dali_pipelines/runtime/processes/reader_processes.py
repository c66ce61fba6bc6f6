"""Reader processes on the side of their consumer: notice deaths, and end them all."""

from __future__ import annotations

import logging
import multiprocessing.process
import select
import signal
import socket
import time
from collections.abc import Sequence
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize

from dali_pipelines.runtime.interrupts import interruptible
from readers.worker.message_queue import MessageQueue

logger = logging.getLogger(__name__)

_GRACE_S = 1.0
"""Time for a reader to end by itself, and for the exit code of a dead one to arrive."""
_KILLED_S = 10.0
"""Time for a killed reader to end: the kernel may need some to free its memory."""

_CAUSES = {
    -signal.SIGBUS: "shared memory is full: give /dev/shm more room (docker run --shm-size, or "
    "--ipc=host), or use a smaller batch_size or prefetch",
    -signal.SIGKILL: "it was killed from outside, most likely because memory ran out: use fewer "
    "num_read_processes, or a smaller batch_size or prefetch",
    -signal.SIGSEGV: "it crashed while it read: run with fewer files to find the cause",
    -signal.SIGTERM: "it was stopped by SIGTERM",
    128 + signal.SIGTERM: "it was stopped by SIGTERM",  # exit code of an inherited handler
    0: "it ended early, see its own output for the reason",
}


_UNKNOWN = 255
"""Exit code that multiprocessing makes up where a fork server told none."""


class ReaderProcessError(RuntimeError):
    """A reader process has died; the pipelines are closed and can be started again."""


class ReaderProcesses:
    """The reader processes of one pipeline; replaces DALI's Observer, without a thread.

    They end at `close`, when this object is garbage-collected, and at exit before multiprocessing
    waits for its processes. A forked copy of this object does not end them.
    """

    def __init__(
        self,
        _context: object,
        processes: Sequence[BaseProcess],
        task_queues: Sequence[MessageQueue],
        result_queue: MessageQueue,
    ) -> None:
        self.processes = list(processes)
        self._codes: dict[int | None, int | None] = {}
        queues = [*task_queues, result_queue]
        for queue in queues:
            queue.wait = partial(_wait, self.processes)
        self.close = Finalize(self, _end, (self.processes, queues, self._codes), exitpriority=0)

    def death(self) -> str | None:
        """Return which reader has died and why; None if none has, or if they were ended."""
        if not self._codes and self.close.still_active():
            _note_ended(self.processes, self._codes, time.monotonic() + _GRACE_S)
        # Exit code 0 comes last: DALI ends the other readers after one has died.
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
        return f"its exit code is {code}"


def _wait(processes: Sequence[BaseProcess], end: socket.socket, event: int) -> bool:
    """Wait at the consumer's end of a queue while all readers live."""
    poll = select.poll()
    poll.register(end, event)
    for process in processes:
        poll.register(process.sentinel, select.POLLIN)
    return interruptible(poll.poll) == [(end.fileno(), event)]


def _end(
    processes: Sequence[BaseProcess],
    queues: Sequence[MessageQueue],
    codes: dict[int | None, int | None],
) -> None:
    deadline = time.monotonic() + _GRACE_S
    try:
        for queue in queues:
            queue.close()
        while len(codes) < len(processes) and time.monotonic() < deadline:
            _note_ended(processes, codes, deadline)
    finally:
        left = [process for process in processes if process.pid not in codes]
        for process in left:
            process.kill()
    deadline = time.monotonic() + _KILLED_S
    for process in left:
        process.join(max(0, deadline - time.monotonic()))
        if not wait([process.sentinel], 0):
            logger.warning(
                "reader process %d was killed and has not ended: a read of it may hang", process.pid
            )
            vars(multiprocessing.process)["_children"].discard(
                process
            )  # or multiprocessing would wait for it at exit


def _note_ended(
    processes: Sequence[BaseProcess], codes: dict[int | None, int | None], deadline: float
) -> None:
    """Wait until a reader has ended or the time is over; note the exit codes, None if unknown."""
    living = [process for process in processes if process.pid not in codes]
    ended = wait([process.sentinel for process in living], max(0, deadline - time.monotonic()))
    for process in living:
        if process.sentinel in ended:
            process.join(_GRACE_S)
            codes[process.pid] = process.exitcode
