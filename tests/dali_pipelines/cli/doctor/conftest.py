"""A job for doctor to examine, on a machine that a test describes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from astropy.io import fits

from dali_pipelines.cli.doctor import data, main
from dali_pipelines.cli.doctor.job import Job
from dali_pipelines.cli.doctor.nvml import Driver
from dali_pipelines.cli.options import gathered
from dali_pipelines.cli.run_config import RunConfig


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four plain frames of 1024x512 int16, 1 MB each; not to be changed."""
    folder = tmp_path_factory.mktemp("archive")
    for number in range(4):
        frame = np.full((1024, 512), number, np.int16)
        fits.PrimaryHDU(frame).writeto(folder / f"{number}.fits")
    return folder


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let the clock of the checks that read go on by so many seconds each time it is asked.

    It stands still before, so that no check is ended by its limit of time on a slow machine.
    """
    now, step = 0.0, 0.0

    def perf_counter() -> float:
        nonlocal now
        now += step
        return now

    def run(seconds: float) -> None:
        nonlocal step
        step = seconds

    monkeypatch.setattr(data, "time", SimpleNamespace(perf_counter=perf_counter))
    return run


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Describe the machine; all but the driver is left as it is unless it is passed.

    Memory is in MiB; `slurm` and `visible` are the cores and GPUs in the environment of a job.
    """

    def machine(driver: Driver | None = None, **facts: Any) -> None:
        gpus = facts.get("gpus", len(driver.gpus) if driver else 0)
        monkeypatch.setattr("dali_pipelines.cli.doctor.job.installed_driver", lambda: driver)
        monkeypatch.setattr("dali_pipelines.runtime.devices.visible_gpus", lambda: gpus)
        for name, variable in (
            ("slurm", "SLURM_CPUS_ON_NODE"),
            ("visible", "CUDA_VISIBLE_DEVICES"),
        ):
            monkeypatch.delenv(variable, raising=False)
            if facts.get(name) is not None:
                monkeypatch.setenv(variable, str(facts[name]))
        if "torch_cuda" in facts:
            monkeypatch.setattr(torch.version, "cuda", facts["torch_cuda"])
        answers: dict[str, tuple[str, Callable[[Any], Any]]] = {
            "cuda_initialised": ("nvidia.dali.backend.IsDriverInitialized", bool),
            "cores": ("os.sched_getaffinity", range),
            "quota": ("dali_pipelines.runtime.cgroup.cpu_quota", lambda cores: cores),
            "address_space": ("resource.getrlimit", lambda limit: (limit, limit)),
            "open_files": ("resource.getrlimit", lambda limit: (limit, limit)),
            "memory": ("dali_pipelines.memory.free_memory", lambda mib: mib << 20),
        }
        for name in facts.keys() & answers.keys():
            function, answer = answers[name]
            found = answer(facts[name])
            monkeypatch.setattr(function, lambda *_, found=found: found)

    return machine


@pytest.fixture
def job(
    archive: Path, machine: Callable[..., None], clock: Callable[[float], None]
) -> Callable[..., Job]:
    """Make a job, by default a small one on a machine without GPU."""
    machine()
    small = {"data": str(archive), "batch_size": 2, "num_read_processes": 2, "num_threads": 1}
    return lambda **settings: Job(RunConfig(**gathered(RunConfig, {**small, **settings})))


@pytest.fixture
def check() -> Callable[..., str]:
    """Run a check; assert its level, and words of its text, which is returned."""

    def check(function: main.Check, job: Job, level: str, *words: str) -> str:
        finding = main.examine(function, job)
        assert finding is not None
        assert finding.level == level, finding
        assert [word for word in words if word not in finding.text] == [], finding.text
        return finding.text

    return check
