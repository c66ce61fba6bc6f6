"""Real launchers, two ranks each: which rows the Loader of each rank reads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from jobs import run

SCRIPT = Path(__file__).with_name("launched.py")
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]


@pytest.mark.parametrize("launcher", ["lightning", "accelerate", "spawn", "torchrun"])
def test_every_row_once(launcher: str, npy_folder: Path, tmp_path: Path) -> None:
    command = [*(TORCHRUN if launcher == "torchrun" else []), str(SCRIPT), launcher]
    # One of them as it is; torchrun starts its ranks another way if it is a `Job`.
    start = partial(subprocess.run, capture_output=True, text=True, timeout=200)
    done = (start if launcher == "torchrun" else run)(
        [sys.executable, *command, str(npy_folder), str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1", "WARM_CHILDREN": "1"},
    )
    assert done.returncode == 0, done.stderr
    ranks = [json.loads(file.read_text()) for file in tmp_path.glob("*.json")]
    assert sorted(rank["shard"] for rank in ranks) == [[0, 2], [1, 2]]
    assert [rank["steps"] for rank in ranks] == [4, 4]
    for epoch in range(2):
        assert sorted(row for rank in ranks for row in rank["rows"][epoch]) == list(range(23))
