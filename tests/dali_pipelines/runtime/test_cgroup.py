"""Cores and memory by affinity and by control groups, from made-up files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from dali_pipelines.runtime import cgroup


def write_groups(tmp_path: Path, monkeypatch: Any, own: str, written: dict[str, str]) -> None:
    for name, text in written.items():
        (tmp_path / "cgroup" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "cgroup" / name).write_text(text)
    (tmp_path / "own").write_text(own)
    # Their places are the kernel's, and no setting.
    monkeypatch.setattr(cgroup, "_CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(cgroup, "_OWN_GROUPS", tmp_path / "own")


@pytest.mark.parametrize(
    ("own", "written", "expected"),
    [
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "150000 100000\n"}, 1.5),
        ("0::/\n", {"cpu.max": "50000 100000"}, 0.5),
        ("0::/\n", {}, None),
        ("0::/a\n", {"a/cpu.max": "max 100000"}, None),
        (
            "5:memory:/x\n3:cpu,cpuacct:/a\n0::/\n",
            {"cpu/a/cpu.cfs_quota_us": "400000\n", "cpu/a/cpu.cfs_period_us": "100000\n"},
            4.0,
        ),
        (
            "3:cpu:/\n",
            {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"},
            None,
        ),
    ],
)
def test_the_quota_of_control_groups(
    tmp_path: Path, monkeypatch: Any, own: str, written: dict[str, str], expected: Any
) -> None:
    write_groups(tmp_path, monkeypatch, own, written)
    assert cgroup.cpu_quota() == expected


@pytest.mark.parametrize(
    ("own", "written", "expected"),
    [
        (
            "0::/a/b\n",
            {
                "a/b/memory.max": "max\n",
                "a/b/memory.current": "10\n",
                "a/memory.max": "100\n",
                "a/memory.current": "40\n",
            },
            60,
        ),
        (
            "5:cpu:/x\n3:memory:/a\n",
            {"memory/a/memory.limit_in_bytes": "9\n", "memory/a/memory.usage_in_bytes": "4\n"},
            5,
        ),
        ("0::/\n", {}, None),
    ],
)
def test_the_memory_of_control_groups(
    tmp_path: Path, monkeypatch: Any, own: str, written: dict[str, str], expected: Any
) -> None:
    write_groups(tmp_path, monkeypatch, own, written)
    assert cgroup.free_memory_of_groups() == expected


@pytest.mark.parametrize(("quota", "expected"), [(None, 3), (1.5, 1.5), (64.0, 3)])
def test_affinity_and_quota_both_bound(monkeypatch: Any, quota: Any, expected: float) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 5, 7})
    monkeypatch.setattr(cgroup, "cpu_quota", lambda: quota)
    assert cgroup.usable_cores() == expected


ALL = range(64)
STEP = {"SLURM_STEP_ID": "0", "SLURM_CPUS_ON_NODE": "32"}
TASK = STEP | {"SLURM_CPUS_PER_TASK": "8"}


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ([("a", ALL, {})], 64),
        ([("a", ALL, {})] * 4, 16),  # of torchrun, which binds none
        ([("a", ALL, {}), ("b", ALL, {})], 64),  # of two machines
        ([("a", range(16), {}), ("a", range(16, 64), {})], 16),  # each is bound to cores
        ([("a", range(32), {}), ("a", range(16, 48), {})], 24),  # to some of the same
        # Of srun, on a cluster that binds no process, whose job has half of the machine.
        ([("a", ALL, {"SLURM_CPUS_ON_NODE": "32"})], 32),
        ([("a", ALL, STEP)] * 4, 8),
        ([("a", ALL, TASK | {"SLURM_PROCID": task}) for task in "0123"], 8),
        ([("a", ALL, TASK | {"SLURM_PROCID": "0"})] * 2, 4),  # of the torchrun that is a task
        ([("a", ALL, {"SLURM_CPUS_ON_NODE": ""})], 64),
        ([("a", ALL, {"SLURM_CPUS_ON_NODE": "x"})], 64),
    ],
)
def test_cores_of_a_rank(
    monkeypatch: Any, places: list[tuple[str, range, dict[str, str]]], expected: float
) -> None:
    monkeypatch.setattr(cgroup, "cpu_quota", lambda: None)
    grants = []
    for machine, cores, environ in places:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: set(cores))
        monkeypatch.setattr("platform.node", lambda machine=machine: machine)
        grants.append(cgroup.CoreGrant.of(environ))
    assert grants[0].share(grants) == pytest.approx(expected)


def test_a_quota_is_for_all_ranks_of_a_machine() -> None:
    grants = [cgroup.CoreGrant("a", frozenset(ALL), {"control group": 6.0})] * 4
    assert grants[0].share(grants) == 1.5
