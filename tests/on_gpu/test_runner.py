"""The command without a GPU: with stages that pass, fail, crash, hang, and write anything."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.report.tables import Sheet, write_tables
from on_gpu import main as command
from on_gpu.process import _environment, run
from on_gpu.stages import FILES, NAMES, TESTS, Stage, _tests, stages

pytestmark = pytest.mark.slow

GPU = "NVIDIA H200"
FACTS: dict[str, Any] = {
    "command": "python -m on_gpu.main",
    "hardware": {"cpu": "stand-in", "gpus": [GPU, GPU], "driver": "580.1"},
    "versions": {"python": "3.12.3"},
}
CRASH = "import ctypes; ctypes.string_at(0)"
GARBAGE = r"import sys; sys.stdout.buffer.write(bytes(range(256)) * 400 + b'\n```\n# no title\n')"


def stage(name: str, program: str, limit_s: float = 60) -> Stage:
    return Stage(name, (sys.executable, "-c", program), limit_s)


def test_whatever_becomes_of_a_stage(tmp_path: Path) -> None:
    for name, program, limit_s, status, words in (
        ("passes", "print('fine')", 60, "passed", "fine"),
        ("fails", "raise SystemExit('not so fine')", 60, "failed", "not so fine"),
        ("crashes", CRASH, 60, "crashed by signal 11 (SIGSEGV)", "string_at"),
        ("hangs", "import time; time.sleep(999)", 1, "timed out after 1 s", "<module>"),
        ("is killed", "import os; os.kill(os.getpid(), 9)", 60, "crashed by signal 9", ""),
        ("skips", "print('=== 2 skipped in 0.1s ===')", 60, "skipped", "2 skipped"),
        ("writes", GARBAGE + "; sys.exit(3)", 60, "failed", r"\x00\x01"),
    ):
        outcome = run(stage(name, program, limit_s), tmp_path / "log")
        assert outcome.status.startswith(status)
        assert words in outcome.tail
        assert outcome.good == (name == "passes")
        assert len(outcome.tail) < 100_000
        assert all(line.isprintable() for line in outcome.tail.splitlines())
    log = (tmp_path / "log").read_bytes()
    assert log.count(b"\n==== ") == 7
    assert bytes(range(256)) * 400 in log


def test_no_process_of_a_stage_is_left(tmp_path: Path) -> None:
    """Not even one that holds its output, and for which a pipe would have to wait."""
    program = "import subprocess; print(subprocess.Popen(['sleep', '999']).pid)"
    outcome = run(stage("leaves", program), tmp_path / "log")
    assert outcome.status == "passed"
    wait_for_end(int(outcome.tail))


def test_a_stage_ends_with_the_command(tmp_path: Path) -> None:
    stopped = "import os, time; print(os.getpid()); os.kill(os.getppid(), 15); time.sleep(999)"
    program = (
        "import pathlib, sys\n"
        "from on_gpu.process import Stage, run\n"
        "command = sys.executable, '-c', sys.argv[2]\n"
        "run(Stage('pixels', command, 60), pathlib.Path(sys.argv[1]))\n"
    )
    log = tmp_path / "log"
    command = [sys.executable, "-c", program, str(log), stopped]
    done = subprocess.run(command, env=_environment(), timeout=60, check=False)
    assert done.returncode == 128 + signal.SIGTERM
    wait_for_end(int(log.read_text().splitlines()[-1]))


def wait_for_end(pid: int) -> None:
    with suppress(psutil.NoSuchProcess):
        while psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)


def test_a_test_that_crashes_leaves_the_others(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = gpu\naddopts = -ra\n")
    file = tmp_path / "test_it.py"
    file.write_text(
        "import ctypes, warnings, pytest\n"
        "pytestmark = pytest.mark.gpu\n"
        "def test_crash(): ctypes.string_at(0)\n"
        "def test_good(): warnings.warn('of another version')\n"
        "@pytest.mark.skip(reason='for no reason')\n"
        "def test_skipped(): pass\n"
    )
    outcome = run(Stage("pixels", _tests([str(file)]), 60), tmp_path / "log")
    assert outcome.status == "failed"
    assert outcome.counts == {"failed": 1, "passed": 1, "skipped": 1}
    assert [line.rpartition(": ")[2] for line in outcome.skipped] == ["for no reason"]
    assert "crashed while running" in outcome.tail
    assert "test_crash" in outcome.tail


@pytest.fixture
def written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The report of two stages that are good, one that is not, and a benchmark."""
    path, tables = tmp_path / "results" / "gpu_2xh200_2026-11-22", tmp_path / "tables"
    tables.mkdir()
    sheet = Sheet(
        title="Whole frames",
        header=("way", "images/s"),
        lines=(("Loader", "7"),),
        data="x",
        note="",
    )
    write_tables(tables, "loader", [sheet], {"command": "bench"})
    skips = "print('SKIPPED [2] test_a.py:7: no files\\n== 3 passed, 2 skipped in 1.0s ==')"
    chosen = [
        stage("environment", "print('fine')"),
        stage("kernels", "print('=== 7 passed in 1.0s ===')"),
        stage("pixels", skips),
        stage("faults", GARBAGE + "; sys.exit(1)"),
    ]
    assert command.run_all(chosen, path, FACTS, tables) == 1
    assert command.run_all(chosen[:3], path.with_name("good"), FACTS, tables) == 0
    assert "faults: failed" in capsys.readouterr().out
    return path


