"""Facts of videos, and rows for their clips."""

from __future__ import annotations

import logging
from pathlib import Path

import av
import numpy as np
import pytest
from video_files import write_video as write

from readers import Index, ReadError
from readers.video.packets import unpacked


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "no").mkdir()
    (tmp_path / "yes").mkdir()
    write(tmp_path / "no" / "a", "mpeg4", 20)
    write(tmp_path / "yes" / "b", "vp9", 25, size=(80, 96))
    write(tmp_path / "yes" / "c", "h264", 10, rotation=90)
    return tmp_path


def test_facts_equal_those_of_pyav(folder: Path) -> None:
    index = Index.scan_videos(folder)
    assert [Path(path).name for path in index["path"].to_pylist()] == ["a.mp4", "b.webm", "c.mp4"]
    assert index["frames"].to_pylist() == [20, 25, 10]
    np.testing.assert_allclose(index["fps"], 30, rtol=0.01)  # WebM counts milliseconds
    np.testing.assert_allclose(index["duration"], [20 / 30, 25 / 30, 10 / 30], atol=0.01)
    assert index["codec"].to_pylist() == ["mpeg4", "vp9", "h264"]
    assert index["height"].to_pylist() == [48, 80, 64]  # as displayed
    assert index["width"].to_pylist() == [64, 96, 48]
    index.save(folder / "index.arrow")
    again = Index.load(folder / "index.arrow")
    assert again["packets"].to_pylist() == index["packets"].to_pylist()


def test_folders_are_classes(folder: Path) -> None:
    index = Index.scan_videos(folder, class_folders=True)
    assert index.classes == ("no", "yes")
    assert index["label"].to_pylist() == [0, 1, 1]
    index = Index.scan_videos(folder, class_folders=True, classes=["maybe", "no", "yes"])
    assert index["label"].to_pylist() == [1, 2, 2]


def test_facts_are_added_to_an_index(folder: Path) -> None:
    index = Index.from_paths([folder / "yes" / "c.mp4"]).with_column("label", [7])
    known = Index.scan_videos(index)
    assert known["label"].to_pylist() == [7]
    assert known["frames"].to_pylist() == [10]


def test_parts_of_videos_keep_their_durations(folder: Path) -> None:
    path = folder / "no" / "a.mp4"
    parts = Index.from_paths([path] * 4).with_column("start", [0.1, 0.2, None, 0.0])
    facts = Index.scan_videos(parts)
    np.testing.assert_allclose(facts["duration"], np.array([17, 14, 20, 20]) / 30, atol=1e-6)
    parts = parts.with_column("duration", [0.3, None, 0.1, 0.2])
    facts = Index.scan_videos(parts)
    np.testing.assert_allclose(facts["duration"], [0.3, 14 / 30, 20 / 30, 0.2], atol=1e-6)
    assert Index.scan_videos(facts)["duration"].to_pylist() == facts["duration"].to_pylist()
    np.testing.assert_allclose(facts["fps"], 30)


def test_parts_have_seconds(folder: Path) -> None:
    index = Index.from_paths([folder / "no" / "a.mp4"]).with_column("start", ["1 s"])
    with pytest.raises(ValueError, match=r"'start'.*seconds.*rename"):
        Index.scan_videos(index)


def test_what_cannot_be_read_is_left_out(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "no" / "z.mp4").write_bytes(b"\0\0\0\x18ftypisom")
    with caplog.at_level(logging.WARNING):
        assert len(Index.scan_videos(folder)) == 3
    assert "z.mp4" in caplog.text
    with pytest.raises(ReadError, match=r"z\.mp4"):
        Index.scan_videos(folder / "no" / "z.mp4")


