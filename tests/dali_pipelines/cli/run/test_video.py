"""Videos by the commands run and doctor."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from video_files import write_video as write

from dali_pipelines import Index
from dali_pipelines.cli.main import main

FEW = ["--num_read_processes", "1", "--num_threads", "1", "--device", "cpu"]
FLAGS = ["--pipeline", "video", "--frames", "4", "--stride", "2", "--batch_size", "2"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(4):
        write(tmp_path / str(number), "mpeg4", 10 + number, seed=number)
    return tmp_path


def test_run_delivers_each_video(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    audit = tmp_path / "audit.csv"
    more = ["--crop", "20", "--window", "random", "--flip", "h", "--audit", str(audit)]
    assert main(["run", "--data", str(folder), *FLAGS, *FEW, *more]) == 0
    with audit.open() as file:
        rows = [int(line["row"]) for line in csv.DictReader(file)]
    assert sorted(rows) == [0, 1, 2, 3]


def test_clips_of_an_index_need_no_frames(folder: Path, tmp_path: Path) -> None:
    clips = tmp_path / "clips.parquet"
    Index.scan_videos(folder).each_clip(3, stride=3).save(clips)
    assert main(["run", "--data", str(clips), "--pipeline", "video", *FEW]) == 0


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--frames", "4"], "--pipeline=video, got fits"),
        (["--decode", "graph"], "--pipeline=video, got fits"),
        (["--pipeline", "audio", "--stride", "4"], "--pipeline=video, got audio"),
        (["--pipeline", "video", "--duration", "4"], "--pipeline=audio, got video"),
        (["--pipeline", "video"], "frames"),
        (["--pipeline", "video", "--frames", "0"], "frames"),
        (["--pipeline", "video", "--frames", "4", "--hdu", "1"], "--hdu"),
    ],
)
def test_wrong_flags(
    folder: Path, flags: list[str], words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--data", str(folder), *FEW, *flags]) == 2
    assert re.search(words, capfd.readouterr().err)


def test_short_videos_may_be_padded(folder: Path) -> None:
    flags = ["--pipeline", "video", "--frames", "12", "--short", "pad", "--batch_size", "2"]
    assert main(["run", "--data", str(folder), *FEW, *flags]) == 0


def test_run_needs_data(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *FLAGS]) == 2
    assert "--data" in capfd.readouterr().err


def test_doctor_looks_at_videos(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--data", str(folder), *FLAGS, *FEW]) == 0
    assert "BAD" not in capfd.readouterr().out
