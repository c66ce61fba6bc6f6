"""End DALI's worker pool, whatever has become of its processes.

DALI's observer thread tells idle workers to go through a condition variable, and waits for one to
wake. A worker that was killed in its sleep never does, and one that was killed at work may have
held the lock, as may a consumer that an error met in the midst of DALI's code. The observer looks
for such a death first, but may look a moment too early.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any

_GRACE_S = 1.0


def close_pool(pool: Any) -> None:
    """Close the worker pool of a pipeline and end its processes.

    Parameters
    ----------
    pool : nvidia.dali._multiproc.pool.WorkerPool
        Started.
    """
    observer = pool.pool._observer
    processes = list(pool.pool._processes)
    closed = threading.Event()
    helper = threading.Thread(target=_free, args=(observer, processes, closed), daemon=True)
    helper.start()
    try:
        pool.close()
    finally:
        closed.set()
        helper.join()
        # The observer does not come to that where it finds the condition variable in disorder.
        for process in processes:
            if process.is_alive():
                process.kill()
                process.join()


def _free(observer: Any, processes: Sequence[BaseProcess], closed: threading.Event) -> None:
    """Do in the place of dead workers what the observer waits for, as long as it does."""
    while observer is not None and not closed.wait(_GRACE_S):
        # They have no more to do, and the living would take what is freed.
        for process in processes:
            process.kill()
        queue, notifies = _place(observer.thread)
        if queue is None:
            continue
        if notifies:
            queue.cv_not_empty._woken_count.release()  # CPython's Condition: "I woke up"
        # Taking and giving back wakes the observer where a process took its wake-up to the grave.
        # The living hold the lock for microseconds: what is not to be had was left taken.
        elif queue.lock.acquire(timeout=_GRACE_S) or _place(observer.thread) == (queue, False):
            queue.lock.release()


def _place(thread: threading.Thread | None) -> tuple[Any, bool]:
    """Give the DALI queue that the observer is closing, and whether it now wakes a worker."""
    frame: FrameType | None = None
    if thread is not None and thread.ident is not None:
        frame = sys._current_frames().get(thread.ident)
    notifies = False
    while frame is not None:
        owner = frame.f_locals.get("self")
        notifies |= frame.f_code.co_name == "notify"
        if frame.f_code.co_name == "close" and hasattr(owner, "cv_not_empty"):
            return owner, notifies
        frame = frame.f_back
    return None, False
