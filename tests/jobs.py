"""Processes that tests start."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "scripts"


class Job(subprocess.Popen[str]):
    """A process that is killed with all its children if its `with` block raises.

    `Popen` would wait for it, and a test that fails would hang.
    """

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None and self.poll() is None:
            for process in psutil.Process(self.pid).children(recursive=True):
                process.kill()
            self.kill()
        super().__exit__(kind, error, traceback)


def run(
    command: list[str], *, timeout: float = 550, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Do what `subprocess.run` does, but kill the children, too, after `timeout` seconds.

    Its output is text.
    """
    pipe = subprocess.PIPE
    with Job(command, stdout=pipe, stderr=pipe, text=True, **options) as job:
        out, err = job.communicate(timeout=timeout)
    return subprocess.CompletedProcess(command, job.returncode, out, err)
