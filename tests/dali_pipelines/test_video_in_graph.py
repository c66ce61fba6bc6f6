"""Clips that the graph decodes: the frames of PyAV, beside clips that readers decode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch
from epochs import HOW, SEED, check_equal, check_pure, in_turns, new_loader
from hypothesis import example, given, settings
from read_here import read_here
from video_files import KINDS, Kind, number_of
from video_files import write_video as write

from dali_pipelines import Boxes, ColorJitter, Index, video_pipeline

CLIP: dict[str, Any] = {"frames": 4, "stride": 3}
HIDDEN = Kind("webm", "libvpx-vp9", {"cpu-used": "8", "auto-alt-ref": "1", "lag-in-frames": "16"})
VIDEOS: tuple[tuple[str | Kind, int], ...] = (
    *[("vp8", 0), ("vp9", 0), ("mjpeg", 0), ("h264", 0)],
    (HIDDEN, 0),
    *[("vp9 mp4", 90), ("vp9 mp4", 180), ("vp9 mp4", 270)],
)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """Videos of all decoders and orientations; one kind is decoded by readers."""
    folder = tmp_path_factory.mktemp("videos")
    for row, (kind, rotation) in enumerate(VIDEOS):
        write(folder / f"{row}", kind, 30 + row, seed=row, rotation=rotation)
    return Index.scan_videos(folder)


@pytest.mark.parametrize("kind", ["vp8", "vp9", "mjpeg", HIDDEN])
def test_200_clips_have_the_right_frames(tmp_path: Path, kind: str | Kind) -> None:
    write(tmp_path / "video", kind, 209)
    clips = Index.scan_videos(tmp_path).each_clip(4, stride=3, every=1)
    assert len(clips) == 200
    options = {"decode": "graph", "dtype": "uint8", "batch_size": 16}
    with new_loader(video_pipeline, clips, **options) as loader:
        found = {
            int(row): ([number_of(one) for one in clip.permute(0, 2, 3, 1).numpy()], int(frame))
            for (batch,) in loader
            for row, clip, frame in zip(batch["row"], batch["image"], batch["frame"], strict=True)
        }
    assert sorted(found) == [*range(200)]
    for numbers, first in found.values():
        assert numbers == [*range(first, first + 12, 3)]


def of_both(index: Index, **options: Any) -> tuple[dict[int, Any], dict[int, Any]]:
    """Return the samples that the graph decodes, and those that readers decode."""
    graph = read_here(video_pipeline, index, **options, decode="graph")
    return graph, read_here(video_pipeline, index, **options, decode="readers")


def check_near(found: Any, expected: Any, mean: float = 8) -> None:
    """Compare images up to the colours of DALI."""
    assert found.shape == expected.shape
    far = np.abs(found.astype(float) - expected)
    assert far.mean() < mean
    assert np.percentile(far, 99) <= 60


@pytest.mark.parametrize(
    "options",
    [
        {"crop": (20, 24), "window": "random", "flip": "hv", "batch_size": 3},
        {"random_area": (0.3, 1), "resize": (16, 20), "flip": "h", "batch_size": 8},
        {"crop": 16, "window": "random", "rotate": 20, "batch_size": 2},
        {"resize": (48, 48), "mean": (100, 110, 120), "std": (1, 2, 3), "batch_size": 8},
        {"batch_size": 1},
    ],
)
def test_windows_and_flips_are_those_of_readers(index: Index, options: dict[str, Any]) -> None:
    found, expected = of_both(index, **CLIP, **options, outputs=("window", "flip"))
    assert sorted(found) == sorted(expected) == [*range(len(VIDEOS))]
    for row, one in found.items():
        for name in ("frame", "time", "length", "window", "flip"):
            np.testing.assert_array_equal(one[name], expected[row][name])
        check_near(one["image"], expected[row]["image"])
        if VIDEOS[row][0] == "h264":
            np.testing.assert_array_equal(one["image"], expected[row]["image"])


def test_short_videos_repeat_their_last_frame(index: Index) -> None:
    options = {"frames": 8, "stride": 5, "short": "pad", "batch_size": 1, "dtype": "uint8"}
    found, expected = of_both(index, **options)
    assert {int(one["length"]) for one in found.values()} == {6, 7, 8}
    for row, one in found.items():
        assert one["length"] == expected[row]["length"]
        check_near(one["image"], expected[row]["image"])


def _flat(number: int, seed: int, size: tuple[int, int]) -> Any:
    """Return patches of all colours, so large that it does not matter how colours are enlarged."""
    del number, seed
    patches = np.random.default_rng(0).integers(30, 225, (2, 3, 3), np.uint8)
    return np.kron(patches, np.ones((size[0] // 2, size[1] // 3, 1), np.uint8))


@pytest.mark.parametrize("matrix", [1, 5, 6])
@pytest.mark.parametrize("kind", ["vp9 mp4", "vp9"])
def test_colours_are_those_that_the_file_names(tmp_path: Path, matrix: int, kind: str) -> None:
    def setup(stream: Any) -> None:
        stream.codec_context.colorspace, stream.codec_context.color_range = matrix, 1

    write(tmp_path / "video", kind, 20, size=(96, 144), draw=_flat, setup=setup)
    found, expected = of_both(Index.scan_videos(tmp_path), **CLIP)
    inner = [8, 24, 40, 56, 72, 88]
    far = np.abs(found[0]["image"].astype(float) - expected[0]["image"])[..., inner, :]
    assert np.percentile(far, 90) <= 3


def _enlarged(plane: Any, axis: int) -> Any:
    """Enlarge a plane of colours twofold along an axis, linearly."""
    count = plane.shape[axis]
    places = np.arange(2 * count) / 2 - 0.25
    first = np.floor(places).astype(int)
    low, high = (np.take(plane, (first + at).clip(0, count - 1), axis) for at in (0, 1))
    return low + (high - low) * np.expand_dims(places - first, 1 - axis)


def test_colours_are_those_of_the_kernel_for_gpus(tmp_path: Path) -> None:
    """The kernel of DALI 2.4, by its source."""
    path = write(tmp_path / "video", "vp9", 20)
    index = Index.scan_videos(path).with_column("frame", [7])
    (found,) = read_here(video_pipeline, index, frames=1, decode="graph").values()
    opened: Any = av.open(str(path))
    with opened as file:
        frame = [*file.decode(video=0)][7].to_ndarray(format="yuv420p").astype(float)
    height, width = found["image"].shape[-2:]
    bright, rest = frame[:height] - 16, frame[height:].reshape(2, height // 2, width // 2)
    blue, red = (np.rint(_enlarged(_enlarged(one, 0), 1)) - 128 for one in rest)
    bright *= 1.1644
    green = bright - 0.3918 * blue - 0.813 * red
    expected = np.stack([bright + 1.596 * red, green, bright + 2.0172 * blue])
    np.testing.assert_allclose(found["image"][0], expected.clip(0, 255), atol=3)


EVERYTHING: dict[str, Any] = {
    **CLIP,
    "decode": "graph",
    "random_area": (0.3, 1),
    "resize": (16, 20),
    "flip": "h",
    "augment": (ColorJitter(brightness=0.4, hue=0.1),),
    "mean": (100, 110, 120),
    "std": (50, 60, 70),
}


@settings(max_examples=3)
@given(how=HOW)
@example(how={"batch_size": 2, "num_shards": 2, "num_read_processes": 1, "position": 3})
def test_samples_do_not_depend_on_how_they_are_read(index: Index, how: dict[str, int]) -> None:
    def read(**options: Any) -> Any:
        return read_here(video_pipeline, index, **EVERYTHING, **options)

    check_pure(read, how, read(batch_size=1, seed=SEED, shuffle=True))


def test_an_epoch_is_resumed_exactly(index: Index) -> None:
    whole = in_turns(video_pipeline, index, [{"batch_size": 1}], **EVERYTHING)
    turns = [{"batch_size": 2}, {"batch_size": 1, "num_read_processes": 2}, {"batch_size": 1}]
    check_equal(in_turns(video_pipeline, index, turns, **EVERYTHING), whole)


def test_targets_of_each_frame_follow(index: Index) -> None:
    boxes = [
        [np.array([[number, 5.0, number + 9, 30]]) for number in range(frames)]
        for frames in index["frames"].to_pylist()
    ]
    options = {"crop": (40, 40), "window": "random", "flip": "hv", "targets": {"b": Boxes("boxes")}}
    found, expected = of_both(index.with_column("boxes", boxes), **CLIP, **options)
    for row, one in found.items():
        np.testing.assert_array_equal(one["b"], expected[row]["b"])


def test_a_preprocessor_gives_the_same(index: Index) -> None:
    options = {**CLIP, "decode": "graph", "resize_shorter": 40, "crop": 32, "mean": 128}
    count = len(VIDEOS)
    with new_loader(video_pipeline, index, mode="eval", batch_size=count, **options) as loader:
        ((expected,),) = loader
        with loader.preprocessor() as pre:
            found = pre([Path(index.path(row)).read_bytes() for row in range(count)])
    assert torch.equal(found["image"], expected["image"])


def test_damaged_videos_are_named(index: Index, tmp_path: Path) -> None:
    """The header of the frames is right, so a reader sends it to the graph, which fails."""
    path = write(tmp_path / "bad", KINDS["vp9 mp4"], 40)
    bad = Index.scan_videos(path)
    content = bytearray(path.read_bytes())
    start = content.index(b"mdat") + 4
    content[start + 40 : start + 4000] = bytes(3960)
    path.write_bytes(content)
    broken = Index.concat([index, bad])
    options = {**CLIP, "decode": "graph", "crop": 24, "bad_sample": "skip"}
    with new_loader(video_pipeline, broken, **options) as loader:
        rows = [row for step in loader for batch in step for row in batch["row"].tolist()]
        rejected = loader.stats.rejected
    assert sorted(rows) == [*range(len(VIDEOS))]
    assert [*rejected] == [len(VIDEOS)]
    assert rejected[len(VIDEOS)].path == str(path)


def test_the_setting_is_checked(index: Index) -> None:
    with pytest.raises(ValueError, match=r"decode.*readers.*graph"):
        video_pipeline(index, batch_size=1, frames=4, decode="nvdec")  # type: ignore[arg-type]
