"""Recordings by the commands run and doctor."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from audio_files import sound, write

from dali_pipelines.cli.main import main


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(4):
        write(tmp_path / f"{number}.flac", sound(16000 + 4000 * number, seed=number))
    return tmp_path


FLAGS = ["--pipeline", "audio", "--duration", "0.5", "--window", "random", "--batch_size", "2"]
FEW = ["--num_read_processes", "1"]


def test_run_delivers_each_recording_once(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    features = ["--features", "LogMel(n_mels=20)", "--augment", "SpecAugment(freq_width=4)"]
    audit = tmp_path / "audit.csv"
    more = ["--speeds", "0.9", "1.1", "--rate", "8000", "--audit", str(audit)]
    assert main(["run", "--data", str(folder), *FLAGS, *FEW, *features, *more]) == 0
    with audit.open() as file:
        rows = [int(line["row"]) for line in csv.DictReader(file)]
    assert sorted(rows) == [0, 1, 2, 3]
    assert "4" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--duration", "1"], "--pipeline=audio, got fits"),
        (["--pipeline", "audio", "--features", "mel"], "log_mel.*mel"),
        (["--pipeline", "audio", "--features", "LogMel(n_mels=0)"], "n_mels"),
        (["--pipeline", "audio", "--crop", "5"], "images.*crop"),
        (["--pipeline", "audio", "--hdu", "1"], "--hdu"),
    ],
)
def test_wrong_flags(
    folder: Path, flags: list[str], words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--data", str(folder), *FEW, *flags]) == 2
    assert re.search(words, capfd.readouterr().err)


def test_run_needs_data(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *FLAGS]) == 2
    assert "--data" in capfd.readouterr().err


def test_doctor_looks_at_recordings(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--data", str(folder), *FLAGS, *FEW]) == 0
    assert "BAD" not in capfd.readouterr().out
