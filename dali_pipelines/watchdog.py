"""Notice the death of a reader process, which DALI does not always survive.

DALI raises when a reader dies at work. When one dies idle, its shared condition variable is left
waiting for the dead, and the consumer hangs in it for ever. The Watchdog waits for the death itself
and, where the consumer does not come back by itself, interrupts it by a signal. A reader that is
stuck in a read, on a file server that is gone say, is killed when the user has asked for an end.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from types import FrameType

_GRACE_S = 1.0
_SIGNAL = signal.SIGRTMIN + 5
"""A real-time signal, since schedulers such as Slurm use SIGUSR1 for their own purposes."""
_END_READERS, _STOP_WATCHING = b"!", b"."

_CAUSES = {
    -signal.SIGBUS: "shared memory is full: give /dev/shm more room (docker run --shm-size, or "
    "--ipc=host), or use a smaller batch_size or prefetch",
    -signal.SIGKILL: "it was killed from outside, most likely for want of memory: use fewer "
    "num_read_processes, or a smaller batch_size or prefetch",
    -signal.SIGSEGV: "it crashed while it read: run with fewer files to find the one that does it",
}


class ReaderProcessError(RuntimeError):
    """A reader process has died; the pipelines are closed and can be started again."""


class Watchdog:
    """Watch reader processes for one consumer.

    Parameters
    ----------
    processes : sequence of multiprocessing.Process
        The reader processes of all pipelines.
    """

    def __init__(self, processes: Sequence[BaseProcess]) -> None:
        self._processes = list(processes)
        self._news, self._tell = os.pipe()
        # Only the main thread runs Python's signal handlers, and sets them: a consumer in another
        # thread has DALI's own errors alone, and none where an idle reader dies. The handler stays:
        # without a wait it does nothing, and who closes may be in another thread.
        if threading.current_thread() is threading.main_thread():
            signal.signal(_SIGNAL, _interrupt)
        self._thread = threading.Thread(target=self._watch, name="reader-watchdog", daemon=True)
        self._thread.start()

    def __enter__(self) -> Watchdog:
        """Say that the consumer now waits for the readers."""
        global _waiting
        if threading.current_thread() is threading.main_thread():
            _waiting = self
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Turn DALI's vague error into one that says which process died, and why."""
        global _waiting
        if _waiting is self:
            _waiting = None
        if error is None or isinstance(error, ReaderProcessError):
            return
        if isinstance(error, RuntimeError) and (cause := self._diagnose()) is not None:
            raise ReaderProcessError(cause) from error
        # The signal may come where multiprocessing holds a lock but half, and its clearing up fails
        # with an error of its own.
        while (error := error.__context__) is not None:
            if isinstance(error, ReaderProcessError):
                raise error

    def interrupt(self) -> None:
        """End the consumer's wait soon, by the death of the readers if need be."""
        os.write(self._tell, _END_READERS)

    def close(self) -> None:
        """Stop watching, before the processes are ended on purpose."""
        if self._tell >= 0:
            # To close the pipe would not do: processes that were forked meanwhile, by a DataLoader
            # say, hold it open.
            os.write(self._tell, _STOP_WATCHING)
            self._thread.join()
            os.close(self._tell)
            os.close(self._news)
            self._tell = -1

    def _watch(self) -> None:
        sentinels = [process.sentinel for process in self._processes]
        if self._news in wait([*sentinels, self._news]):
            if self._closed_within(_GRACE_S):
                return
            for process in self._processes:
                process.kill()
        # DALI mostly tells by itself, within milliseconds; the signal is for when it hangs.
        while not self._closed_within(_GRACE_S):
            if _waiting is self:
                signal.pthread_kill(_main_thread_id(), _SIGNAL)

    def _closed_within(self, seconds: float) -> bool:
        while wait([self._news], timeout=seconds):
            if os.read(self._news, 1) == _STOP_WATCHING:
                return True
        return False

    def _diagnose(self) -> str | None:
        for process in self._processes:
            code = process.exitcode
            # DALI ends the other readers by SIGTERM when one has died.
            if code not in (None, 0, -signal.SIGTERM):
                cause = _CAUSES.get(code, f"its exit code is {code}")
                return f"reader process {process.pid} has died: {cause}"
        if any(process.exitcode is not None for process in self._processes):
            return "a reader process has ended early: it was told to stop by SIGTERM"
        return None

    def interrupt_wait(self) -> None:
        """End the wait of the main thread, which this is, by an error."""
        raise ReaderProcessError(self._diagnose() or "a reader process has died")


_waiting: Watchdog | None = None
"""Whose readers the main thread waits for."""


def _interrupt(number: int, frame: FrameType | None) -> None:
    del number, frame
    if _waiting is not None:
        _waiting.interrupt_wait()


def _main_thread_id() -> int:
    identity = threading.main_thread().ident
    assert identity is not None  # it runs
    return identity
