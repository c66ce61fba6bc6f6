"""End DALI's worker pool, whatever has become of its processes.

DALI's observer thread tells idle workers to go through a condition variable, and waits for one to
wake. A worker that was killed in its sleep never does, and one that was killed at work may have
held the lock. The observer looks for such a death first, but may look a moment too early.
"""

from __future__ import annotations

import sys
import threading
from multiprocessing.connection import wait
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
    sentinels = [process.sentinel for process in pool.pool._processes]
    closed = threading.Event()
    helper = threading.Thread(target=_free, args=(observer, sentinels, closed), daemon=True)
    helper.start()
    try:
        pool.close()
    finally:
        closed.set()
        helper.join()


def _free(observer: Any, sentinels: list[int], closed: threading.Event) -> None:
    """Do in the place of dead workers what the observer waits for, as long as it does."""
    while observer is not None and not closed.wait(_GRACE_S):
        if observer.thread is None or not wait(sentinels, timeout=0):
            continue
        frame: FrameType | None = sys._current_frames().get(observer.thread.ident)
        while frame is not None:
            owner: Any = frame.f_locals.get("self")
            if frame.f_code.co_name == "notify":
                owner._woken_count.release()  # CPython's Condition: "I woke up"
                break
            if frame.f_code.co_name == "close" and hasattr(owner, "cv_not_empty"):
                owner.lock.release()  # DALI's queue; the living hold it for microseconds
                break
            frame = frame.f_back
