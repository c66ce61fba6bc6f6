"""Imported by the fork server: the main module of its consumer, once for all reader processes.

Python's own way, ``"__main__"`` in the list of what is preloaded, has no effect in many versions
(python/cpython#126631): each reader would import the script again, and PyTorch with it.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from contextlib import suppress
from multiprocessing import process, spawn
from pathlib import Path
from typing import Any

from dali_pipelines.runtime.processes.fork_server import MAIN


def _import_main() -> None:
    before, current = _threads(), _current_process()
    current._inheriting = True  # as in a reader: what starts processes without a guard fails
    try:
        # A reader tries again what fails here, and tells.
        with suppress(Exception, SystemExit):
            spawn.prepare(json.loads(os.environ.pop(MAIN, "{}")))
    finally:
        del current._inheriting
        # Or each reader would write what is left in them. One that is closed is None.
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
    if _threads() - before:
        _fork_once()
    if _threads() - before:
        # Forks could wait for ever for what a thread has locked: without the main module.
        os.execv(sys.executable, sys.orig_argv)


def _threads() -> set[str]:
    """Return the numbers of all threads but those of jemalloc, which is made for forks."""
    tasks = Path("/proc/self/task")
    return {task.name for task in tasks.iterdir() if not _is_jemalloc(task)}


def _is_jemalloc(task: Path) -> bool:
    try:
        return (task / "comm").read_text() == "jemalloc_bg_thd\n"
    except OSError:  # it has just ended
        return True


def _fork_once() -> None:
    """Let OpenBLAS, which ends its threads before a fork, do so: scipy brings one, cv2 another."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of forks beside threads
        child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def _current_process() -> Any:
    return process.current_process()


_import_main()
