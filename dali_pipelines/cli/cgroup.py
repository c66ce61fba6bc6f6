"""How many cores this process may use, by affinity and by control groups."""

from __future__ import annotations

import os
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")


def usable_cores() -> float:
    """Give the cores that this process and its children can be busy on at a time."""
    allowed, quota = len(os.sched_getaffinity(0)), cpu_quota()
    return float(allowed) if quota is None else min(float(allowed), quota)


def cpu_quota() -> float | None:
    """Give the cores that the control groups of this process allow, None for no limit."""
    quotas = []
    for line in _OWN_GROUPS.read_text(encoding="utf-8").splitlines():
        _, controllers, own = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = _CGROUPS / "cpu" if controllers else _CGROUPS
        group = root / own.lstrip("/")
        # A limit of a group holds for all groups in it. In a container its own group is the root.
        above = (folder for folder in (group, *group.parents) if folder.is_relative_to(root))
        quotas += [_quota_of(folder) for folder in above]
    return min((quota for quota in quotas if quota is not None), default=None)


def _quota_of(folder: Path) -> float | None:
    """Give the cores that one group allows, as version 2 writes it, or version 1."""
    try:
        quota, period = (folder / "cpu.max").read_text(encoding="utf-8").split()
    except OSError:
        try:
            quota = (folder / "cpu.cfs_quota_us").read_text(encoding="utf-8")
            period = (folder / "cpu.cfs_period_us").read_text(encoding="utf-8")
        except OSError:  # no such group as seen from here
            return None
    return None if quota.strip() in ("max", "-1") else int(quota) / int(period)
