"""Processes that tests start."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import TracebackType

import psutil

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "scripts"


class Job(subprocess.Popen[str]):
    """A process that is killed, with all that it started, where a test fails around it.

    Its base class waits for it, so that a test that fails would hang.
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
