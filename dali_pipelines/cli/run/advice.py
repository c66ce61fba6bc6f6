"""Bottleneck of a run and its remedy, found from the times of its stages."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from dali_pipelines.cli.run.stages import Stages

Limit = Literal["consumer", "storage", "readers", "graph", "cpu", "transport"]
"""Stage that limits the run: all others wait for it.

consumer   takes batches later than they are ready
storage    readers wait for files
readers    readers compute, and there are cores for more of them
graph      DALI's graph is slowest: transfer, decode, transforms
cpu        readers or graph, and no core is left for more of them
transport  neither is busy: samples wait on their way between the two
"""

_KEEPS_UP = 0.1
"""The consumer is the limit, not loading, if it waits for less than this share of the time."""
_FED_LATE = 0.15
"""Share of the consumer's wait that is spent on readers, if they are as fast as the graph."""
_FULL = 0.8
"""DALI's threads count as always busy above this share of the time."""
_IDLE = 0.6
"""More readers would be idle, too, if the readers are busy for less than this share."""
_QUEUED = 0.3
"""There are too few cores if more than this share of the work time is spent on waiting for one."""
_SPARE_CORE = 0.4
"""Number of idle cores that makes one more process or thread worthwhile."""
_HEADROOM = 1.2
"""Factor for the number of readers, because readers that are always busy are sometimes late."""
_BATCH_OF_GPU = 16
"""Number of whole frames that an H100 decodes in 3.3 ms; one takes 2.6 ms (gpu_1xh100 in
benchmarks)."""
_MOST_THREADS = 64
"""Maximum number of samples that a reader is advised to read at a time."""
_STEP = 4
"""Largest advised factor for the number of readers: times of few readers cannot predict more."""


@dataclass(frozen=True)
class Advice:
    """The limit of a run, and its remedy."""

    limit: Limit
    sentence: str
    change: Mapping[str, int] = field(default_factory=dict)
    """Flags of `run`, and values to try; empty where no flag helps."""


def advise(stages: Stages) -> Advice:
    """Find the stage of one process for which all others wait.

    If the consumer waits, it waits for the readers or for the graph. If both are equally fast, it
    waits mostly for the graph, because the readers continue meanwhile. A longer wait for the
    readers means that they are slower.
    """
    if stages.wait_fraction < _KEEPS_UP:
        return _consumer(stages)
    if stages.wait_readers_s < _FED_LATE * (stages.wait_readers_s + stages.wait_graph_s):
        return _graph(stages)
    if stages.readers_busy < _IDLE:
        if stages.graph_busy > _FULL:
            return _graph(stages)
        return _cpu(stages, "readers and graph") if _starved(stages) else _transport(stages)
    if stages.blocked_s > stages.read_s / 2 and stages.readers_compute < _FULL:
        return _store(stages) if stages.requests else _storage(stages)
    return _readers(stages)


def readers_needed(*, read_s: float, rate: float) -> int:
    """Return the number of readers that deliver `rate` samples a second, with some headroom.

    By Little's law the mean number of reads under way is the rate times the time of one read, in
    seconds, by a reader that has a core.
    """
    return max(1, math.ceil(_HEADROOM * read_s * rate))


def _consumer(stages: Stages) -> Advice:
    memory = " To save memory, try --prefetch=1." if stages.ahead > 1 else ""
    wait = _percent(stages.wait_fraction)
    return Advice("consumer", f"Loading keeps up: the consumer waits {wait} of the time.{memory}")


def _storage(stages: Stages) -> Advice:
    readers = _more_readers(stages)
    each = 1e3 / max(1, stages.samples)
    return Advice(
        "storage",
        f"Storage is the limit: a read takes {each * stages.read_s:.3g} ms, "
        f"{each * stages.blocked_s:.3g} ms of them waiting for files; all readers together get "
        f"{stages.input_bytes / stages.seconds / 1e6:.3g} MB/s. Try "
        f"--num_read_processes={readers}, as readers can wait at the same time. If that does not "
        "help, use faster storage or a smaller --crop.",
        {"num_read_processes": readers},
    )


def _store(stages: Stages) -> Advice:
    """Advise on remote storage: read more samples at a time."""
    each = 1e3 / max(1, stages.samples)
    threads = stages.read_threads
    more = min(_MOST_THREADS, 2 * threads)
    change = {"read_threads": more} if threads <= stages.asked_ahead and more > threads else {}
    wanted = change.get("read_threads", threads)
    if wanted > stages.asked_ahead:
        samples = stages.batch_size * stages.num_shards
        change["prefetch"] = math.ceil(wanted * stages.num_read_processes / samples)
    flags = " ".join(f"--{name}={value}" for name, value in change.items())
    less = (
        "a --cache, a smaller --crop, or for FITS and JPEG an Index with --fits_tiles or --mcu_rows"
    )
    remedy = f"Try {flags}, to read more samples at a time, or" if flags else "Try"
    return Advice(
        "storage",
        f"The store is the limit: a read takes {each * stages.read_s:.3g} ms, of which it waits "
        f"{each * stages.blocked_s:.3g} for {each * stages.requests / 1e3:.2g} requests; all "
        f"readers together get {stages.input_bytes / stages.seconds / 1e6:.3g} MB/s. {remedy} "
        f"{less}.",
        change,
    )


