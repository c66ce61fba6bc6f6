"""The stages, in the order in which they run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).resolve().parents[1]

SUITES = ("transport", "loader", "strategies", "scaling", "aia", "photographs")
"""Suites of the benchmarks that use a GPU where there is one."""

FILES = {
    "kernels": (
        "dali_pipelines/runtime/test_pinned.py",
        "on_gpu/test_kernels.py",
        "dali_pipelines/graph/gpu/test_operators.py",
        "dali_pipelines/test_warp_gpu.py",
        "dali_pipelines/test_stretch.py",
        "dali_pipelines/graph/test_stretch.py",
        "dali_pipelines/augment/test_augment_gpu.py",
    ),
    "pixels": (
        "on_gpu/test_fits_pixels.py",
        "on_gpu/test_jpeg_pixels.py",
        "on_gpu/test_video_pixels.py",
        "on_gpu/test_aia_pixels.py",
        "dali_pipelines/test_factories.py",
        "dali_pipelines/serving/test_preprocessor.py",
        "dali_pipelines/test_ragged.py",
        "dali_pipelines/graph/test_decode_jpeg.py",
        "dali_pipelines/graph/test_operators_psf.py",
        "dali_pipelines/graph/test_place.py",
        "dali_pipelines/aia/test_deconvolve.py",
        "dali_pipelines/graph/gpu/test_memory.py",
    ),
    "devices": ("on_gpu/test_devices.py", "on_gpu/test_pinned.py"),
    "resume": ("on_gpu/test_resume.py",),
    "faults": ("on_gpu/test_faults.py", "dali_pipelines/test_bad_files.py"),
}
"""Stage -> its files below ``tests/``; of these, the tests that are marked ``gpu``."""

LIMITS_S = {
    "environment": 60,
    "kernels": 90,
    "pixels": 190,
    "devices": 60,
    "resume": 60,
    "faults": 60,
    "times": 60,
    "benchmarks": 600,  # for each suite; all others together have 10 minutes
}

NAMES = tuple(LIMITS_S)

_FULL_LIMIT_S = 3600
"""For a suite with all files and rounds."""
_TEST_LIMIT_S = 50


class Stage(NamedTuple):
    """What runs in one process."""

    name: str
    """One of `NAMES`; behind a colon, which part of it."""
    command: tuple[str, ...]
    limit_s: float


def stages(names: Iterable[str], num_gpus: int, folder: Path, *, quick: bool = True) -> list[Stage]:
    """Return these stages in their order; benchmarks write into `folder`."""
    commands = {
        "environment": _doctor(num_gpus),
        **{name: _tests(files) for name, files in FILES.items()},
        "times": (sys.executable, "-m", "on_gpu.times"),
        **{f"benchmarks:{suite}": _benchmark(suite, folder, quick=quick) for suite in SUITES},
    }
    limits = LIMITS_S if quick else LIMITS_S | {"benchmarks": _FULL_LIMIT_S}
    chosen = set(names)
    return [
        Stage(name, command, limits[whole])
        for name, command in commands.items()
        if chosen & {name, whole := name.partition(":")[0]}
    ]


def _doctor(num_gpus: int) -> tuple[str, ...]:
    """Look at the settings of a run over all GPUs, of windows of photographs."""
    flags = ["--device=gpu", f"--num_gpus={num_gpus}", f"--num_read_processes={num_gpus}"]
    flags += ["--pipeline=jpeg", "--crop", "224", "224"]
    program = "import sys; from dali_pipelines.cli.doctor.main import main; sys.exit(main())"
    return (sys.executable, "-c", program, *flags)


def _tests(files: Iterable[str]) -> tuple[str, ...]:
    """Run tests in a worker of pytest-xdist: if one crashes or hangs, the others go on.

    Warnings are no errors here: other versions than those of CI have others.
    """
    return (
        *(sys.executable, "-m", "pytest", "-m", "gpu", "-n", "1", "-q", "--tb=short"),
        *("-W", "default", "--continue-on-collection-errors", "-p", "no:cacheprovider"),
        *("-p", "xdist", "-p", "pytest_timeout"),
        *(f"--timeout={_TEST_LIMIT_S}", "-o", f"faulthandler_timeout={_TEST_LIMIT_S + 10}"),
        *(str(TESTS / file) for file in files),
    )


def _benchmark(suite: str, folder: Path, *, quick: bool) -> tuple[str, ...]:
    readers = max(2, (os.cpu_count() or 2) - 2)
    flags = [f"--suite={suite}", f"--out={folder}", f"--num_read_processes={readers}"]
    if suite == "transport":  # without the history of the clone
        flags.append("--against=")
    return (sys.executable, "-m", "benchmarks.main", *flags, *(["--quick"] if quick else []))
