"""Processes that tests start."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil
from warm_python import WarmJob

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "scripts"


class Job(WarmJob):
    """A process that is killed, with all that it started, where a test fails around it.

    Its base class waits for it, so that a test that fails would hang. With `warm_children` the
    processes that it starts are forks, too, of a further child of it.
    """

    def __init__(
        self,
        command: list[str],
        *,
        env: Mapping[str, str] | None = None,
        warm_children: bool = True,
        **options: Any,
    ) -> None:
        added = {"WARM_CHILDREN": ""} if warm_children else {}
        super().__init__(command, env={**added, **(os.environ if env is None else env)}, **options)

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
    command: list[str], *, timeout: float = 200, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Do what `subprocess.run` does, with a `Job`; take what it prints as text."""
    pipe = subprocess.PIPE
    with Job(command, stdout=pipe, stderr=pipe, text=True, **options) as job:
        out, err = job.communicate(timeout=timeout)
    return subprocess.CompletedProcess(command, job.returncode, out, err)
