"""Warnings of the log reach the terminal: of commands, of programs, and of their readers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits
from jobs import ROOT
from servers.web import Web

pytestmark = pytest.mark.slow

COMMAND = """
import os, signal, sys
from dali_pipelines.cli.main import main
from dali_pipelines.cli.run.output import Run

def deliver(run, *step, before=Run.deliver):
    before(run, *step)
    if run.steps_done == 1:
        os.kill(run.loader.pipelines[0].processes()[0].pid, signal.SIGKILL)

if __name__ == "__main__":
    Run.deliver = deliver
    raise SystemExit(main(sys.argv[1:]))
"""

PROGRAM = """
import logging, sys
from dataclasses import dataclass
from dali_pipelines import (
    Index, Loader, NpyReader, PipelineConfig, decode_array, reader_pipeline
)

@dataclass(frozen=True)
class Reader(NpyReader):
    def read(self, row, window):
        logging.getLogger("readers.places.cache.disk").warning("read by %s", row.path)
        return super().read(row, window)

def pipeline(index, **config):
    return reader_pipeline(index, Reader(), decode_array, PipelineConfig(**config))

if __name__ == "__main__":
    index = Index.scan(sys.argv[1])
    settings = {"batch_size": 1, "num_read_processes": 1, "devices": [None], "num_epochs": 1}
    with Loader(pipeline, index, framework="numpy", start_method=sys.argv[2], **settings) as loader:
        assert len(list(loader)) == 1
"""


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a new process: a fork of this one would have the handlers of libraries."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=200, check=False
    )


def script(folder: Path, code: str) -> list[str]:
    (folder / "program.py").write_text(code)
    return [sys.executable, str(folder / "program.py")]


@pytest.mark.parametrize("start_method", ["spawn", "forkserver"])
def test_a_command_shows_warnings_and_reports_restarts(tmp_path: Path, start_method: str) -> None:
    """Also those of readers; but of rejected rows the report alone."""
    fits.writeto(tmp_path / "a.fits", np.zeros((20, 20), np.int16))
    with Web() as web:
        urls = [web.put(f"{n}.fits", (tmp_path / "a.fits").read_bytes()) for n in range(8)]
        bad = web.put("bad.fits", b"no FITS")
        (tmp_path / "urls.csv").write_text("\n".join(["path", *urls, bad]))
        cache, report = "/dev/null/cache", tmp_path / "report.json"
        flags = [
            *(f"--data={tmp_path}/urls.csv", "--device=cpu", "--batch_size=1", "--epochs=3"),
            *("--num_read_processes=1", "--restart_readers=1", "--bad_sample=skip"),
            *(f"--cache={cache}", "--cache_bytes=1GB"),
            *(f"--report={report}", f"--start_method={start_method}"),
        ]
        found = run([*script(tmp_path, COMMAND), "run", *flags])
    assert found.returncode == 0, found.stderr
    assert found.stderr.count(cache) > 2  # of the process itself, and of both readers
    assert "0 restarts left" in found.stderr
    assert bad not in found.stderr
    assert bad in found.stdout
    assert json.loads(report.read_text())["restarts"] == 1
    assert "restarted once" in found.stdout


@pytest.mark.parametrize("start_method", ["fork", "forkserver", "spawn"])
def test_a_program_without_handlers_shows_warnings(tmp_path: Path, start_method: str) -> None:
    np.save(tmp_path / "a.npy", np.zeros((8, 9), np.float32))
    command = [*script(tmp_path, PROGRAM), str(tmp_path / "a.npy"), start_method]
    found = run(command)
    assert found.returncode == 0, found.stderr
    assert f"read by {tmp_path}/a.npy\n" in found.stderr