def test_the_report_has_all_that_is_known(written: Path) -> None:
    found = json.loads(written.with_suffix(".json").read_text())
    assert {name: found[name] for name in FACTS} == FACTS
    names = ["environment", "kernels", "pixels", "faults"]
    assert [one["stage"] for one in found["stages"]] == names
    assert [one["status"] for one in found["stages"]] == [*["passed"] * 3, "failed"]
    assert found["stages"][2]["counts"] == {"passed": 3, "skipped": 2}
    shown = written.with_suffix(".md").read_text()
    assert all(f"{one['stage']} | {one['status']}" in shown for one in found["stages"])
    assert found["not_run"] == []
    assert found["benchmarks"]["loader"][0]["lines"] == [["Loader", "7"]]


def test_the_report_is_there_after_each_stage(tmp_path: Path) -> None:
    path = tmp_path / "report"
    look = f"import json; print(json.load(open({str(path) + '.json'!r}))['not_run'])"
    chosen = [stage("kernels", look), stage("pixels", look)]
    assert command.run_all(chosen, path, FACTS, tmp_path / "none") == 0
    log = (tmp_path / "report.log").read_text()
    assert "\n['kernels', 'pixels']\n" in log
    assert "\n['pixels']\n" in log


def test_nothing_runs_without_a_gpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert command.main([f"--out={tmp_path / 'out'}"]) == 2
    error = capsys.readouterr().err
    assert re.fullmatch(
        r"dali-pipelines gpu: PyTorch \S+ sees no GPU, so nothing was run: .*\n", error
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("given", ["pixel", "", "benchmarks:decode"])
def test_unknown_stages(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([f"--stages={given}"]) == 2
    assert "--stages takes environment, kernels," in capsys.readouterr().err


def test_stages_are_chosen_in_their_order(tmp_path: Path) -> None:
    everything = stages(NAMES, 2, tmp_path)
    assert sum(one.limit_s for one in everything if "benchmarks" not in one.name) <= 600
    assert [one.name for one in everything][:3] == ["environment", "kernels", "pixels"]
    assert "--num_gpus=2" in everything[0].command
    chosen = stages(["benchmarks:photographs", "kernels"], 1, tmp_path)
    assert [one.name for one in chosen] == ["kernels", "benchmarks:photographs"]
    assert "--quick" in chosen[1].command
    assert "--quick" not in stages(["benchmarks:photographs"], 1, tmp_path, quick=False)[0].command


def test_all_tests_that_need_a_gpu_belong_to_a_stage() -> None:
    needs = re.compile(r"pytest\.mark\.gpu\b|\"device\", DEVICES\)|\bgpu: Device\b")
    marked = {
        str(path.relative_to(TESTS))
        for path in TESTS.rglob("test_*.py")
        if needs.search(path.read_text()) and path != Path(__file__)
    }
    assert marked == {file for files in FILES.values() for file in files}
