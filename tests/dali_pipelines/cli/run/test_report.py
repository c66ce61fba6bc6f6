from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import solar_files

from dali_pipelines import Calibration
from dali_pipelines.cli.run.report import summary, tables


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
        "requests": 0,
        "remote_bytes": 0,
        "cached_bytes": 0,
        "restarts": 0,
        "bottleneck": "The CPU is the limit.",
        "config": {"rejected": None, "report": None},
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
    assert lines[-1] == "  and 1 more (--rejected or --report lists them all)"
    store = {"requests": 1, "remote_bytes": 2_340_000, "cached_bytes": 5_000_000}
    assert summary({**report, **store}).splitlines()[1] == (
        "Of remote storage: 1 request for 2.3 MB, and 5.0 MB of the cache."
    )
    given = {"config": {"rejected": "bad.csv", "report": "run.json"}}
    lines = summary({**report, **given}).splitlines()
    assert lines[-1] == "  and 1 more (bad.csv lists them all)"
    rows = ("a.tar", "cut"), ("b.tar", "cut"), ("a.tar", "cut"), ("a.tar", "text")
    rejected = [{"path": path, "reason": reason} for path, reason in rows]
    assert summary({**report, "rejected": rejected}).splitlines()[3:] == [
        "2 files (4 rows) could not be read:",
        "  a.tar (2 rows): cut",
        "  b.tar: cut",
        "  a.tar: text",
    ]
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
