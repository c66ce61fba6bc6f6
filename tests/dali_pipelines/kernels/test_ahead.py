"""Kernels that other processes compile."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from dali_pipelines.cli.main import main
from dali_pipelines.cli.run_config import RunConfig, compile_ahead
from dali_pipelines.kernels import ahead, entries

pytestmark = pytest.mark.slow

PART = "choose_part_entry"


@pytest.fixture
def nothing_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture
def fresh(tmp_path: Path, nothing_noted: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Let processes that are started find no kernels."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "numba"))
    monkeypatch.setenv("NUMBA_CPU_NAME", "generic")  # what lies beside the package is for this CPU
    monkeypatch.setenv("NUMBA_CPU_FEATURES", "")
    # The CPU is asked for once a process, and these variables change its name.
    ahead._versions.cache_clear()
    yield tmp_path
    ahead._versions.cache_clear()


def compiling() -> list[psutil.Process]:
    """Return the processes of this one that compile a kernel."""
    found = []
    for process in psutil.Process().children():
        with suppress(psutil.Error):  # it has ended, or somebody else's has
            found += [process] * (PART in process.cmdline())
    return found


def test_each_entry_is_one_of_a_pipeline() -> None:
    names = {name for kernels in ahead.KERNELS.values() for name in kernels}
    made = {name for name in vars(entries) if name.endswith("_entry") and name[0] != "_"}
    of_entries = {name for name in names if ":" not in name}
    assert {name.split()[0] for name in of_entries} == made
    for name in of_entries:
        function, *arguments = name.split()
        inspect.signature(getattr(entries, function)).bind(*map(np.dtype, arguments))


def test_what_readers_compile_is_kept(fresh: Path) -> None:
    name = next(name for name in ahead.KERNELS["jpeg"] if ":" in name)
    subprocess.run(ahead.command_for([name]), check=True)
    assert ahead.note(name).exists()
    kept = {path.name.partition("-")[0] for path in (fresh / "numba").rglob("*.nbi")}
    assert {"scan.cut", "codes.enter", "bits._unstuff"} <= kept


def test_a_kernel_is_waited_for_and_noted(fresh: Path) -> None:
    ahead.start([PART])
    assert len(compiling()) == 1
    ahead.wait_for(PART)
    assert compiling() == []
    assert ahead.note(PART).exists()
    kept = [path.name.partition("-")[0] for path in (fresh / "numba").rglob("*.nbi")]
    assert {"entries._choose_part.locals.run", "entries._part_setup.locals.setup"} <= set(kept)
    ahead.start([PART])
    assert compiling() == [], "a kernel that is noted is not compiled again"
    ahead.wait_for(PART)  # for nothing


@pytest.mark.usefixtures("fresh")
def test_another_cpu_compiles_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    before = ahead.note(PART)
    monkeypatch.setenv("NUMBA_CPU_FEATURES", "+avx2")
    ahead._versions.cache_clear()
    assert ahead.note(PART) != before


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("end", ["", "os.kill(os.getpid(), 9)"])
def test_a_program_that_ends_takes_its_processes_with_it(end: str) -> None:
    code = f"""
import os, psutil
from dali_pipelines.kernels import ahead
ahead.start(["{PART}"])
(child,) = psutil.Process().children()
print(child.pid, flush=True)
{end}
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    while is_running(int(done.stdout)):  # the time limit of tests ends this
        pass


def is_running(pid: int) -> bool:
    """Return whether a process runs; one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_an_entry_waits_for_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[str] = []
    monkeypatch.setattr(entries, "wait_for", waited.append)
    entries.resize_entry.cache_clear()
    entries.choose_part_entry.cache_clear()
    entries.choose_part_entry()
    entries.resize_entry("uint8")
    entries.resize_entry("uint8")
    assert waited == [PART, "resize_entry uint8"]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"device": "cpu"}, ["decode_entry float32"]),
        ({"device": "cpu", "pipeline": "aia"}, ["decode_entry float32", "warp_entry"]),
        ({"device": "cpu", "pipeline": "jpeg"}, []),
        ({"device": "gpu"}, []),
    ],
)
def test_what_a_run_starts_with(
    flags: dict[str, Any], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    monkeypatch.setattr(ahead, "start", started.extend)
    compile_ahead(RunConfig(**flags))
    assert started == expected


class TestWarm:
    @pytest.mark.usefixtures("fresh")
    def test_compiles_what_a_pipeline_uses(
        self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setitem(ahead.KERNELS, "augment", (PART,))
        assert main(["warm", "--pipeline", "augment"]) == 0
        assert capfd.readouterr() == ("1 kernel compiled and kept.\n", "")
        assert ahead.note(PART).exists()
        monkeypatch.setitem(ahead.KERNELS, "augment", (PART, "nearest_entry uint8"))
        assert main(["warm", "--pipeline", "augment"]) == 0
        assert capfd.readouterr().out == "1 kernel compiled and kept; 1 kernel there already.\n"

    def test_says_what_fails(
        self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setitem(ahead.KERNELS, "augment", ("no_entry",))
        assert main(["warm", "--pipeline", "augment"]) == 1
        out, err = capfd.readouterr()
        assert out == ""
        assert err.startswith("no_entry: Traceback")
        assert "has no attribute 'no_entry'" in err

    def test_knows_its_pipelines(self, capfd: pytest.CaptureFixture[str]) -> None:
        assert main(["warm", "--pipeline", "npy"]) == 2
        assert "invalid choice: 'npy'" in capfd.readouterr().err
