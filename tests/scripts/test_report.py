from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import solar_files
from _report import bottleneck, summary, tables

from dali_pipelines import Calibration


@pytest.mark.parametrize(
    ("readers", "graph", "wait_fraction", "busy", "expected"),
    [
        (5, 5, 0.05, 0.99, "Loading keeps up"),
        (5, 1, 0.9, 0.95, "The CPU is the limit, 95 % of it was busy: a GPU, more cores or"),
        (5, 1, 0.9, 0.3, "The readers are the slowest part: more --num_read_processes"),
        (1, 5, 0.9, 0.3, "The graph (transfer, decode, transforms) is the slowest part"),
    ],
)
def test_bottleneck_names_part_and_remedy(
    readers: float, graph: float, wait_fraction: float, busy: float, expected: str
) -> None:
    stages = {"wait_readers": readers, "wait_graph": graph}
    assert bottleneck(stages, wait_fraction, busy, gpus=False).startswith(expected)


def test_summary_in_words() -> None:
    report: dict[str, Any] = {
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
        "bottleneck": "The CPU is the limit.",
        "rejected": [{"path": f"{n}.fits", "reason": "cut"} for n in range(11)],
    }
    lines = summary(report).splitlines()
    assert lines[0] == (
        "64 images in 1 step on 4 CPU shards: 3.2 images/s, 37 MB/s read, 54 Mpixel/s delivered."
    )
    assert lines[1] == (
        "The first batch came after 20.0 s (1.0 s of it to start the readers); the consumer waited "
        "99 % of the time."
    )
    assert lines[3] == "11 files could not be read:"
    assert lines[-1] == "  and 1 more (--report lists them all)"
    lines = summary({**report, "world_size": 4}).splitlines()
    assert lines[0].startswith("Rank 0 of 4: 64 images in 1 step on 1 CPU shard: ")


def test_tables_are_told_by_their_hash(tmp_path: Path) -> None:
    assert tables(None) == tables(Calibration()) == {}
    path = tmp_path / "pointing.csv"
    solar_files.save_pointing(solar_files.pointing_table(), path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert tables(Calibration.of(pointing_table=path)) == {
        "pointing_table": {"name": "pointing.csv", "sha256": digest}
    }
