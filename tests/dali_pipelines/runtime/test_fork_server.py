"""What the fork server imports, and from where."""

from __future__ import annotations

import multiprocessing.forkserver
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from jobs import run

from dali_pipelines import NpyReader
from dali_pipelines.runtime.fork_server import start_fork_server

SCRIPT = """
import sys
from beside import Mine
from dali_pipelines import Index, Loader, PipelineConfig, reader_pipeline
from dali_pipelines.graph.decode import decode_array

def pipeline(index, **config):
    return reader_pipeline(index, Mine(), decode_array, PipelineConfig(**config))

if __name__ == "__main__":
    index = Index.scan(sys.argv[1], suffixes=(".npy",))
    with Loader(pipeline, index, batch_size=8, num_read_processes=1, devices=[None]) as loader:
        print(sum(len(batch["row"]) for (batch,) in loader))
"""


def test_it_imports_what_the_script_does(npy_folder: Path, tmp_path: Path) -> None:
    """Neither other `readers` of the current folder, nor without what lies beside the script."""
    here, there = tmp_path / "here", tmp_path / "there"
    (here / "readers").mkdir(parents=True)
    (here / "readers" / "__init__.py").write_text("raise SystemExit('other readers')")
    there.mkdir()
    (there / "beside.py").write_text("from readers import NpyReader\nclass Mine(NpyReader): pass\n")
    script = there / "script.py"
    script.write_text(SCRIPT)
    found = run(
        [sys.executable, str(script), str(npy_folder)],
        cwd=here,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    assert (found.returncode, found.stdout) == (0, "23\n"), found.stderr


def test_ctrl_c_does_not_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even while it imports, when it has no handler yet."""
    server = multiprocessing.forkserver.ForkServer()
    monkeypatch.setattr("multiprocessing.forkserver.ensure_running", server.ensure_running)
    start_fork_server(NpyReader())
    try:
        status = Path(f"/proc/{server._forkserver_pid}/status").read_text()  # type: ignore[attr-defined]
    finally:
        server._stop()  # type: ignore[attr-defined]
    blocked = re.search(r"^SigBlk:\s*(\w+)$", status, re.MULTILINE)
    assert blocked is not None
    assert int(blocked[1], 16) & 1 << (signal.SIGINT - 1)
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
