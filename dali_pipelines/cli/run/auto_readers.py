"""``--num_read_processes=auto``: how many readers keep the graph busy, from a short measurement."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dali_pipelines.cli.run.advice import readers_needed
from dali_pipelines.cli.run.stages import Moment
from dali_pipelines.cli.run_config import RunConfig, new_loader

if TYPE_CHECKING:
    from dali_pipelines import Index, Loader
    from dali_pipelines.runtime.ranks import Ranks

_SECONDS = 1.5
"""Length of the measurement after its first batch."""
_PER_CORE = 8
"""Most readers for each core: readers that wait for files need no CPU, but memory."""


@dataclass(frozen=True, kw_only=True)
class Service:
    """Time that one sample takes in each stage, in seconds."""

    read_s: float
    """Of one reader that has a core; its share where it reads several at a time."""
    read_cpu_s: float
    """Of these, it computes."""
    graph_s: float
    """Of the graph, from batch to batch, while its input is at hand and its threads have cores."""
    graph_cpu_s: float
    """CPU time of all its threads."""

    def readers(self, cores: float) -> int:
        """Return the readers that one graph needs to be busy, if the cores of both allow that."""
        cpu_s = self.read_cpu_s + self.graph_cpu_s
        rate = 1 / max(1e-9, self.graph_s, cpu_s / cores)
        return readers_needed(read_s=self.read_s, rate=rate)


@dataclass(frozen=True)
class Choice:
    """A number of readers, and why."""

    num_read_processes: int
    """Of all shards of one process."""
    because: str


def choose(
    service: Service | None, *, shards: int, cores: float, most: Mapping[str, int]
) -> Choice:
    """Choose for the shards of one process, which all get as many.

    Each has this number of `cores`; `most` has upper bounds of its readers, by their reasons.
    Without a `service` no sample could be read, and one reader each is enough to see that again.
    """
    if service is None:
        return Choice(shards, "none of the first samples can be read")
    wanted = service.readers(cores)
    bound = min(most, key=lambda name: most[name])
    count = max(1, min(wanted, most[bound]))
    because = (
        f"a sample takes a reader {1e3 * service.read_s:.3g} ms, of which it computes "
        f"{1e3 * service.read_cpu_s:.3g}, and the graph {1e3 * service.graph_s:.3g} ms"
    )
    if count < wanted:
        because += f"; {wanted * shards} would keep it busy, but {bound} bounds them"
    return Choice(count * shards, because)


def choose_readers(
    config: RunConfig, index: Index, devices: Sequence[int | None], ranks: Ranks, cores: float
) -> Choice:
    """Measure with one reader on the first device, and choose for all; each has `cores` cores.

    Raises
    ------
    ValueError
        If that would initialise CUDA before readers are forked.
    """
    if config.pipeline_config.start_method == "fork" and devices[0] is not None:
        raise ValueError(
            "--num_read_processes=auto tries the GPU out, and after that no readers can be forked: "
            "use another --start_method, or give their number"
        )
    threads = config.pipeline_config.num_threads
    # Large batches say no more on a CPU, and take longer.
    size = config.batch_size if devices[0] is not None else 2 * threads
    trial = replace(
        config,
        batch_size=min(config.batch_size, size),
        num_threads=threads,
        # So that the wait for the graph is all of its time.
        settings={**config.settings, "prefetch": 1, "tail": "partial"},
        epochs=2,
        bad_sample="skip",
        max_bad=None,
    )
    service = measure(new_loader(trial, index, devices[:1]))
    most = {"the number of cores": round(_PER_CORE * cores), **_most(config, index, devices, ranks)}
    return choose(service, shards=len(devices), cores=cores, most=most)


def measure(loader: Loader) -> Service | None:
    """Read for a moment by a Loader with one reader, prefetch 1 and two epochs to go.

    Return None if there was no sample.
    """
    with loader:
        before = Moment.of(loader)
        batches = (batch for _ in range(2) for batch in loader)
        for count, _ in enumerate(batches):
            if count == 0:  # the first one waits for imports, and for memory
                before = Moment.of(loader)
            elif time.perf_counter() > before.at + _SECONDS:
                break
        stages = before.stages(loader)
    if stages.samples == 0:
        return None
    worked = stages.graph_cpu_s + stages.graph_queued_s
    on_cores = stages.graph_cpu_s / worked if worked > 0 else 1.0
    return Service(
        read_s=stages.sample_s,
        read_cpu_s=stages.read_cpu_s / stages.samples,
        graph_s=stages.wait_graph_s * on_cores / stages.samples,
        graph_cpu_s=stages.graph_cpu_s / stages.samples,
    )


def _most(
    config: RunConfig, index: Index, devices: Sequence[int | None], ranks: Ranks
) -> dict[str, int]:
    """Return upper bounds of the readers of a shard: by samples kept ready, and by memory."""
    from dali_pipelines.memory import estimate_memory, free_memory

    one, two = (
        new_loader(
            replace(config, num_read_processes=count * len(devices)), index, devices
        ).make_pipelines()
        for count in (1, 2)
    )
    needed, more = (estimate_memory(made, ranks.local_world_size).total for made in (one, two))
    return {
        "the number of samples kept ready (--batch_size, --prefetch)": (
            config.batch_size * one[0].ahead
        ),
        "memory": 1 + max(0, free_memory() - needed) // (more - needed),
    }
