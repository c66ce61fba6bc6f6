"""Where the time of a way goes: core-seconds an image, by what the cores do meanwhile.

Threads that read and decode count their own CPU time in a `Ledger`; DALI's threads are known by
name. What else computes carries images from one to the other. What is left of all cores is idle,
or busy with what is not of the way.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

import psutil

from benchmarks.measure.ledger import COUNTED, Ledger
from dali_pipelines.cli.run.stages import CpuTime

_DALI = ("[DALI]", "PrefetchWorker")
"""How the names of its threads begin."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Core-seconds an image; together they are the number of cores by the seconds an image."""

    read: float
    """Files, and what of them is unpacked by who reads."""
    decode: float
    """To pixels, by threads that are not DALI's."""
    graph: float
    """DALI's threads, which decode, flip and normalise at once; without DALI what flips and
    normalises."""
    transport: float
    """Everything else that computes: Python, pickling, copies between processes, collating."""
    wait: float
    """Cores that are idle, or that do what is not of this way; work of a GPU is in here."""


def parts_of(batches: Iterator[int], ahead: int, ledger: Ledger) -> Parts:
    """Go through one round, and say where its time went.

    Parameters
    ----------
    batches : iterator of int
        Numbers of images.
    ahead : int
        Batches that may be ready before: time begins behind them.
    ledger : Ledger
        That those who read and decode count in.
    """
    threads = _Threads()
    with ledger.counting():
        for _ in range(ahead):
            next(batches)
        done, dali, cpu, began = ledger.seconds(), *threads.seconds(), time.perf_counter()
        images = sum(batches)
        ended = time.perf_counter()
        dali_after, cpu_after = threads.seconds()
        done_after = ledger.seconds()
    read, decode, graph = (done_after[part] - done[part] for part in COUNTED)
    graph += dali_after - dali
    # Not below 0: a thread may be amid an image at the beginning, which it then counts as a whole.
    transport = max(0.0, cpu_after - cpu - read - decode - graph)
    cores = len(os.sched_getaffinity(0)) * (ended - began)
    return Parts(
        read=read / images,
        decode=decode / images,
        graph=graph / images,
        transport=transport / images,
        wait=max(0.0, cores - read - decode - graph - transport) / images,
    )


class _Threads:
    """The threads of this process and of all that came of it."""

    def __init__(self) -> None:
        here = psutil.Process()
        others = [child.pid for child in here.children(recursive=True)]
        self._processes = [*others, here.pid]  # this one last: looking is its own work

    def seconds(self) -> tuple[float, float]:
        """Return the CPU seconds of DALI's threads and of all, up to now."""
        dali = sum(CpuTime.of(pid, _DALI).used for pid in self._processes)
        return dali, sum(CpuTime.of(pid).used for pid in self._processes)
