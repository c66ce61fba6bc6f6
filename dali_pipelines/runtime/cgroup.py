"""Cores and memory that this process may use, by affinity and by control groups."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")


def usable_cores() -> float:
    """Return the cores that this process and its children can be busy on at a time."""
    allowed, quota = len(os.sched_getaffinity(0)), cpu_quota()
    return float(allowed) if quota is None else min(float(allowed), quota)


def cpu_quota() -> float | None:
    """Return the cores that the control groups of this process allow, None for no limit."""
    quotas = map(_quota_of, _groups("cpu"))
    return min((quota for quota in quotas if quota is not None), default=None)


def free_memory_of_groups() -> int | None:
    """Return the bytes that the control groups of this process have free, None for no limit."""
    found = map(_free_of, _groups("memory"))
    return min((free for free in found if free is not None), default=None)


def _groups(controller: str) -> Iterator[Path]:
    """Yield the folders of this process's groups, and those above: their limits hold too."""
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
        # In a container its own group is the root.
        yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(root))


def _quota_of(folder: Path) -> float | None:
    """Return the cores that one group allows, as version 2 writes it, or version 1."""
    try:
        quota, period = (folder / "cpu.max").read_text(encoding="utf-8").split()
    except OSError:
        try:
            quota = (folder / "cpu.cfs_quota_us").read_text(encoding="utf-8")
            period = (folder / "cpu.cfs_period_us").read_text(encoding="utf-8")
        except OSError:  # no such group as seen from here
            return None
    return None if quota.strip() in ("max", "-1") else int(quota) / int(period)


def _free_of(folder: Path) -> int | None:
    """Return the bytes that one group has free, as version 2 writes it, or version 1."""
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        try:
            return int((folder / limit).read_text()) - int((folder / used).read_text())
        except (OSError, ValueError):  # no such group, or "max": no limit
            continue
    return None
