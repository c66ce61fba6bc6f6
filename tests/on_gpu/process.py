"""Run a stage in a process of its own, whatever becomes of it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from on_gpu.stages import TESTS, Stage
from readers.messages import printable

ROOT = TESTS.parent

_TAIL_LINES, _TAIL_BYTES = 60, 16_000
_END_S = 5
"""For a process that hangs to print where, and for one that is killed to end."""
_COUNTS = re.compile(r"(\d+) (passed|failed|skipped|error)s?\b")
_LAST_LINE = re.compile(r"\d (passed|failed|skipped|errors?)\b.* in [\d.]+s\b")
"""Of pytest."""


@dataclass(frozen=True)
class Outcome:
    """What became of a stage."""

    stage: str
    command: tuple[str, ...]
    status: str
    """passed, failed, skipped, crashed by signal N (NAME), or timed out after N s."""
    seconds: float
    counts: dict[str, int]
    """Numbers of tests, of stages that are tests: passed, failed, skipped, error."""
    skipped: tuple[str, ...]
    """Which tests were skipped, and why."""
    tail: str
    """The end of the output."""

    @property
    def good(self) -> bool:
        """Whether it passed: a stage whose tests were all skipped has shown nothing."""
        return self.status == "passed"


def run(stage: Stage, log: Path) -> Outcome:
    """Run a stage to its end, append its output to a file, and leave no process of it behind.

    The output goes into the file itself: a pipe would stay open as long as any process of the stage
    holds it.
    """
    began = time.monotonic()
    with log.open("ab") as file:
        file.write(f"\n==== {stage.name}: {subprocess.list2cmdline(stage.command)}\n".encode())
        file.flush()
        start = file.tell()
        process = None
        # As `timeout` does where a machine is lent for some minutes.
        before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        try:
            process = subprocess.Popen(
                stage.command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env=_environment(),
                start_new_session=True,
            )
            ended = _wait(process, stage.limit_s)
        finally:
            signal.signal(signal.SIGTERM, before)
            if process is not None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                with suppress(subprocess.TimeoutExpired):  # a driver that hangs holds its processes
                    process.wait(_END_S)
    return _outcome(stage, ended, time.monotonic() - began, log, start)


def _environment() -> dict[str, str]:
    """Return the variables of a stage, which need not be installed."""
    parts = [*map(str, (ROOT, TESTS, ROOT / "scripts")), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, parts)),
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # whatever else is installed there
    }


def _wait(process: subprocess.Popen[bytes], limit_s: float) -> int | None:
    """Return the exit code; None after the time limit."""
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)  # Python prints the stacks of its threads
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
        return None


def _outcome(stage: Stage, ended: int | None, seconds: float, log: Path, start: int) -> Outcome:
    size = log.stat().st_size
    with log.open("rb") as file:
        file.seek(max(start, size - _TAIL_BYTES))
        lines = [printable(line) for line in file.read().decode(errors="replace").splitlines()]
    found = next((line for line in reversed(lines) if _LAST_LINE.search(line)), "")
    counts = {kind: int(number) for number, kind in _COUNTS.findall(found)}
    return Outcome(
        stage=stage.name,
        command=stage.command,
        status=_status(ended, stage.limit_s, counts),
        seconds=round(seconds, 1),
        counts=counts,
        skipped=tuple(line for line in lines if line.startswith("SKIPPED ")),
        tail="\n".join(lines[-_TAIL_LINES:]),
    )


def _status(ended: int | None, limit_s: float, counts: dict[str, int]) -> str:
    if ended is None:
        return f"timed out after {limit_s:g} s"
    if ended < 0:
        return f"crashed by signal {-ended} ({signal.Signals(-ended).name})"
    if ended > 0:
        return "failed"
    return "skipped" if counts and set(counts) == {"skipped"} else "passed"
