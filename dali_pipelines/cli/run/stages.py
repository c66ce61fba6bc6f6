"""Time of a run, stage by stage, on which the advice is based; CPU time as Linux counts it."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from dali_pipelines.runtime.cgroup import usable_cores

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dali_pipelines import Loader, LoaderStats

_DALI_THREADS = "[DALI]"
_PROC = Path("/proc")


@dataclass(frozen=True, kw_only=True)
class Stages:
    """Figures of one process between two moments of a run; seconds are summed over what works."""

    seconds: float
    """Between the two moments."""
    samples: int
    """Delivered, over all shards of this process."""
    input_bytes: int
    """Read from files."""
    wait_s: float
    """The consumer waited for batches; for the rest of the time it had one."""
    wait_readers_s: float
    """Of these, until the readers had delivered and the graph was fed."""
    wait_graph_s: float
    """Of these, until the graph was done."""
    read_s: float
    """Readers were at work on samples, summed over those that one of them reads at a time."""
    read_cpu_s: float
    """Of these, they computed."""
    read_queued_s: float
    """Of these, they could have computed, but had no core; at most the rest."""
    graph_cpu_s: float
    """DALI's threads computed."""
    graph_queued_s: float
    """They could have computed, but had no core."""
    python_cpu_s: float
    """All other threads of this process computed: one at a time while they run Python."""
    cpu_busy: float
    """Share of the machine's CPU time that was used, by any program."""
    num_read_processes: int
    num_threads: int
    """DALI's threads, of all shards of this process."""
    num_shards: int
    """Of this process."""
    batch_size: int
    """Of a shard."""
    ahead: int
    """Batches that are kept ready, by the readers and again by the graph."""
    cores: float
    """That this process may use; less than one is a share of one."""
    gpus: bool
    """Whether the graph runs on GPUs."""
    read_threads: int = 1
    """Samples that a reader reads at the same time, at most."""
    requests: int = 0
    """To remote storage."""

    @property
    def wait_fraction(self) -> float:
        """Share of the time that the consumer waited."""
        return self.wait_s / max(1e-9, self.seconds)

    @property
    def readers_busy(self) -> float:
        """Share of the readers' time that they computed, or were at as many samples as they may."""
        readers_s = max(1e-9, self.num_read_processes * self.seconds)
        return min(1.0, max(self.read_s / self.reads_at_once, self.read_cpu_s) / readers_s)

    @property
    def asked_ahead(self) -> float:
        """Samples that DALI has asked of a reader at any time."""
        return self.ahead * self.batch_size * self.num_shards / self.num_read_processes

    @property
    def reads_at_once(self) -> float:
        """Samples that a reader may be at at any time."""
        return max(1.0, min(self.read_threads, self.asked_ahead))

    @property
    def sample_s(self) -> float:
        """Seconds that a reader that has a core takes for each sample of those it reads at once."""
        read_s = (self.read_s - self.read_queued_s) / self.reads_at_once
        return max(read_s, self.read_cpu_s) / max(1, self.samples)

    @property
    def readers_compute(self) -> float:
        """Share of the readers' time that they computed, by one thread at a time."""
        return self.read_cpu_s / max(1e-9, self.num_read_processes * self.seconds)

    @property
    def graph_busy(self) -> float:
        """Share of the time of DALI's threads that they computed, or could have."""
        worked = self.graph_cpu_s + self.graph_queued_s
        return min(1.0, worked / max(1e-9, self.num_threads * self.seconds))

    @property
    def cores_used(self) -> float:
        """Cores that were busy with reading and with the graph, on average."""
        return (self.read_cpu_s + self.graph_cpu_s) / max(1e-9, self.seconds)

    @property
    def cores_elsewhere(self) -> float:
        """Cores that were busy with anything else, of those that this process may use."""
        return max(0.0, self.cores * self.cpu_busy - self.cores_used)

    @property
    def cores_idle(self) -> float:
        """Cores that more readers or threads would find."""
        # The share is of the machine, which can have more cores than this process may use.
        return self.cores - max(self.cores_used, self.cores * self.cpu_busy)

    @property
    def blocked_s(self) -> float:
        """Seconds that readers waited for files."""
        return self.read_s - self.read_cpu_s - self.read_queued_s


