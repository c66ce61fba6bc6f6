"""CPU time of threads as Linux counts it: seconds on a core, and waiting for one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


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
