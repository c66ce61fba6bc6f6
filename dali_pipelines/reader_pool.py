"""The parts of DALI's pool of reader processes that are replaced by others.

DALI has no other way in than the names in its modules. What it then shares with the readers has no
lock and no condition variable, see `readers.message_queue`, and there is no thread that watches
them, see `dali_pipelines.reader_processes`.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from nvidia.dali._multiproc import pool
from nvidia.dali._multiproc.messages import ShmMessageDesc
from nvidia.dali._multiproc.shared_mem import SharedMem

from dali_pipelines.reader_processes import ReaderProcessError, ReaderProcesses
from readers.message_queue import MessageQueue

_HEAD = 64 << 10
"""Bytes at the start of each piece of shared memory that hold a task, in front of the samples."""

_starting = threading.Lock()
"""What is replaced is replaced for all threads: they start their pools one after the other."""


@contextmanager
def started_readers() -> Iterator[list[ReaderProcesses]]:
    """Let DALI start a pool of reader processes, and add them to a list.

    Raises
    ------
    OSError
        If /dev/shm is full.
    ReaderProcessError
        If a reader dies.
    """
    readers: list[ReaderProcesses] = []

    def observe(*args: Any) -> ReaderProcesses:
        readers.append(ReaderProcesses(*args))
        return readers[-1]

    with (
        _starting,
        _replaced(pool, "ShmQueue", partial(MessageQueue, ShmMessageDesc)),
        _replaced(pool, "Observer", observe),
        _replaced(SharedMem, "allocate", partial(_allocate, SharedMem.allocate)),
    ):
        try:
            yield readers
        except (RuntimeError, ConnectionError, EOFError) as error:
            # That DALI's calls failed for it, and where, is of no use to anybody.
            if readers and (death := readers[-1].death()):
                raise ReaderProcessError(death) from None
            if isinstance(error, RuntimeError):
                raise
            cause = "a reader process, or the fork server, has died as it was started"
            raise ReaderProcessError(cause) from None
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            remedy = "give it more room (docker run --shm-size, or --ipc=host)"
            reason = f"no reader can be started, /dev/shm is full: {remedy}"
            raise OSError(errno.ENOSPC, reason) from None


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _allocate(allocate: Any, size: int) -> Any:
    """Allocate shared memory, with room for a task.

    DALI's is files that have a size but no pages yet. Where /dev/shm is full, who writes to such a
    page is killed by SIGBUS: a reader's death can be reported, that of the consumer cannot.
    """
    memory = allocate(size)
    os.posix_fallocate(memory.handle, 0, min(size, _HEAD))
    return memory
