"""Videos by the commands index and show."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from PIL import Image
from video_files import write_video as write

from dali_pipelines import Index
from dali_pipelines.cli.main import main


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(4):
        (tmp_path / "data" / "ab"[number % 2]).mkdir(parents=True, exist_ok=True)
        write(tmp_path / "data" / "ab"[number % 2] / str(number), "mpeg4", 10 + number)
    return tmp_path / "data"


def test_videos_are_noted_and_filtered(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.parquet"
    flags = ["--video", "--class_folders", "--where", "frames > 10"]
    assert main(["index", str(folder), "-o", str(out), *flags]) == 0
    index = Index.load(out)
    assert index["frames"].to_pylist() == [12, 11, 13]
    assert index["label"].to_pylist() == [0, 1, 1]
    assert "3 rows kept" in capfd.readouterr().out


@pytest.mark.parametrize("flags", [[], ["--verify"]])
def test_bad_videos_are_listed(
    folder: Path, tmp_path: Path, flags: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "a" / "cut.mp4").write_bytes((folder / "a" / "0.mp4").read_bytes()[:-100])
    (folder / "a" / "empty.mp4").touch()
    out, listed = tmp_path / "out.parquet", tmp_path / "bad.csv"
    flags = ["--video", "--rejected", str(listed), *flags]
    assert main(["index", str(folder), "-o", str(out), *flags]) == 0
    with listed.open() as file:
        reasons = {Path(row["path"]).name: row["reason"] for row in csv.DictReader(file)}
    assert reasons.keys() == {"cut.mp4", "empty.mp4"}
    assert "empty" in reasons["empty.mp4"]
    found = capfd.readouterr()
    assert "2 rejected" in found.out
    assert all(name in found.err for name in reasons)
    table = ["index", str(out), "-o", str(tmp_path / "again.parquet"), *flags]
    assert main(table) == 0  # videos of an Index are opened, too
    assert listed.read_text().splitlines() == ["path,reason"]


def test_a_list_does_not_replace_a_bad_video(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    bad = folder / "a" / "bad.mp4"
    bad.touch()
    flags = ["--video", "-o", str(tmp_path / "out.parquet"), "--rejected", str(bad)]
    assert main(["index", str(folder), *flags]) == 2
    assert "another name" in capfd.readouterr().err
    assert not bad.stat().st_size


def test_the_flag_for_videos_is_named(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["index", str(folder), "-o", str(folder / "out.parquet")]) == 2
    assert "--video" in capfd.readouterr().err
    assert main(["stats", str(folder)]) == 2
    assert "--pipeline=video" in capfd.readouterr().err


@pytest.mark.parametrize("flags", [["--hdu", "1"], ["--mcu_rows"], ["--audio"]])
def test_other_flags_are_refused(
    folder: Path, flags: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["index", str(folder), "-o", "a.parquet", "--video", *flags]) == 2
    assert re.search(rf"{flags[0]}.*videos", capfd.readouterr().err)


def test_show_draws_frames_side_by_side(folder: Path, tmp_path: Path) -> None:
    (folder / "b" / "bad.mp4").write_bytes(b"\0\0\0\x18ftypisom")
    out = tmp_path / "sheet.png"
    flags = ["--pipeline", "video", "--frames", "4", "--stride", "2", "--size", "64"]
    assert main(["show", str(folder), "-o", str(out), *flags]) == 0
    with Image.open(out) as sheet:
        width, height = sheet.size
    assert 4 * 64 < width < 5 * 80
    assert height > 5 * 64


def test_show_draws_clips_of_an_index(folder: Path, tmp_path: Path) -> None:
    clips = tmp_path / "clips.parquet"
    Index.scan_videos(folder).each_clip(3).save(clips)
    flags = ["--pipeline", "video", "--count", "2", "--size", "64"]
    assert main(["show", str(clips), "-o", str(tmp_path / "a.png"), *flags]) == 0


def test_frames_are_for_videos(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "a.png")
    assert main(["show", str(folder), "-o", out, "--frames", "4"]) == 2
    assert "--pipeline=video" in capfd.readouterr().err
