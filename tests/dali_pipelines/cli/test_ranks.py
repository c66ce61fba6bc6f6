"""run.py under torchrun: what each rank does, and that they do it together."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from astropy.io import fits
from jobs import SCRIPTS, Job

from dali_pipelines.cli.run.main import main, share_of
from dali_pipelines.cli.run_config import RunConfig
from dali_pipelines.runtime.ranks import Ranks

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
ROWS = 19


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """19 small files: of 2 ranks of batch 4 one has nothing in the last step."""
    folder = tmp_path_factory.mktemp("archive")
    for row in range(ROWS):
        image = np.full((20, 24), row, np.int16)
        fits.CompImageHDU(image, compression_type="RICE_1").writeto(folder / f"{row:02d}.fits")
    return folder


def start(archive: Path, folder: Path, *flags: str) -> Job:
    return Job(
        [*TORCHRUN, str(SCRIPTS / "run.py"), f"--data={archive}", "--device=cpu", *flags],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def audits(folder: Path) -> list[list[dict[str, str]]]:
    """Return the lines of both ranks' audits."""
    found = []
    for rank in range(2):
        with (folder / f"audit.rank{rank}.csv").open(newline="") as file:
            found.append(list(csv.DictReader(file)))
    return found


def delivered(lines: list[dict[str, str]]) -> list[tuple[int, int]]:
    return [(int(line["epoch"]), int(line["row"])) for line in lines]


EVERYTHING = ["--audit=audit.csv", "--report=report.json", "--rejected=bad.csv", "--state=run.json"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_each_row_once_over_the_ranks_and_resumed_without_them(
    archive: Path, tmp_path: Path
) -> None:
    flags = ["--num_read_processes=2", "--batch_size=4", "--num_gpus=2", "--epochs=2"]
    with start(archive, tmp_path, *flags, "--max_batches=4", *EVERYTHING) as job:
        out, err = job.communicate(timeout=200)
    assert job.returncode == 0, err
    for figure in ("Rank 0 of 2", "15 images", "4 steps", "1 CPU shard"):
        assert figure in out
    assert out.count("images/s") == 1
    both = audits(tmp_path)
    assert [{line["shard"] for line in lines} for lines in both] == [{"0"}, {"1"}]
    names = ["audit.rank{}.csv", "report.rank{}.json", "bad.rank{}.csv"]
    expected = [name.format(rank) for name in names for rank in range(2)]
    assert sorted(os.listdir(tmp_path)) == sorted([*expected, "run.json"])
    reports = [json.loads((tmp_path / f"report.rank{rank}.json").read_text()) for rank in (0, 1)]
    assert [report["batches"] for report in reports] == [4, 4]
    assert [report["config"]["num_read_processes"] for report in reports] == [2, 2]
    # Three steps of 8 are the first epoch of 19 rows, and the fourth belongs to the second one.
    before = delivered(both[0] + both[1])
    assert sorted(before)[:ROWS] == [(0, row) for row in range(ROWS)]
    alone = ["--batch_size=3", "--epochs=2", "--num_read_processes=1", "--device=cpu"]
    rest_of = [f"--resume={tmp_path / 'run.json'}", f"--audit={tmp_path / 'rest.csv'}"]
    assert main([f"--data={archive}", *alone, *rest_of]) == 0
    with (tmp_path / "rest.csv").open(newline="") as file:
        rest = delivered(list(csv.DictReader(file)))
    assert sorted(before + rest) == [(epoch, row) for epoch in range(2) for row in range(ROWS)]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_sigterm_stops_all_ranks_at_the_same_step(archive: Path, tmp_path: Path) -> None:
    flags = ["--batch_size=1", "--epochs=1000000", "--num_read_processes=1"]
    with start(archive, tmp_path, *flags, *EVERYTHING) as job:
        wait_for_steps(tmp_path, job)
        psutil.Process(job.pid).children()[-1].send_signal(signal.SIGTERM)  # one of them is enough
        _, err = job.communicate(timeout=200)
    assert job.returncode == 1, err
    first, second = audits(tmp_path)
    assert len(first) > 10
    last = first[-1]["epoch"], first[-1]["step"]
    # The last step of an epoch has one row: none for the second rank.
    assert (second[-1]["epoch"], second[-1]["step"]) == last or last[1] == "9"
    state = json.loads((tmp_path / "run.json").read_text())
    done = int(last[0]) * ROWS + min(2 * (int(last[1]) + 1), ROWS)
    assert state["epoch"] * ROWS + state["position"] == done
    assert len(first) + len(second) == done


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_rank_that_is_killed_ends_the_others(archive: Path, tmp_path: Path) -> None:
    flags = ["--batch_size=1", "--epochs=1000000", "--num_read_processes=2", "--audit=audit.csv"]
    with start(archive, tmp_path, *flags) as job:
        wait_for_steps(tmp_path, job)
        torchrun = psutil.Process(job.pid)
        everything = torchrun.children(recursive=True)
        *_, first, second = torchrun.children()
        torchrun.suspend()  # or its SIGTERM may be faster than the end of the connection
        second.kill()
        while first.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.05)
        torchrun.resume()
        _, err = job.communicate(timeout=200)
        assert job.returncode == 1, err
        assert "another rank" in err
        _, alive = psutil.wait_procs(everything, timeout=200)
        assert not alive


def wait_for_steps(folder: Path, job: Job) -> None:
    """Wait until both ranks have written something."""
    files = [folder / f"audit.rank{rank}.csv.part" for rank in range(2)]
    while not all(file.exists() and file.stat().st_size > 1000 for file in files):
        assert job.poll() is None
        time.sleep(0.05)


def test_the_share_of_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = Ranks(rank=5, world_size=8, local_rank=1, local_world_size=4)
    config = RunConfig(num_gpus=8, num_read_processes=12, audit="a/b.x.csv", state="s")
    share = share_of(config, ranks)
    assert (share.num_gpus, share.num_read_processes) == (1, 12)
    assert (share.audit, share.state, share.report) == ("a/b.x.rank5.csv", None, None)
    assert share_of(config, Ranks()) == config
    with pytest.raises(ValueError, match=r"--num_gpus=4.* 8 ranks"):
        share_of(RunConfig(num_gpus=4), ranks)
