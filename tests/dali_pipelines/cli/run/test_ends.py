"""Runs that end from outside: nothing half-written, nothing running, each row once when resumed."""

from __future__ import annotations

import csv
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from jobs import SCRIPTS, Job

from dali_pipelines.cli.run.output import Run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
COMMAND = [sys.executable, str(SCRIPTS / "run.py"), "--device=cpu"]
FOR_EVER = "--epochs=1000000"


def wait_for_lines(audit: Path, job: subprocess.Popen[str]) -> None:
    """Wait until a run has written something to its unfinished audit."""
    part = audit.with_name(f"{audit.name}.part")
    while not (part.exists() and part.stat().st_size > 200):
        assert job.poll() is None
        time.sleep(0.01)


def test_a_kill_leaves_no_half_file(archive: Path, tmp_path: Path) -> None:
    """The audit of an earlier run stays until the next one is whole."""
    audit, state = tmp_path / "audit.csv", tmp_path / "state.json"
    audit.write_text("of an earlier run")
    flags = [f"--data={archive}", "--batch_size=1", "--num_read_processes=1", FOR_EVER]
    command = [*COMMAND, *flags, f"--audit={audit}", f"--state={state}"]
    with Job(command, stdout=subprocess.DEVNULL) as run:
        wait_for_lines(audit, run)
        run.kill()
    assert audit.read_text() == "of an earlier run"
    assert not state.exists()


def test_a_run_ended_by_sigterm_is_resumed_exactly(
    archive: Path, tmp_path: Path, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often: each row once per epoch."""
    epochs, state, pipe = 20, tmp_path / "state.json", tmp_path / "pipe"
    flags = ["--batch_size=1", f"--epochs={epochs}", f"--state={state}"]
    os.mkfifo(pipe)
    held = os.open(pipe, os.O_RDWR)
    fcntl.fcntl(held, fcntl.F_SETPIPE_SZ, 4096)
    command = [*COMMAND, f"--data={archive}", "--num_read_processes=1", *flags, f"--audit={pipe}"]
    with Job(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as job:
        with pipe.open(newline="") as file:
            header = file.readline()  # a full pipe stops the run, so that the signal is in time
            os.close(held)
            job.send_signal(signal.SIGTERM)
            lines = list(csv.DictReader([header, *file]))
        _, error = job.communicate(timeout=200)
    assert job.returncode == 128 + signal.SIGTERM, error

    deliver = Run.deliver

    def deliver_until(self: Run, *step: Any) -> None:
        deliver(self, *step)
        if self.steps_done == 40:
            signal.raise_signal(signal.SIGTERM)

    flags.append(f"--resume={state}")
    with monkeypatch.context() as patch:
        # Between two steps that are known: a signal from outside comes at any.
        patch.setattr(Run, "deliver", deliver_until)
        second = run(archive, *flags, status=128 + signal.SIGTERM).lines
    assert len(second) >= 40
    lines += [*second, *run(archive, *flags).lines]
    assert sorted((int(line["epoch"]), int(line["row"])) for line in lines) == [
        (epoch, row) for epoch in range(epochs) for row in range(23)
    ]


def test_ctrl_c_says_how_to_continue(archive: Path, tmp_path: Path) -> None:
    audit, state = tmp_path / "audit.csv", tmp_path / "state.json"
    flags = [f"--data={archive}", "--batch_size=4", FOR_EVER, f"--audit={audit}"]
    with Job([*COMMAND, *flags, f"--state={state}"], stderr=subprocess.PIPE, text=True) as run:
        try:
            wait_for_lines(audit, run)
            run.send_signal(signal.SIGINT)
            _, err = run.communicate(timeout=200)
        finally:
            run.kill()
    assert run.returncode == 130
    last = err.splitlines()[-1]
    assert re.search(rf"interrupted after \d+ steps?; .*--resume={state}", last), err
    assert json.loads(state.read_text())["position"] >= 0


def test_a_run_goes_on_after_a_reader_has_died(archive: Path, tmp_path: Path) -> None:
    """As often as --restart_readers allows; each row comes once per epoch."""
    report, pipe = tmp_path / "report.json", tmp_path / "pipe"
    flags = ["--batch_size=1", "--epochs=20", "--num_read_processes=1", "--restart_readers=1"]
    os.mkfifo(pipe)
    held = os.open(pipe, os.O_RDWR)
    fcntl.fcntl(held, fcntl.F_SETPIPE_SZ, 4096)
    command = [*COMMAND, f"--data={archive}", *flags, f"--audit={pipe}", f"--report={report}"]
    with Job(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as job:
        with pipe.open(newline="") as file:
            header = file.readline()  # a full pipe stops the run, so that the kill is in time
            os.close(held)
            for one in psutil.Process(job.pid).children(recursive=True):
                if not one.children() and any("forkserver" in word for word in one.cmdline()):
                    one.kill()
            lines = list(csv.DictReader([header, *file]))
        _, error = job.communicate(timeout=200)
    assert job.returncode == 0, error
    assert json.loads(report.read_text())["restarts"] == 1
    assert sorted((int(line["epoch"]), int(line["row"])) for line in lines) == [
        (epoch, row) for epoch in range(20) for row in range(23)
    ]


@pytest.mark.parametrize("to_all", [False, True])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_everything(
    archive: Path, tmp_path: Path, number: signal.Signals, to_all: bool
) -> None:
    """To all processes, as a terminal sends Ctrl-C, and Slurm and torchrun SIGTERM."""
    audit = tmp_path / "audit.csv"
    flags = [f"--data={archive}", "--batch_size=4", "--num_gpus=2", FOR_EVER, f"--audit={audit}"]
    with Job([*COMMAND, *flags], stderr=subprocess.DEVNULL, start_new_session=True) as run:
        try:
            wait_for_lines(audit, run)
            children = psutil.Process(run.pid).children(recursive=True)
            assert len(children) >= 6  # 4 readers, the fork server and the resource tracker
            (os.killpg if to_all else os.kill)(run.pid, number)
            assert run.wait(200) == 128 + number
            _, alive = psutil.wait_procs(children, timeout=200)
            assert not alive
        finally:
            run.kill()