def _readers(stages: Stages) -> Advice:
    now, worked = stages.num_read_processes, stages.read_cpu_s + stages.read_queued_s
    if stages.cores_idle < _SPARE_CORE or stages.read_queued_s > _QUEUED * worked:
        return _cpu(stages, "the readers")
    # More readers than cores would only take turns.
    readers = min(_more_readers(stages), max(now + 1, int(stages.cores)))
    each = 1e3 / max(1, stages.samples)
    return Advice(
        "readers",
        f"The readers are the slowest part: each needs {each * stages.read_cpu_s:.3g} ms of CPU "
        f"time for a sample, and cores are idle. Try --num_read_processes={readers}.",
        {"num_read_processes": readers},
    )


def _graph(stages: Stages) -> Advice:
    slow = "The graph (transfer, decode, transforms) is the slowest part"
    if stages.gpus and stages.batch_size < _BATCH_OF_GPU:
        return Advice(
            "graph",
            f"{slow}, and a GPU decodes {_BATCH_OF_GPU} images in about the time of one. Try "
            f"--batch_size={_BATCH_OF_GPU}, more GPUs (--num_gpus) or a smaller --crop.",
            {"batch_size": _BATCH_OF_GPU},
        )
    if stages.gpus:
        return Advice("graph", f"{slow}. Use more GPUs (--num_gpus) or a smaller --crop.")
    queued = stages.graph_queued_s > _QUEUED * (stages.graph_cpu_s + stages.graph_queued_s)
    if queued or stages.cores_idle < _SPARE_CORE:
        return _cpu(stages, "the graph")
    threads = stages.num_threads // stages.num_shards
    if stages.batch_size <= threads:
        size = 2 * stages.batch_size
        return Advice(
            "graph",
            f"{slow}, and a batch of {stages.batch_size} keeps only {stages.batch_size} of its "
            f"threads busy. Try --batch_size={size}, a GPU or a smaller --crop.",
            {"batch_size": size},
        )
    more = threads + max(1, round(stages.cores_idle / stages.num_shards))
    return Advice(
        "graph",
        f"{slow}, and cores are idle. Try --num_threads={more}, a GPU or a smaller --crop.",
        {"num_threads": more},
    )


def _starved(stages: Stages) -> bool:
    """Return whether readers and graph spend much of their time waiting for a core."""
    queued = stages.read_queued_s + stages.graph_queued_s
    worked = stages.read_cpu_s + stages.graph_cpu_s
    return stages.cores_idle < _SPARE_CORE and queued > _QUEUED * (worked + queued)


def _cpu(stages: Stages, who: str) -> Advice:
    return Advice(
        "cpu",
        f"The CPU is the limit: no core is free for {who}. Of {stages.cores:g} cores, reading and "
        f"decoding use {stages.cores_used:.1f}, other programs and the rest of this one "
        f"{stages.cores_elsewhere:.1f}. Use {'' if stages.gpus else 'a GPU, '}more cores or a "
        "smaller --crop; more processes or threads will not help.",
    )


def _transport(stages: Stages) -> Advice:
    if stages.num_shards > 1 and stages.python_cpu_s > _FULL * stages.seconds:
        each = 1e6 * stages.python_cpu_s / max(1, stages.samples)
        readers = max(1, stages.num_read_processes // stages.num_shards)
        return Advice(
            "transport",
            f"Feeding the graphs is the limit: one process feeds all {stages.num_shards}, one "
            f"sample after the other, and needs {each:.3g} us for each. Start a process for each "
            f"GPU: torchrun --nproc_per_node={stages.num_shards} --no-python dali-pipelines run "
            f"--num_read_processes={readers}.",
        )
    if stages.batch_size < stages.num_read_processes / stages.num_shards or stages.ahead == 1:
        change = {"prefetch": stages.ahead + 1}
        remedy = f"--prefetch={stages.ahead + 1} or a larger --batch_size"
    else:
        change = {}
        remedy = "a smaller --crop, or for small images a larger --batch_size"
    return Advice(
        "transport",
        "Handing samples over to the graph is the limit: the readers are idle "
        f"{_percent(1 - stages.readers_busy)} of the time, but the graph waits for them. Try "
        f"{remedy}.",
        change,
    )


def _more_readers(stages: Stages) -> int:
    """Return the number of readers that keep all other stages busy, always more than now."""
    samples = max(1, stages.samples)
    cpu_s = (stages.read_cpu_s + stages.graph_cpu_s) / samples
    others = [
        stages.cores / cpu_s if cpu_s > 0 else math.inf,
        samples / max(1e-9, stages.seconds - stages.wait_s),
    ]
    if not stages.gpus and stages.graph_cpu_s > 0:
        others.append(samples * stages.num_threads / stages.graph_cpu_s)
    now = stages.num_read_processes
    rate = min(*others, _STEP * now / max(1e-9, stages.sample_s))
    return max(now + 1, min(_STEP * now, readers_needed(read_s=stages.sample_s, rate=rate)))


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
