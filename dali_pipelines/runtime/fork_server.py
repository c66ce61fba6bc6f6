"""The fork server of multiprocessing, which imports DALI once for all reader processes."""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver, resource_tracker

from dali_pipelines.runtime.dali_private import WORKER_MODULE
from dali_pipelines.runtime.interrupts import ctrl_c_blocked
from readers.contract import Reader


def start_fork_server(reader: Reader) -> None:
    """Start the fork server, which imports what all readers need; no effect if it runs already.

    It imports while the graph is made, so that the readers it forks afterwards start at once.
    """
    wrapped = getattr(reader, "reader", reader)  # of a ChannelsReader
    modules = [type(reader).__module__, type(wrapped).__module__, *getattr(wrapped, "preload", ())]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        # Python preloads only __main__ by default.
        ["__main__", WORKER_MODULE, "readers.source", *modules]
    )
    try:
        resource_tracker.ensure_running()  # it would unblock Ctrl-C
        with _path_inherited(), ctrl_c_blocked():
            forkserver.ensure_running()
    except OSError as error:
        if "AF_UNIX path too long" not in str(error):
            raise
        raise OSError(
            "the fork server cannot make its socket: the path of the folder for temporary files, "
            f"{tempfile.gettempdir()}, is too long; set TMPDIR to a shorter one"
        ) from None


@contextmanager
def _path_inherited() -> Iterator[None]:
    """Let a Python process that starts meanwhile import from the same folders as this one.

    The fork server would import from the current folder first, which may hold other `readers`, and
    not from the folder of the script.
    """
    before = {name: os.environ.get(name) for name in ("PYTHONSAFEPATH", "PYTHONPATH")}
    os.environ.update(PYTHONSAFEPATH="1", PYTHONPATH=os.pathsep.join(map(str, sys.path)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
