"""Room in /dev/shm for what the consumer writes there itself: tasks for its readers.

DALI's shared memory is files that have a size but no pages yet. Where /dev/shm is full, who writes
to such a page is killed by SIGBUS: a reader's death can be told, that of the consumer cannot.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nvidia.dali._multiproc.shared_mem import SharedMem

_HEAD = 64 << 10
"""Bytes at the start of each piece of shared memory: a queue, or a task in front of samples."""


@contextmanager
def room_for_tasks() -> Iterator[None]:
    """Let DALI reserve the head of what it allocates meanwhile.

    Raises
    ------
    OSError
        If /dev/shm is full, for these or for semaphores, which are files there, too.
    """
    allocate = SharedMem.allocate

    def allocated(size: int) -> Any:
        memory = allocate(size)
        os.posix_fallocate(memory.handle, 0, min(size, _HEAD))
        return memory

    # DALI has no other way in; it starts pools one after the other.
    SharedMem.allocate = allocated
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        remedy = "give it more room (docker run --shm-size, or --ipc=host)"
        reason = f"no reader can be started, /dev/shm is full: {remedy}"
        raise OSError(errno.ENOSPC, reason) from error
    finally:
        SharedMem.allocate = allocate
