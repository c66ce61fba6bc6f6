"""The summary of a run in words, and the tables in its report."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import solar_files

from dali_pipelines import Calibration
from dali_pipelines.cli.run.report import summary, tables

REPORT: dict[str, Any] = {
    "samples": 64,
    "batches": 1,
    "num_shards": 4,
    "world_size": 1,
    "device": "cpu",
    "images_per_s": 3.21,
    "input_mb_per_s": 36.6,
    "output_mpix_per_s": 53.9,
    "first_batch_s": 20.04,
    "stages": {"start": 1.04},
    "wait_fraction": 0.987,
    "requests": 0,
    "remote_bytes": 0,
    "cached_bytes": 0,
    "restarts": 0,
    "bottleneck": "The CPU is the limit.",
    "config": {"rejected": None, "report": None},
    "rejected": [],
}
ELEVEN = [{"path": f"{number}.fits", "reason": "cut"} for number in range(11)]
ROWS = [("a.tar", "cut"), ("b.tar", "cut"), ("a.tar", "cut"), ("a.tar", "text")]


@pytest.mark.parametrize(
    ("changes", "figures"),
    [
        ({}, ["64 images", "1 step ", "4 CPU shards", "3.2 images/s", "37 MB/s", "54 Mpixel/s"]),
        ({}, ["20.0 s", "1.0 s", "99 %", "The CPU is the limit."]),
        ({"world_size": 4}, ["Rank 0 of 4", "64 images", "1 CPU shard:"]),
        ({"requests": 1, "remote_bytes": 2_340_000}, ["1 request ", "2.3 MB"]),
        ({"cached_bytes": 5_000_000}, ["0 requests", "5.0 MB"]),
        ({"restarts": 2}, ["2 times"]),
        ({"rejected": ELEVEN}, ["11 files", "0.fits: cut", "9.fits: cut", "1 more", "--rejected"]),
        ({"rejected": ELEVEN, "config": {"rejected": "b.csv", "report": "r"}}, ["1 more", "b.csv"]),
        (
            {"rejected": [{"path": path, "reason": reason} for path, reason in ROWS]},
            ["2 files", "4 rows", "a.tar (2 rows): cut", "b.tar: cut", "a.tar: text"],
        ),
        (
            {
                "rejected": [
                    {"path": path, "name": f"{path}[{n}:9]", "reason": reason}
                    for n, (path, reason) in enumerate(ROWS)
                ]
            },
            ["2 files", "a.tar (2 rows): cut", "b.tar[1:9]: cut", "a.tar[3:9]: text"],
        ),
    ],
)
def test_figures_of_the_summary(changes: dict[str, Any], figures: list[str]) -> None:
    text = summary({**REPORT, **changes})
    assert [figure for figure in figures if figure not in text] == []
    assert "10.fits" not in text


def test_tables_are_told_by_their_hash(tmp_path: Path) -> None:
    assert tables(None) == tables(Calibration()) == {}
    path = tmp_path / "pointing.csv"
    solar_files.save_pointing(solar_files.pointing_table(), path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert tables(Calibration.of(pointing_table=path)) == {
        "pointing_table": {"name": "pointing.csv", "sha256": digest}
    }