def test_verified_videos_are_whole(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = folder / "yes" / "c.mp4"
    content = bytearray(path.read_bytes())
    (note,) = Index.scan_videos(path)["packets"].to_pylist()
    packets = unpacked(note)
    start, nbytes = int(packets.starts[-1]), int(packets.nbytes[-1])
    content[start : start + nbytes] = b"\xff" * nbytes
    path.write_bytes(content)
    assert len(Index.scan_videos(folder)) == 3
    with caplog.at_level(logging.WARNING):
        assert len(Index.scan_videos(folder, verify=True)) == 2
    assert "c.mp4" in caplog.text


def test_notes_are_small(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "h264", 250)
    (note,) = Index.scan_videos(path)["packets"].to_pylist()
    with av.open(str(path)) as file:
        count = sum(packet.size > 0 for packet in file.demux(video=0))
    assert len(note) < 400 + 5 * count


# ---- Clips ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"frames": 5}, [0, 5, 10, 15]),
        ({"frames": 8}, [0, 8, 12]),
        ({"frames": 3, "stride": 4}, [0, 11]),
        ({"frames": 4, "every": 8}, [0, 8, 16]),
        ({"frames": 20}, [0]),
        ({"frames": 2, "every": "0.2s"}, [0, 6, 12, 18]),
        ({"frames": 2, "every": ".5 s"}, [0, 15, 18]),
    ],
)
def test_clips_of_a_video(tmp_path: Path, settings: dict[str, int], expected: list[int]) -> None:
    index = Index.scan_videos(write(tmp_path / "a", "mpeg4", 20)).with_column("label", [3])
    clips = index.each_clip(**settings)
    assert clips["frame"].to_pylist() == expected
    assert clips["label"].to_pylist() == [3] * len(expected)
    assert set(clips["path"].to_pylist()) == {index.path(0)}


def test_seconds_follow_the_times_of_frames(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "h264", 20, times=lambda number: number + 20 * (number >= 10))
    clips = Index.scan_videos(path).each_clip(2, every="0.5s")
    assert clips["frame"].to_pylist() == [0, 10, 18]


def test_clips_of_parts(tmp_path: Path) -> None:
    index = Index.from_paths([write(tmp_path / "a", "h264", 60)] * 3)
    index = index.with_column("start", [0.5, 1.0, None]).with_column("duration", [0.5, None, None])
    index = Index.scan_videos(index)
    clips = index.each_clip(4, stride=2, every=20)
    assert clips["frame"].to_pylist() == [15, 23, 30, 50, 53, 0, 20, 40, 53]
    clips = index.each_clip(4, stride=2, every="0.4s")
    assert clips["frame"].to_pylist() == [15, 23, 30, 42, 53, 0, 12, 24, 36, 48, 53]
    with pytest.raises(ValueError, match=r"row 0\): it has 15 frames.*duration \* fps >= 22"):
        index.each_clip(22)
    with pytest.raises(ValueError, match=r"row 1.*start 3 s"):
        index.with_column("start", [0.5, 3.0, None]).each_clip(4)


def test_clips_need_few_bytes(tmp_path: Path) -> None:
    index = Index.scan_videos(write(tmp_path / "a", "h264", 250))
    clips = index.each_clip(4)
    notes = [len(note) for note in clips["packets"].to_pylist()]
    assert max(notes) < len(index["packets"][0].as_py()) * 0.6


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"frames": 0}, "frames"),
        ({"frames": 4, "stride": 0}, "stride"),
        ({"frames": 4, "every": 0}, "every"),
        ({"frames": 4, "every": "2"}, "every.*2s"),
        ({"frames": 4, "every": "0s"}, "every"),
        ({"frames": 11, "stride": 2}, r"c\.mp4.*10 frames.*needs 21.*frames >= 21"),
    ],
)
def test_wrong_clips(folder: Path, settings: dict[str, int], words: str) -> None:
    index = Index.scan_videos(folder / "yes" / "c.mp4")
    with pytest.raises(ValueError, match=words):
        index.each_clip(**settings)


def test_clips_are_of_scanned_videos(folder: Path) -> None:
    with pytest.raises(ValueError, match="scan_videos"):
        Index.from_paths([folder / "no" / "a.mp4"]).each_clip(4)
    clips = Index.scan_videos(folder).each_clip(4)
    with pytest.raises(ValueError, match="already has a column 'frame'"):
        clips.each_clip(4)
