"""What an index command leaves that is ended while its processes read: nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import psutil
import pytest
from jobs import ROOT

from dali_pipelines.cli.index.scan import CHUNK_FILES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
Result = TypeVar("Result")
DEAD_STORE = """
import os, warnings
warnings.simplefilter("error")

def open_slowly(path, *args, open=os.open, **kwargs):
    if str(path).endswith(".fits"):
        with os.fdopen(open(path, os.O_RDONLY), "rb") as pipe:
            pipe.read()
    return open(path, *args, **kwargs)

os.open = open_slowly
"""
"""The sitecustomize of Pythons in which files that are pipes block, as on a dead server."""


@pytest.fixture
def stuck(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[subprocess.Popen[str]]:
    """Start the command in a process group of its own, on two chunks of pipes."""
    site = tmp_path_factory.mktemp("site")
    (site / "sitecustomize.py").write_text(DEAD_STORE)
    (tmp_path / "archive").mkdir()
    for number in range(2 * CHUNK_FILES):
        os.mkfifo(tmp_path / f"archive/{number:02d}.fits")
    command = subprocess.Popen(
        [sys.executable, "-m", "dali_pipelines", "index", "archive", "--num_processes=2"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{site}:{ROOT}"},
        start_new_session=True,
    )
    try:
        yield command
    finally:
        if command.poll() is None:
            os.killpg(command.pid, signal.SIGKILL)
        command.communicate()


@pytest.fixture
def reading(stuck: subprocess.Popen[str], tmp_path: Path) -> Iterator[list[int]]:
    """Wait until both child processes have opened a pipe."""
    found = children(stuck)
    pipes = []
    for number in 0, CHUNK_FILES:
        path = tmp_path / f"archive/{number:02d}.fits"
        # Without a reader at the other end, this fails.
        pipes.append(until(partial(os.open, path, os.O_WRONLY | os.O_NONBLOCK)))
    yield found
    for pipe in pipes:
        os.close(pipe)


@pytest.mark.parametrize("moment", ["starting", "reading"])
def test_an_interrupt(
    stuck: subprocess.Popen[str], tmp_path: Path, moment: str, request: pytest.FixtureRequest
) -> None:
    pids = children(stuck) if moment == "starting" else request.getfixturevalue("reading")
    os.killpg(stuck.pid, signal.SIGINT)  # as a terminal does
    _, err = stuck.communicate(timeout=200)
    assert stuck.returncode == 130
    assert (err.count("\n"), "interrupted" in err) == (1, True), err
    assert_ended(pids)
    assert os.listdir(tmp_path) == ["archive"]


@pytest.mark.parametrize("number", [0, 1])
def test_a_process_is_killed(
    stuck: subprocess.Popen[str], reading: list[int], tmp_path: Path, number: int
) -> None:
    os.kill(reading[number], signal.SIGKILL)
    _, err = stuck.communicate(timeout=200)
    assert stuck.returncode == 1
    assert (err.count("\n"), "of 2 processes" in err) == (1, True), err
    assert_ended(reading)
    assert os.listdir(tmp_path) == ["archive"]


def test_the_parent_is_killed(stuck: subprocess.Popen[str], reading: list[int]) -> None:
    stuck.kill()
    stuck.communicate(timeout=200)
    assert_ended(reading)


def children(command: subprocess.Popen[str]) -> list[int]:
    """Wait for both child processes, and return their numbers by age."""

    def find() -> list[int]:
        # By age: numbers begin again at the lowest.
        found = sorted(psutil.Process(command.pid).children(), key=psutil.Process.create_time)
        pids = [each.pid for each in found if "resource_tracker" not in str(each.cmdline())]
        if len(pids) != 2:
            raise OSError(f"expected two child processes, found {pids}")
        return pids

    return until(find)


def assert_ended(pids: list[int]) -> None:
    def find() -> None:
        if left := [pid for pid in pids if Path(f"/proc/{pid}/cmdline").exists()]:
            raise OSError(f"still there: {left}")

    until(find)


def until(succeeds: Callable[[], Result], seconds: int = 200) -> Result:
    """Try again on OSError, for a while."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return succeeds()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
