"""Imported by the fork server: the main module of its consumer, once for all reader processes.

Python's own way, ``"__main__"`` in the list of what is preloaded, has no effect in many versions
(python/cpython#126631): each reader would import the script again, and PyTorch with it.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from multiprocessing import process, spawn
from typing import Any

from dali_pipelines.runtime.processes.fork_server import MAIN


def _import_main() -> None:
    threads, current = _num_threads(), _current_process()
    current._inheriting = True  # as in a reader: what starts processes without a guard fails
    try:
        # A reader tries again what fails here, and tells.
        with suppress(Exception, SystemExit):
            spawn.prepare(json.loads(os.environ.pop(MAIN, "{}")))
    finally:
        del current._inheriting
        for stream in (sys.stdout, sys.stderr):  # or each reader would write what is left in them
            stream.flush()
    if _num_threads() > threads:
        # Forks could wait for ever for what a thread has locked: without the main module.
        os.execv(sys.executable, sys.orig_argv)


def _num_threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _current_process() -> Any:
    return process.current_process()


_import_main()
