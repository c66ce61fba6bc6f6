"""Cores and memory that this process may use, by affinity, control groups and Slurm."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")


@dataclass(frozen=True, slots=True)
class CoreGrant:
    """Cores that a process may use, alone or shared with other processes of its machine."""

    machine: str
    allowed: frozenset[int]
    """Cores in its affinity."""
    limits: Mapping[str, float]
    """Limits by name: the number of cores that all processes under a limit may use together."""

    @classmethod
    def of(cls, environ: Mapping[str, str] = os.environ) -> CoreGrant:
        """Return the cores that this process may use."""
        limits, quota = _slurm_limit(environ), cpu_quota()
        if quota is not None:
            limits["control group"] = quota
        return cls(platform.node(), frozenset(os.sched_getaffinity(0)), limits)

    def share(self, grants: Sequence[CoreGrant]) -> float:
        """Return the share of this process, if all the processes are equally busy.

        Parameters
        ----------
        grants : sequence of CoreGrant
            Grants of all processes, including this one.
        """
        near = [grant for grant in grants if grant.machine == self.machine]
        shares = [
            cores / sum(name in grant.limits for grant in near)
            for name, cores in self.limits.items()
        ]
        by_affinity = sum(1 / sum(core in grant.allowed for grant in near) for core in self.allowed)
        return min([by_affinity, *shares])


def usable_cores() -> float:
    """Return the number of cores that this process and its children can use at a time."""
    grant = CoreGrant.of()
    return grant.share([grant])


def whole_cores() -> int:
    """Return the number of processes or threads that these cores can keep busy, at least 1."""
    return max(1, int(usable_cores()))


def _slurm_limit(environ: Mapping[str, str]) -> dict[str, float]:
    """Return the cores of this task of srun, or of the job; not all clusters enforce them.

    Processes that a task starts, e.g. the ranks of a torchrun, inherit the variables of the task.
    """
    if environ.get("SLURM_CPUS_PER_TASK") and "SLURM_STEP_ID" in environ:
        name = f"Slurm task {environ.get('SLURM_PROCID')}"
        cores = environ["SLURM_CPUS_PER_TASK"]
    else:
        name, cores = "Slurm job", environ.get("SLURM_CPUS_ON_NODE", "")
    return {name: float(cores)} if cores.isdecimal() and int(cores) else {}


def cpu_quota() -> float | None:
    """Return the cores that the control groups of this process allow, or None without a limit."""
    quotas = map(_quota_of, _groups("cpu"))
    return min((quota for quota in quotas if quota is not None), default=None)


def free_memory_of_groups() -> int | None:
    """Return the free bytes of the control groups of this process, or None without a limit."""
    found = map(_free_of, _groups("memory"))
    return min((free for free in found if free is not None), default=None)


def _groups(controller: str) -> Iterator[Path]:
    """Yield the folders of this process's groups and of their parents, whose limits also apply."""
    try:
        lines = _OWN_GROUPS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, own = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = _CGROUPS / controller if controllers else _CGROUPS
        group = root / own.lstrip("/")
        # In a container the root is the group of the container.
        yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(root))


def _quota_of(folder: Path) -> float | None:
    """Return the cores that one group of version 2 or 1 allows."""
    try:
        quota, period = (folder / "cpu.max").read_text(encoding="utf-8").split()
    except OSError:
        try:
            quota = (folder / "cpu.cfs_quota_us").read_text(encoding="utf-8")
            period = (folder / "cpu.cfs_period_us").read_text(encoding="utf-8")
        except OSError:  # the group is not visible from here
            return None
    return None if quota.strip() in ("max", "-1") else int(quota) / int(period)


def _free_of(folder: Path) -> int | None:
    """Return the free bytes of one group of version 2 or 1."""
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        try:
            return int((folder / limit).read_text()) - int((folder / used).read_text())
        except (OSError, ValueError):  # no such group, or "max": no limit
            continue
    return None