@dataclass(frozen=True, slots=True)
class CpuTime:
    """CPU time of some threads, in seconds, since they began."""

    used: float = 0.0
    """On a core."""
    queued: float = 0.0
    """Able to run, while others had the cores, or a control group had used up its share."""

    def __add__(self, other: CpuTime) -> CpuTime:
        return CpuTime(self.used + other.used, self.queued + other.queued)

    def __sub__(self, other: CpuTime) -> CpuTime:
        return CpuTime(self.used - other.used, self.queued - other.queued)

    @classmethod
    def of(cls, pid: int | str = "self", name: str | tuple[str, ...] = "") -> CpuTime:
        """Add up the threads of a process whose names begin so; DALI's begin with ``[DALI]``.

        A process that has ended counts nothing.

        ``/proc/PID/task/TID/schedstat``, see proc_pid_schedstat(5): nanoseconds on a core, and
        nanoseconds on a run queue. Where the kernel does not count, there are zeros.
        """
        total = cls()
        try:
            tasks = list((_PROC / str(pid) / "task").iterdir())
        except OSError:
            return total
        for task in tasks:
            try:
                if name and not (task / "comm").read_text(encoding="utf-8").startswith(name):
                    continue
                used, queued = (task / "schedstat").read_text(encoding="utf-8").split()[:2]
            except OSError:  # it has ended meanwhile, or the kernel does not count
                continue
            total += cls(int(used) / 1e9, int(queued) / 1e9)
        return total


@dataclass(frozen=True)
class Moment:
    """The counts of a Loader at one moment of a run."""

    at: float
    stats: LoaderStats
    readers: Mapping[int, CpuTime]
    """By process ID."""
    graph: CpuTime
    process: CpuTime
    """All threads of this process."""
    machine: Any
    """As psutil gives it."""

    @classmethod
    def of(cls, loader: Loader) -> Moment:
        """Read all counts now."""
        readers = [process for pipeline in loader.pipelines for process in pipeline.processes()]
        return cls(
            at=time.perf_counter(),
            stats=replace(loader.stats),
            readers={reader.pid: CpuTime.of(reader.pid) for reader in readers if reader.pid},
            graph=CpuTime.of(name=_DALI_THREADS),
            process=CpuTime.of(),
            machine=psutil.cpu_times(),
        )

    def stages(self, loader: Loader) -> Stages:
        """Return the figures of the same Loader since then, without the start of readers."""
        now = Moment.of(loader)

        def counted(name: str) -> Any:
            return getattr(now.stats, name) - getattr(self.stats, name)

        queued = sum(
            (used - self.readers.get(pid, CpuTime())).queued for pid, used in now.readers.items()
        )
        graph = now.graph - self.graph
        first = loader.pipelines[0]
        return Stages(
            seconds=max(1e-9, now.at - self.at - counted("start_s")),
            samples=counted("samples"),
            input_bytes=counted("input_bytes"),
            wait_s=counted("wait_s"),
            wait_readers_s=counted("wait_readers_s"),
            wait_graph_s=counted("wait_graph_s"),
            read_s=counted("read_s"),
            read_cpu_s=counted("read_cpu_s"),
            read_queued_s=min(queued, counted("read_s") - counted("read_cpu_s")),
            graph_cpu_s=graph.used,
            graph_queued_s=graph.queued,
            python_cpu_s=max(0.0, (now.process - self.process).used - graph.used),
            cpu_busy=_busy(self.machine, now.machine),
            num_read_processes=sum(each.num_read_processes for each in loader.pipelines),
            num_threads=sum(each.num_threads for each in loader.pipelines),
            num_shards=len(loader.pipelines),
            batch_size=first.max_batch_size,
            ahead=first.ahead,
            cores=usable_cores(),
            gpus=first.device_id is not None,
            read_threads=first.source.read_threads,
            requests=counted("requests"),
        )


def _busy(before: Any, after: Any) -> float:
    """Share of CPU time between two `psutil.cpu_times` that was not idle."""
    total = sum(after) - sum(before)
    idle = (after.idle + after.iowait) - (before.idle + before.iowait)
    return 1 - idle / total if total > 0 else 0.0
