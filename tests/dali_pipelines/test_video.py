"""Clips of videos: the frames of PyAV under one window and flip, exactly once, resumed exactly."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from epochs import HOW, SEED, check_equal, check_pure, in_turns, new_loader
from hypothesis import example, given, settings
from read_here import read_here
from video_files import number_of, stored
from video_files import write_video as write

from dali_pipelines import (
    ColorJitter,
    Index,
    Loader,
    Preprocessor,
    ReadError,
    video_pipeline,
)

FRAMES = (30, 41, 25, 60, 33, 28)
ROWS = len(FRAMES)
KINDS = ("h264", "hevc", "vp9", "mpeg4", "mjpeg", "open GOP")
CLIP: dict[str, Any] = {"frames": 5, "stride": 3}


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder = tmp_path_factory.mktemp("videos")
    for row, (frames, kind) in enumerate(zip(FRAMES, KINDS, strict=True)):
        write(folder / f"{row}", kind, frames, seed=row)
    return Index.scan_videos(folder)


def of_clip(index: Index, row: int, first: int) -> Any:
    """Return the frames of a clip by PyAV, shape (frames, 3, height, width)."""
    numbers = range(first, first + CLIP["frames"] * CLIP["stride"], CLIP["stride"])
    return stored(index.path(row))[numbers].transpose(0, 3, 1, 2)


def test_random_clips_equal_pyav(index: Index) -> None:
    firsts = set()
    with new_loader(video_pipeline, index, **CLIP, dtype="uint8", num_epochs=3) as loader:
        for _ in range(3):
            batches = [batch for step in loader for batch in step]
            rows = [row for batch in batches for row in batch["row"].tolist()]
            assert sorted(rows) == [*range(ROWS)]
            for batch in batches:
                assert batch["image"].shape[1:] == (5, 3, 48, 64)
                assert batch["length"].tolist() == [5] * len(batch["row"])
                for slot, row in enumerate(batch["row"].tolist()):
                    first = int(batch["frame"][slot])
                    firsts.add((row, first))
                    found = batch["image"][slot].numpy()
                    np.testing.assert_array_equal(found, of_clip(index, row, first))
                    times = (first + np.arange(5) * 3) / 30
                    np.testing.assert_allclose(batch["time"][slot], times, atol=2e-3)
    assert len(firsts) > 2 * ROWS


def test_all_frames_have_one_window_and_flip(index: Index) -> None:
    options = {"crop": (20, 24), "window": "random", "flip": "hv", "dtype": "uint8"}
    outputs = {"outputs": ("window", "flip")}
    samples = read_here(video_pipeline, index, **CLIP, **options, **outputs)
    assert len({tuple(one["flip"]) for one in samples.values()}) > 1
    for row, one in samples.items():
        y, x = one["window"][:2].round().astype(int).tolist()
        expected = of_clip(index, row, int(one["frame"]))[:, :, y : y + 20, x : x + 24]
        across, down = one["flip"]
        expected = expected[:, :, :: -1 if down else 1, :: -1 if across else 1]
        np.testing.assert_array_equal(one["image"], expected)


def test_frames_are_resized_and_normalised_like_single_ones(index: Index) -> None:
    """A clip of one frame is an image, which goes through the same operators."""
    options = {"resize": (20, 30), "mean": (100, 110, 120), "std": (50, 60, 70), "flip": "h"}
    clips = read_here(video_pipeline, index, **CLIP, **options)
    for row, clip in clips.items():
        for at in (0, 3):
            first = int(clip["frame"]) + at * CLIP["stride"]
            one_frame = index.select([row]).with_column("frame", [first])
            own = {**options, "flip": ""}
            (one,) = read_here(video_pipeline, one_frame, frames=1, **own).values()
            expected = one["image"][0]
            frame = clip["image"][at]
            assert any(
                np.allclose(frame, flipped, atol=1e-4)
                for flipped in (expected, expected[..., ::-1])
            )


def test_mean_and_std_are_of_colours(index: Index) -> None:
    plain = read_here(video_pipeline, index, **CLIP, dtype="float32")
    finished = read_here(video_pipeline, index, **CLIP, mean=(1, 2, 3), std=(10, 20, 30))
    for row, one in plain.items():
        mean, std = (np.array(each).reshape(1, 3, 1, 1) for each in ((1, 2, 3), (10, 20, 30)))
        np.testing.assert_allclose(finished[row]["image"], (one["image"] - mean) / std, atol=1e-4)


EVERYTHING: dict[str, Any] = {
    **CLIP,
    "random_area": (0.3, 1),
    "resize": (16, 20),
    "flip": "h",
    "augment": (ColorJitter(brightness=0.4, hue=0.1),),
    "mean": (100, 110, 120),
    "std": (50, 60, 70),
}


def test_colours_of_all_frames_change_alike(index: Index) -> None:
    still = index.select([3]).with_column("frame", [4])
    jitter = {"augment": (ColorJitter(brightness=0.5, contrast=0.5, hue=0.2),), "seed": 3}
    (whole,) = read_here(video_pipeline, still, frames=4, dtype="uint8", **jitter).values()
    (plain,) = read_here(video_pipeline, still, frames=4, dtype="uint8").values()
    assert not np.array_equal(whole["image"], plain["image"])
    # Equal colours of any frame become equal colours.
    before = plain["image"].transpose(0, 2, 3, 1).reshape(-1, 3)
    after = whole["image"].transpose(0, 2, 3, 1).reshape(-1, 3)
    changed: dict[tuple[int, ...], tuple[int, ...]] = {}
    for colour, new in zip(map(tuple, before.tolist()), map(tuple, after.tolist()), strict=True):
        assert changed.setdefault(colour, new) == new


@settings(max_examples=4)
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


def test_eval_takes_the_middle(index: Index) -> None:
    options = {**CLIP, "crop": 16, "window": "random", "flip": "h", "mode": "eval"}
    for epoch in (0, 1):
        samples = read_here(video_pipeline, index, **options, epoch=epoch)
        assert [int(one["frame"]) for one in samples.values()] == [(n - 13) // 2 for n in FRAMES]


def test_each_clip_comes_once(index: Index) -> None:
    clips = index.each_clip(5, stride=3, every=10)
    with new_loader(video_pipeline, clips, dtype="uint8", columns=("frames",)) as loader:
        batches = [batch for step in loader for batch in step]
    found = {}
    for batch in batches:
        for slot, row in enumerate(batch["row"].tolist()):
            assert row not in found
            found[row] = int(batch["frame"][slot])
            expected = of_clip(clips, row, found[row])
            np.testing.assert_array_equal(batch["image"][slot].numpy(), expected)
    assert [found[row] for row in range(len(clips))] == clips["frame"].to_pylist()


def test_clips_are_of_one_kind(index: Index) -> None:
    clips = index.each_clip(5, stride=3)
    with (
        pytest.raises(ReadError, match="frames=5 and stride=3"),
        Loader(video_pipeline, clips, frames=4, batch_size=2, devices=[None]) as loader,
    ):
        next(iter(loader))
    with pytest.raises(ValueError, match="frames"):
        video_pipeline(index, batch_size=2)


def test_bad_videos_are_named(index: Index, tmp_path: Path) -> None:
    path = tmp_path / "bad.mp4"
    path.write_bytes(Path(index.path(0)).read_bytes())
    broken = Index.concat([index, Index.scan_videos(path)])
    path.write_bytes(b"now something else")
    with new_loader(video_pipeline, broken, **CLIP, bad_sample="skip") as loader:
        rows = [row for step in loader for batch in step for row in batch["row"].tolist()]
        (bad,) = loader.stats.rejected.values()
    assert sorted(rows) == [*range(ROWS)]
    assert bad.row == ROWS
    assert "index it again" in bad.reason


def test_short_videos(index: Index) -> None:
    options = {"frames": 10, "stride": 3, "dtype": "uint8", "mode": "eval"}
    samples = read_here(video_pipeline, index, **options)
    assert [*samples] == [row for row, frames in enumerate(FRAMES) if frames >= 28]
    padded = read_here(video_pipeline, index, **options, short="pad")
    assert [int(one["length"]) for one in padded.values()] == [10, 10, 9, 10, 10, 10]
    last = [number_of(frame.transpose(1, 2, 0)) for frame in padded[2]["image"]]
    assert last == [0, 3, 6, 9, 12, 15, 18, 21, 24, 24]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"frames": 0}, "frames"),
        ({"frames": 4, "stride": 0}, "stride"),
        ({"frames": 4, "short": "loop"}, "short"),
        ({"frames": 4, "mean": (1, 2)}, "mean"),
        ({"frames": 4, "dtype": "int16"}, "int16"),
        ({"frames": 4, "memory_format": "channels_last"}, "channels_last"),
    ],
)
def test_wrong_settings(index: Index, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        video_pipeline(index, batch_size=2, **options)


def test_a_preprocessor_gives_the_same(index: Index) -> None:
    options = {**CLIP, "resize_shorter": 40, "crop": 32, "mean": 128, "std": 64}
    with new_loader(video_pipeline, index, mode="eval", batch_size=ROWS, **options) as loader:
        ((expected,),) = loader
        with loader.preprocessor() as pre:
            found = pre([Path(index.path(row)).read_bytes() for row in range(ROWS)])
    assert torch.equal(found["image"], expected["image"])
    assert torch.equal(found["frame"], expected["frame"])
    with Preprocessor(video_pipeline, frames=4, crop=16) as pre:
        assert pre.outputs()["image"] == (np.dtype("float32"), (4, 3, 16, 16))


def test_videos_in_tars(index: Index, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "videos.tar", "w") as tar:
        for row in range(ROWS):
            tar.add(index.path(row), f"{row}{Path(index.path(row)).suffix}")
            label = tarfile.TarInfo(f"{row}.cls")
            label.size = 1
            tar.addfile(label, io.BytesIO(b"%d" % row))
    packed = Index.scan_videos(tmp_path / "videos.tar")
    assert packed["frames"].to_pylist() == [*FRAMES]
    found = read_here(video_pipeline, packed, **CLIP, columns=("cls",), mode="eval", dtype="uint8")
    expected = read_here(video_pipeline, index, **CLIP, mode="eval", dtype="uint8")
    for row, one in found.items():
        assert one["cls"] == row
        np.testing.assert_array_equal(one["image"], expected[row]["image"])
