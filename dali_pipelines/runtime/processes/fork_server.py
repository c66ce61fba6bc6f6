"""The fork server of multiprocessing: it imports the modules that all readers need, once."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from multiprocessing import forkserver, resource_tracker, spawn

from dali_pipelines.runtime.interrupts import ctrl_c_blocked
from readers.contract import Reader
from readers.fork_safe_lock import ForkSafeLock

MAIN = "DALI_PIPELINES_MAIN"
"""Environment variable with the main module that the fork server imports."""
_READERS_NEED = (
    "multiprocessing.popen_forkserver",
    "readers.worker.read_loop",
    "readers.source",
)
"""Modules that each reader process imports as it starts."""
_MAIN_KEYS = ("sys_argv", "init_main_from_name", "init_main_from_path")
_LONGEST = 100_000
"""Maximum length of our environment variable; Linux has a limit of 128 KiB."""


_starting = ForkSafeLock()
"""Only one thread at a time starts it, as all threads share the environment variables."""


def start_fork_server(reader: Reader, needed: Iterable[str] = ()) -> None:
    """Start the fork server, which imports the modules of all readers; no effect if it runs.

    It imports the modules of the Reader, those that are `needed` for its first row, and the script,
    while the graph is made. Readers that are forked from it afterwards start at once.
    """
    wrapped = getattr(reader, "reader", reader)  # of a ChannelsReader
    modules = [type(reader).__module__, type(wrapped).__module__, *needed]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        [*_READERS_NEED, *modules, "dali_pipelines.runtime.processes.main_module"]
    )
    try:
        resource_tracker.ensure_running()  # its start would unblock Ctrl-C
        with _starting, _inherited(), ctrl_c_blocked():
            forkserver.ensure_running()
    except OSError as error:
        if "AF_UNIX path too long" not in str(error):
            raise
        raise OSError(
            "the fork server cannot make its socket: the path of the folder for temporary files, "
            f"{tempfile.gettempdir()}, is too long; set TMPDIR to a shorter one"
        ) from None


@contextmanager
def _inherited() -> Iterator[None]:
    """Let a Python process that starts meanwhile import from the same folders as this one.

    Otherwise the fork server would import from the current folder first, which may have another
    module `readers`, and not from the folder of the script. The new process also gets the name of
    the main module.
    """
    found = spawn.get_preparation_data("fork server")
    main = json.dumps({name: found[name] for name in _MAIN_KEYS if name in found})
    variables = {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(map(str, sys.path))}
    if len(main) < _LONGEST:
        variables[MAIN] = main
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
