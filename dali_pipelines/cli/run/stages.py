"""Times of a run by stage, the basis of the advice; CPU times are counted by Linux."""

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
    """Figures of one process between two moments of a run; seconds are sums over all workers."""

    seconds: float
    """Wall time between the two moments."""
    samples: int
    """Delivered samples, over all shards of this process."""
    input_bytes: int
    """Bytes read from files."""
    wait_s: float
    """Seconds that the consumer waited for batches."""
    wait_readers_s: float
    """Part of `wait_s` until the readers had delivered and the graph was fed."""
    wait_graph_s: float
    """Part of `wait_s` until the graph was done."""
    read_s: float
    """Seconds that readers worked on samples, summed over the samples that they read at a time."""
    read_cpu_s: float
    """Part of `read_s` spent computing."""
    read_queued_s: float
    """Part of `read_s` spent waiting for a core."""
    graph_cpu_s: float
    """Seconds that DALI's threads computed."""
    graph_queued_s: float
    """Seconds that DALI's threads waited for a core."""
    python_cpu_s: float
    """Seconds that all other threads of this process computed: one at a time while they run
    Python."""
    cpu_busy: float
    """Share of the machine's CPU time that any program used."""
    num_read_processes: int
    num_threads: int
    """Number of DALI's threads, of all shards of this process."""
    num_shards: int
    """Number of shards of this process."""
    batch_size: int
    """Samples of a shard in each step."""
    ahead: int
    """Number of batches that the readers keep ready; the graph keeps as many."""
    cores: float
    """Number of cores that this process may use; less than 1 is a share of a core."""
    gpus: bool
    """Whether the graph runs on GPUs."""
    read_threads: int = 1
    """Maximum number of samples that a reader reads at the same time."""
    requests: int = 0
    """Requests to remote storage."""

    @property
    def wait_fraction(self) -> float:
        """Share of the time that the consumer waited."""
        return self.wait_s / max(1e-9, self.seconds)

    @property
    def readers_busy(self) -> float:
        """Share of the time that readers computed, or worked on as many samples as allowed."""
        readers_s = max(1e-9, self.num_read_processes * self.seconds)
        return min(1.0, max(self.read_s / self.reads_at_once, self.read_cpu_s) / readers_s)

    @property
    def asked_ahead(self) -> float:
        """Number of samples that DALI requests from a reader ahead of time."""
        return self.ahead * self.batch_size * self.num_shards / self.num_read_processes

    @property
    def reads_at_once(self) -> float:
        """Maximum number of samples on which a reader may work at a time."""
        return max(1.0, min(self.read_threads, self.asked_ahead))

    @property
    def sample_s(self) -> float:
        """Seconds that a reader with a core takes per sample, with several read at once."""
        read_s = (self.read_s - self.read_queued_s) / self.reads_at_once
        return max(read_s, self.read_cpu_s) / max(1, self.samples)

    @property
    def readers_compute(self) -> float:
        """Share of the readers' time spent on computing, by one thread at a time."""
        return self.read_cpu_s / max(1e-9, self.num_read_processes * self.seconds)

    @property
    def graph_busy(self) -> float:
        """Share of the time that DALI's threads computed, or waited for a core."""
        worked = self.graph_cpu_s + self.graph_queued_s
        return min(1.0, worked / max(1e-9, self.num_threads * self.seconds))

    @property
    def cores_used(self) -> float:
        """Mean number of cores that were busy with reading and with the graph."""
        return (self.read_cpu_s + self.graph_cpu_s) / max(1e-9, self.seconds)

    @property
    def cores_elsewhere(self) -> float:
        """Mean number of cores of this process that were busy with anything else."""
        return max(0.0, self.cores * self.cpu_busy - self.cores_used)

    @property
    def cores_idle(self) -> float:
        """Mean number of idle cores, for more readers or threads."""
        # The share is of the whole machine, and this process may not use all of its cores.
        return self.cores - max(self.cores_used, self.cores * self.cpu_busy)

    @property
    def blocked_s(self) -> float:
        """Seconds that readers waited for files."""
        return self.read_s - self.read_cpu_s - self.read_queued_s


@dataclass(frozen=True, slots=True)
class CpuTime:
    """CPU time of some threads, in seconds, since they began."""

    used: float = 0.0
    """Seconds on a core."""
    queued: float = 0.0
    """Seconds of waiting while others had the cores, or a control group had used up its share."""

    def __add__(self, other: CpuTime) -> CpuTime:
        return CpuTime(self.used + other.used, self.queued + other.queued)

    def __sub__(self, other: CpuTime) -> CpuTime:
        return CpuTime(self.used - other.used, self.queued - other.queued)

    @classmethod
    def of(cls, pid: int | str = "self", name: str | tuple[str, ...] = "") -> CpuTime:
        """Add up the threads of a process with this prefix of their names, such as ``[DALI]``.

        A process that has ended adds nothing.

        ``/proc/PID/task/TID/schedstat``, see proc_pid_schedstat(5): nanoseconds on a core, and
        nanoseconds on a run queue. They are zero if the kernel does not count.
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
            except OSError:  # the process has ended, or the kernel does not count
                continue
            total += cls(int(used) / 1e9, int(queued) / 1e9)
        return total


@dataclass(frozen=True)
class Moment:
    """The counts of a Loader at one moment of a run."""

    at: float
    stats: LoaderStats
    readers: Mapping[int, CpuTime]
    """CPU times of the readers by process ID."""
    graph: CpuTime
    process: CpuTime
    """All threads of this process."""
    machine: Any
    """Times of the machine, from psutil."""

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
        """Return the figures of the same Loader since this moment, without the start of readers."""
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
