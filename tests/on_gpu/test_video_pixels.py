"""Clips decoded by NVDEC are those that PyAV decodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from video_files import KINDS, Kind, number_of
from video_files import write_video as write

from dali_pipelines import Index, video_pipeline
from on_gpu.devices import DEVICES, Images, epoch, one_by_one

SIZE = 144, 160
CLIP: dict[str, Any] = {"frames": 4, "stride": 3, "dtype": "uint8"}
VIDEOS: tuple[tuple[Kind, int], ...] = (
    (KINDS["h264"], 0),
    (KINDS["h264 mkv"], 90),
    (KINDS["open GOP"], 0),
    (KINDS["hevc"], 0),
    (KINDS["hevc"], 180),
    (KINDS["vp8"]._replace(options={}), 0),
    (Kind("mp4", "libvpx-vp9", {"deadline": "realtime", "lag-in-frames": "0"}), 270),
    (KINDS["vp9 mp4"], 0),
    (KINDS["mjpeg"], 0),
    (KINDS["av1"], 0),
)


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """Clips of all decoders, some of which are left to the readers."""
    folder = tmp_path_factory.mktemp("videos")
    for row, (kind, rotation) in enumerate(VIDEOS):
        write(folder / f"{row}", kind, seed=row, size=SIZE, rotation=rotation)
    return Index.scan_videos(folder).each_clip(4, stride=3, every=7)


def _numbers(clip: Any, rotation: int) -> list[int]:
    """Return the numbers that are drawn into the frames of a clip."""
    turned = np.rot90(clip.transpose(0, 2, 3, 1), -rotation // 90, (1, 2))
    return [number_of(frame) for frame in turned]


@pytest.mark.parametrize("device", DEVICES)
def test_the_frames_are_exact(clips: Index, device: int | None) -> None:
    found = epoch(video_pipeline, clips, [device], batch_size=1, decode="graph", **CLIP)
    assert sorted(found) == [*range(len(clips))]
    for row, clip in found.items():
        rotation = VIDEOS[int(Path(clips.path(row)).stem)][1]
        first = clips["frame"][row].as_py()
        assert _numbers(clip, rotation) == [*range(first, first + 12, 3)], clips.path(row)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "settings",
    [
        {"crop": (100, 90), "window": "random", "flip": "hv"},
        {"random_area": (0.3, 1), "resize": (70, 60), "flip": "h", "short": "pad"},
    ],
    ids=["crop", "resize"],
)
def test_windows_are_near_those_of_pyav(
    clips: Index, settings: dict[str, Any], device: int | None
) -> None:
    """DALI enlarges colours in another way than FFmpeg."""
    expected = one_by_one(video_pipeline, clips, decode="readers", **CLIP, **settings)
    found = epoch(video_pipeline, clips, [device], decode="graph", **CLIP, **settings)
    check_near(found, expected)


def check_near(found: Images, expected: Images) -> None:
    """Compare clips whose colours are enlarged differently."""
    assert sorted(found) == sorted(expected)
    for row, clip in expected.items():
        assert found[row].shape == clip.shape
        assert np.abs(found[row].astype(float) - clip).mean() < 8, f"row {row}"
