"""Videos in ``dali-pipelines verify``: equal to PyAV frame by frame, or named with the frame."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from video_files import write_video as write

from dali_pipelines import Index
from readers.video.packets import NOTE, unpacked

Verify = Callable[..., dict[str, str]]
KINDS = ("h264", "open GOP", "hevc", "vp8", "vp9", "av1", "mpeg4", "mjpeg", "h264 flv", "ffv1")


def test_all_frames_of_all_codecs_agree(tmp_path: Path, verify: Verify) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for kind in KINDS:
        write(folder / kind.replace(" ", "_"), kind, 40)
    write(folder / "turned", "h264", 20, rotation=90)
    write(folder / "varied", "h264", 20, times=lambda number: number * number)
    write(
        folder / "edited",
        "h264",
        40,
        times=lambda number: number - 7,
        container={"avoid_negative_ts": "disabled", "use_editlist": "1"},
    )
    Image.new("RGB", (20, 30)).save(folder / "preview.png")
    lines = verify(folder)
    assert len(lines) == len(KINDS) + 4
    assert all("  0  OK" in line for line in lines.values())
    assert "h264  20x3x64x48" in lines["turned.mp4"]
    assert "h264  33x3x48x64" in lines["edited.mp4"]
    assert "vp9  40x3x48x64" in lines["vp9.webm"]
    lines = verify(folder / "turned.mp4", "--window", "20,10,40,30")
    assert "20x3x40x30" in lines["turned.mp4"]
    lines = verify(folder / "turned.mp4", "--window", "30,10,40,30", status=1)
    assert "REJECTED" in lines["turned.mp4"]


def test_rows_of_an_index(tmp_path: Path, verify: Verify) -> None:
    """Its clips are compared, as far as it notes packets."""
    for row in range(2):
        write(tmp_path / f"{row}", "open GOP", 40, seed=row)
    index = Index.scan_videos(tmp_path)
    index.save(tmp_path / "videos.parquet")
    index.select([1]).each_clip(5, stride=3).save(tmp_path / "clips.parquet")
    lines = verify(tmp_path / "videos.parquet")
    assert all("40x3x48x64  uint8  0  OK" in line for line in lines.values())
    assert len(lines) == 2
    lines = verify(tmp_path / "clips.parquet")
    assert [*lines] == ["1.mp4 frame 0", "1.mp4 frame 15", "1.mp4 frame 27"]
    assert all("5x3x48x64  uint8  0  OK" in line for line in lines.values())


@pytest.mark.parametrize("what", ["frames", "times"])
def test_a_difference_is_named(tmp_path: Path, verify: Verify, what: str) -> None:
    """An Index that says something else than the file stands for a fault of ours."""
    path = write(tmp_path / "a", "mjpeg", 20)
    index = Index.scan_videos(path)
    packets = unpacked(index[NOTE][0].as_py())
    if what == "frames":
        numbers = packets.numbers.copy()
        numbers[[4, 9]] = numbers[[9, 4]]
        packets = replace(packets, numbers=numbers)
    else:
        packets = replace(packets, ticks=packets.ticks + (np.arange(20) == 4))
    index.with_column(NOTE, [packets.note()]).save(tmp_path / "a.parquet")
    line = verify(tmp_path / "a.parquet", status=1)["a.avi"]
    assert "DIFFERS" in line
    assert "frame 4 " in line
    assert ("and 1 more of 20" if what == "frames" else " s here, by PyAV at ") in line


def test_bad_videos(tmp_path: Path, verify: Verify) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    write(folder / "good", "h264", 30)
    path = write(folder / "cut", "h264", 30, container={"movflags": "faststart"})
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 6 // 10])
    (folder / "other.mp4").write_bytes(b"no video at all")
    path = write(folder / "damaged", "vp9", 30)
    packets = unpacked(Index.scan_videos(path)[NOTE][0].as_py())
    start = int(packets.starts[12])
    content = bytearray(path.read_bytes())
    content[start : start + 40] = bytes(40)
    path.write_bytes(content)
    lines = verify(folder)
    assert "  OK" in lines["good.mp4"]
    assert "REJECTED" in lines["other.mp4"]
    assert "cut off" in lines["cut.mp4"]
    assert "12" in lines["damaged.webm"]
    assert "REJECTED" in lines["damaged.webm"]


def test_videos_in_tars(tmp_path: Path, verify: Verify) -> None:
    with tarfile.open(tmp_path / "clips.tar", "w") as tar:
        for kind in ("h264", "vp9", "mjpeg"):
            path = write(tmp_path / kind, kind, 20)
            tar.add(path, path.name)
    Index.scan_videos(tmp_path / "clips.tar").save(tmp_path / "clips.parquet")
    lines = verify(tmp_path / "clips.parquet")
    assert len(lines) == 3
    assert all("  OK" in line for line in lines.values())
    lines = verify(tmp_path / "clips.tar")
    assert len(lines) == 3
    assert all("  OK" in line for line in lines.values())
