"""Recordings by the command index."""

from __future__ import annotations

import csv
import re
import shutil
from pathlib import Path

import pytest
from audio_files import sound, write

from dali_pipelines import Index
from dali_pipelines.cli.main import main


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(4):
        (tmp_path / "data" / "ab"[number % 2]).mkdir(parents=True, exist_ok=True)
        path = tmp_path / "data" / "ab"[number % 2] / f"{number}.wav"
        write(path, sound(8000 * (1 + number), seed=number))
    return tmp_path / "data"


def test_recordings_are_noted_and_filtered(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.parquet"
    flags = ["--audio", "--class_folders", "--where", "duration > 0.6"]
    assert main(["index", str(folder), "-o", str(out), *flags]) == 0
    index = Index.load(out)
    assert index["duration"].to_pylist() == [1.5, 1.0, 2.0]
    assert index["label"].to_pylist() == [0, 1, 1]
    assert "3 rows kept" in capfd.readouterr().out


def test_labels_are_those_of_the_training_files(folder: Path, tmp_path: Path) -> None:
    train, val = tmp_path / "train.parquet", tmp_path / "val.parquet"
    flags = ["--audio", "--class_folders"]
    assert main(["index", str(folder), "-o", str(train), *flags]) == 0
    shutil.rmtree(folder / "a")
    assert main(["index", str(folder), "-o", str(val), *flags, "--classes", str(train)]) == 0
    assert set(Index.load(val)["label"].to_pylist()) == {1}


def test_manifests_are_read(folder: Path, tmp_path: Path) -> None:
    manifest = tmp_path / "train.json"
    manifest.write_text('{"audio_filepath": "data/a/0.wav", "duration": 0.2, "text": "hello"}')
    assert main(["index", str(manifest), "-o", str(tmp_path / "out.arrow"), "--audio"]) == 0
    index = Index.load(tmp_path / "out.arrow")
    assert index[0]["text"] == "hello"
    assert index[0]["duration"] == 0.2
    assert index[0]["rate"] == 16000


def test_bad_recordings_are_listed(folder: Path, tmp_path: Path) -> None:
    path = folder / "a" / "damaged.flac"
    content = bytearray(write(path, sound(16000), 16000).read_bytes())
    content[len(content) // 2 : len(content) // 2 + 40] = bytes(40)
    path.write_bytes(content)
    (folder / "a" / "empty.wav").touch()
    out, listed = tmp_path / "out.parquet", tmp_path / "bad.csv"
    flags = ["--audio", "--rejected", str(listed)]
    for more, bad in (([], {"empty.wav"}), (["--verify"], {"empty.wav", "damaged.flac"})):
        assert main(["index", str(folder), "-o", str(out), *flags, *more]) == 0
        assert len(Index.load(out)) == 6 - len(bad)
        with listed.open() as file:
            assert {Path(row["path"]).name for row in csv.DictReader(file)} == bad


def test_transcripts_of_librispeech_are_read(folder: Path, tmp_path: Path) -> None:
    (folder / "a" / "a.trans.txt").write_text("0 HELLO\n2 WORLD\n")
    out = tmp_path / "out.parquet"
    assert main(["index", str(folder), "-o", str(out), "--audio"]) == 0
    assert Index.load(out)["text"].to_pylist() == ["HELLO", "WORLD"]
    assert main(["index", str(folder), "-o", str(out), "--audio", "--class_folders"]) == 0
    assert len(Index.load(out)) == 4


@pytest.mark.parametrize("flags", [["--hdu", "1"], ["--mcu_rows"], ["--keys", "A"]])
def test_flags_of_images_are_refused(
    folder: Path, flags: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["index", str(folder), "--audio", *flags]) == 2
    assert re.search(rf"{flags[0]}.*recordings", capfd.readouterr().err)
