"""Times a Loader and prints the figures as JSON: run as a script, also with an older checkout."""

# Only what older versions have, too, is used, and no other module of the benchmarks.
from __future__ import annotations

import gc
import json
import os
import sys
import time
from itertools import chain, repeat
from typing import Any

import psutil

_WARM_UP = 8
"""Batches before the clock starts: queues are full then."""


def cpu_s(processes: list[psutil.Process]) -> float:
    """Return the CPU time that processes have taken, in seconds."""
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def main(job: dict[str, Any]) -> dict[str, float]:
    """Go through an archive for some seconds."""
    import dali_pipelines

    began = time.perf_counter()
    index = dali_pipelines.Index.from_paths(job["paths"])
    if job["mcu_rows"]:
        index = dali_pipelines.with_mcu_rows(index)
    index = index.select([*range(len(index))] * job["times"])
    factory = getattr(dali_pipelines, job["factory"])
    if not job["pinned"]:
        _let_cuda_refuse()
    options = {"devices": [job["device"]], "seed": 1, **job["settings"]}
    with dali_pipelines.Loader(factory, index, **options) as loader:
        batches = chain.from_iterable(repeat(loader))
        next(batches)
        first_s = time.perf_counter() - began
        for _ in range(_WARM_UP):
            next(batches)
        # A full collection takes 0.2 s now, and would fall on one of two that are compared.
        gc.collect()
        gc.freeze()
        others = psutil.Process().children(recursive=True)
        cpu = cpu_s(others), time.process_time(), time.thread_time()
        started, samples, steps = time.perf_counter(), 0, 0
        while time.perf_counter() - started < job["seconds"]:
            samples += len(next(batches)[0]["row"])
            steps += 1
        wall = time.perf_counter() - started
        readers, here, thread = (
            now - then
            for now, then in zip(
                (cpu_s(others), time.process_time(), time.thread_time()), cpu, strict=True
            )
        )
        memory = sum(process.memory_full_info().pss for process in [psutil.Process(), *others])
    return {
        "samples_per_s": samples / wall,
        "readers_ms": 1e3 * readers / samples,
        "consumer_ms": 1e3 * here / samples,
        "main_thread_us": 1e6 * thread / steps,
        "first_batch_s": first_s,
        "memory_mb": memory / 1e6,
    }


def _let_cuda_refuse() -> None:
    from dali_pipelines.runtime.pinned import Cuda

    def refuse(*_: Any) -> None:
        raise RuntimeError("memory is not page-locked in this benchmark")

    Cuda.register = refuse  # type: ignore[assignment, method-assign]


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))), flush=True)
    os._exit(0)
