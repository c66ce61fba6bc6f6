"""The fork server imports this, to import the main module once for all reader processes.

Python can preload ``"__main__"``, but many versions ignore it (python/cpython#126631). Each reader
would then import the script again, and PyTorch with it.
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
    current._inheriting = True  # as in a reader: a script without a guard cannot start processes
    try:
        # An import that fails here is repeated by the reader, which reports the error.
        with suppress(Exception, SystemExit):
            spawn.prepare(json.loads(os.environ.pop(MAIN, "{}")))
    finally:
        del current._inheriting
        # Otherwise each forked reader would write the rest again. A closed stream is None.
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
    if _threads() - before:
        _fork_once()
    if _threads() - before:
        # A fork could wait forever for a lock that a thread holds. Start again, without the main
        # module.
        os.execv(sys.executable, sys.orig_argv)


def _threads() -> set[str]:
    """Return the numbers of all threads except those of jemalloc, which handles forks."""
    tasks = Path("/proc/self/task")
    return {task.name for task in tasks.iterdir() if not _is_jemalloc(task)}


def _is_jemalloc(task: Path) -> bool:
    try:
        return (task / "comm").read_text() == "jemalloc_bg_thd\n"
    except OSError:  # it has just ended
        return True


def _fork_once() -> None:
    """Let OpenBLAS end its threads, as it does before a fork; scipy and cv2 each have their own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of forks beside threads
        child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def _current_process() -> Any:
    return process.current_process()


_import_main()
