"""The command that compiles kernels."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from dali_pipelines.cli.main import main
from dali_pipelines.cli.warm.main import KERNELS
from dali_pipelines.kernels import entries


def test_each_entry_is_one_of_a_pipeline() -> None:
    names = {name for kernels in KERNELS.values() for name in kernels}
    made = {name for name in vars(entries) if name.endswith("_entry") and name[0] != "_"}
    of_entries = {name for name in names if name.startswith(f"{entries.__name__}:")}
    assert {name.split()[0].partition(":")[2] for name in of_entries} == made
    for name in names:
        path, *arguments = name.split()
        module, _, function = path.partition(":")
        inspect.signature(getattr(import_module(module), function)).bind(*arguments)
        for dtype in arguments:
            np.dtype(dtype)


@pytest.mark.slow
def test_a_kernel_is_compiled_by_one_process_and_found_by_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    command = [sys.executable, "-m", "dali_pipelines", "warm", "--pipeline", "augment"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout == f"4 kernels compiled, and kept in {tmp_path}.\n"
    code = """
from dali_pipelines.kernels import entries
made = entries.choose_part_entry(), entries.retouch_entry(), entries.photon_noise_entry()
print(*(function.cache_hits for entry in made for function in entry))
"""
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    assert found.stdout.split() == ["1"] * 6


def test_what_fails_is_named(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(KERNELS, "augment", (f"{entries.__name__}:no_entry",))
    assert main(["warm", "--pipeline", "augment"]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert "no_entry" in err


def test_pipelines_without_kernels_are_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["warm", "--pipeline", "npy"]) == 2
    assert "invalid choice: 'npy'" in capfd.readouterr().err
