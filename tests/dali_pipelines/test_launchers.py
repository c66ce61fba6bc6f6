"""Real launchers, two ranks each: which rows the Loader of each rank reads."""

from __future__ import annotations

import json
import os
import sys
from itertools import chain, zip_longest
from pathlib import Path

import pytest
from jobs import run

from dali_pipelines import Index, Loader, npy_pipeline

pytestmark = pytest.mark.slow

SCRIPTS = {
    **dict.fromkeys(("spawn", "accelerate"), "launched.py"),
    **dict.fromkeys(("ddp", "ddp_spawn", "torchrun"), "launched_lightning.py"),
}
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
ROWS = 23


@pytest.fixture(scope="module")
def epochs(npy_index: Index) -> list[list[int]]:
    """The rows of two epochs, in one process and without an interruption."""
    with Loader(npy_pipeline, npy_index, batch_size=3, num_read_processes=1) as loader:
        return [[row for (batch,) in loader for row in batch["row"].tolist()] for _ in range(2)]


@pytest.mark.parametrize("launcher", SCRIPTS)
def test_every_row_once(
    launcher: str, npy_folder: Path, tmp_path: Path, epochs: list[list[int]]
) -> None:
    """Some begin with one process, which ends in mid-epoch; two ranks go on where it has saved."""
    script = Path(__file__).with_name(SCRIPTS[launcher])
    command = [*(TORCHRUN if launcher == "torchrun" else []), str(script), launcher]
    done = run(
        [sys.executable, *command, str(npy_folder), str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    ranks = [json.loads(file.read_text()) for file in sorted(tmp_path.glob("rank*.json"))]
    assert [rank["shard"] for rank in ranks] == [[0, 2], [1, 2]]
    assert [rank["steps"] for rank in ranks] == [4, 4]
    for epoch, rows in enumerate(epochs):
        steps = zip_longest(*(rank["rows"][epoch] for rank in ranks))  # one of them for each rank
        found = [row for step in steps for batch in step for row in batch]
        saved = tmp_path / "before.json"
        if epoch == 0 and saved.exists():
            found = [*chain.from_iterable(json.loads(saved.read_text())), *found]
        assert found == rows
    # Of the validation: 23 rows, and the last batch of a rank is empty.
    means = [rank["mean"] for rank in ranks if "mean" in rank]
    assert means == ([] if launcher in ("spawn", "torchrun") else [(ROWS - 1) / 2] * 2)
