"""Ways that are gone in processes of their own, one for each shard."""

# The child processes import this file.
from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import cast

from benchmarks.measure.race import Batch, Run
from readers.worker.parent_watch import die_with

Start = Callable[[], AbstractContextManager[Run]]
"""Of a `Way`; picklable here."""


@contextmanager
def in_processes(starts: list[Start]) -> Iterator[Run]:
    """Start each in a process of its own; batches come in the order they are ready in."""
    spawn = multiprocessing.get_context("spawn")
    ends: list[Connection] = []
    children = []
    for start in starts:
        mine, its = spawn.Pipe()
        children.append(spawn.Process(target=_drive, args=(start, its)))
        children[-1].start()
        its.close()
        ends.append(mine)
    try:
        yield partial(_collected, ends)
    finally:
        for end in ends:
            end.close()
        for child in children:
            child.join()


def _collected(ends: list[Connection], pixels: bool) -> Iterator[Batch]:
    busy = list(ends)
    try:
        for end in ends:
            end.send(pixels)
        while busy:
            for end in cast("list[Connection]", wait(busy)):
                batch = end.recv()
                if batch is None:
                    busy.remove(end)
                else:
                    yield batch
    except (EOFError, ConnectionError):
        raise ChildProcessError("a process died that drives a pipeline: see above") from None


def _drive(start: Start, end: Connection) -> None:
    """Return a round of batches each time that it is asked for; the end of the pipe is the end."""
    die_with(os.getppid())
    with start() as run:
        while True:
            try:
                pixels = end.recv()
            except EOFError:
                return
            for rows, images in run(pixels):
                end.send((rows, images.cpu().numpy() if pixels else [None] * len(rows)))
            end.send(None)
