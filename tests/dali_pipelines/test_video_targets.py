"""Boxes and masks of each frame of a clip, around squares whose positions are known."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from epochs import HOW, SEED, check_equal, check_pure, in_turns, new_loader
from hypothesis import given, settings
from numpy.typing import NDArray
from PIL import Image
from read_here import read_here
from video_files import write_video as write

from dali_pipelines import Boxes, Index, Mask, jpeg_pipeline, video_pipeline
from dali_pipelines.cli.main import main

SIZE = HEIGHT, WIDTH = 64, 96
FRAMES = (20, 32)
KINDS = ("ffv1", "h264")
CLIP: dict[str, Any] = {"frames": 4, "stride": 3}
TARGETS = {
    "boxes": Boxes("boxes", labels="classes", min_area=0),
    "mask": Mask("mask_path", outside=9),
}


def squares(number: int, seed: int) -> list[tuple[int, int, int, int]]:
    """Return x1, y1, x2, y2 of the squares of a frame: one, or two, or in frame 0 none."""
    if number == 0:
        return []
    first = 2 * number + seed, 5 + number, 2 * number + seed + 12, 15 + number
    return [first] if number % 3 else [first, (80 - number, 50, 86 - number, 58)]


def drawn(number: int, seed: int, size: tuple[int, int]) -> NDArray[Any]:
    """Return a frame with white squares."""
    frame = np.zeros((*size, 3), np.uint8)
    for x1, y1, x2, y2 in squares(number, seed):
        frame[y1:y2, x1:x2] = 255
    return frame


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder = tmp_path_factory.mktemp("squares")
    (folder / "masks").mkdir()
    boxes, classes, masks = [], [], []
    for row, (kind, frames) in enumerate(zip(KINDS, FRAMES, strict=True)):
        write(folder / f"{row}", kind, frames, seed=row, size=SIZE, draw=drawn)
        found = [squares(number, row) for number in range(frames)]
        boxes.append([np.array(each, float).reshape(-1, 4) for each in found])
        classes.append(
            [[number + at for at in range(len(each))] for number, each in enumerate(found)]
        )
        masks.append([f"{folder}/masks/{row}_{number}.png" for number in range(frames)])
        for number, path in enumerate(masks[-1]):
            Image.fromarray(drawn(number, row, SIZE)[..., 0] // 255 * (number + 1)).save(path)
    table = Index.scan_videos(folder).with_column("boxes", boxes)
    return table.with_column("classes", classes).with_column("mask_path", masks)


def check(sample: dict[str, Any], row: int, exact: bool = True) -> None:
    """Check boxes and masks against the white pixels, and the number of the frame."""
    assert sample["boxes"].shape[0] == sample["mask"].shape[0] == len(sample["image"]) == 4
    for at, image in enumerate(sample["image"]):
        number = int(sample["frame"]) + at * CLIP["stride"]
        white = image[0] > 127
        mask = sample["mask"][at]
        assert set(np.unique(mask)) <= {0, number + 1, 9}
        # The edges of a resized square are between two pixels.
        assert np.mean((mask == number + 1) != white) <= (0 if exact else 0.02)
        count = int(sample["num_boxes"][at])
        assert count <= len(squares(number, row))
        classes = sample["classes"][at]
        assert set(classes[:count]) <= {number, number + 1}
        assert (classes[count:] == -1).all()
        covered = np.zeros_like(white)
        for x1, y1, x2, y2 in np.rint(sample["boxes"][at, :count]).astype(int).tolist():
            covered[y1:y2, x1:x2] = True
        assert np.mean(covered != white) <= (0 if exact else 0.03)


GEOMETRIES: dict[str, dict[str, Any]] = {
    "whole": {},
    "crop": {"crop": (30, 50), "window": "random", "flip": "hv"},
    "resize": {"resize": (96, 144), "flip": "hv"},
    "area": {"random_area": (0.3, 1), "resize": (64, 96), "flip": "hv"},
    "zoom": {"crop": (30, 50), "zoom": (2, 2), "window": "random", "flip": "h"},
}


@pytest.mark.parametrize("how", GEOMETRIES)
def test_targets_follow_the_squares(index: Index, how: str) -> None:
    for epoch in range(4):
        settings = {**CLIP, **GEOMETRIES[how], "targets": TARGETS, "dtype": "uint8"}
        samples = read_here(video_pipeline, index, **settings, epoch=epoch, shuffle=True)
        assert [*samples] == [0, 1]
        for row, sample in samples.items():
            check(sample, row, exact=how in ("whole", "crop"))


def test_a_loader_delivers_them(index: Index) -> None:
    rows = []
    with new_loader(video_pipeline, index, **CLIP, crop=(40, 60), targets=TARGETS) as loader:
        for (batch,) in loader:
            assert batch["boxes"].shape[1:] == (4, 2, 4)
            assert batch["num_boxes"].shape[1:] == (4,)
            assert batch["classes"].shape[1:] == (4, 2)
            assert batch["mask"].shape[1:] == (4, 40, 60)
            for slot, row in enumerate(batch["row"].tolist()):
                rows.append(row)
                check({name: value[slot].numpy() for name, value in batch.items()}, row)
    assert sorted(rows) == [0, 1]


EVERYTHING: dict[str, Any] = {**CLIP, **GEOMETRIES["area"], "targets": TARGETS}


@settings(max_examples=3)
@given(how=HOW)
def test_they_are_pure(index: Index, how: dict[str, int]) -> None:
    clips = index.each_clip(4, stride=3, every=5)

    def read(**options: Any) -> Any:
        return read_here(video_pipeline, clips, **EVERYTHING, **options)

    check_pure(read, how, read(batch_size=1, seed=SEED, shuffle=True))


def test_an_epoch_is_resumed_exactly(index: Index) -> None:
    whole = in_turns(video_pipeline, index, [{"batch_size": 1}], **EVERYTHING)
    turns = [{"batch_size": 1}, {"batch_size": 1, "num_read_processes": 2}]
    check_equal(in_turns(video_pipeline, index, turns, **EVERYTHING), whole)


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_clips_from_index_files(index: Index, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"clips{suffix}"
    index.each_clip(4, stride=3).save(path)
    clips = Index.load(path)
    samples = read_here(video_pipeline, clips, **CLIP, targets=TARGETS, dtype="uint8")
    videos = clips["path"].to_pylist()
    assert len(samples) == len(videos) > 4
    for row, sample in samples.items():
        check(sample, sorted({*videos}).index(videos[row]))


def test_paths_of_masks_are_relative_to_the_index(index: Index, tmp_path: Path) -> None:
    folder = str(Path(index.path(0)).parent)
    masks = [
        [path.removeprefix(f"{folder}/") for path in row] for row in index["mask_path"].to_pylist()
    ]
    names = [Path(index.path(row)).name for row in range(2)]
    relative = index.with_column("mask_path", masks).with_column("path", names)
    assert relative["mask_path"].to_pylist() == masks
    path = Path(folder) / f"{tmp_path.name}.parquet"
    pq.write_table(relative.table, path)
    loaded = Index.load(path)
    assert loaded["mask_path"].to_pylist() == index["mask_path"].to_pylist()
    there = index.moved(folder, "/elsewhere")
    assert there["mask_path"][1][3].as_py() == "/elsewhere/masks/1_3.png"
    path.unlink()


def test_short_videos_repeat_the_last_targets(index: Index) -> None:
    options = {"frames": 12, "stride": 2, "short": "pad", "dtype": "uint8", "targets": TARGETS}
    sample = read_here(video_pipeline, index.select([0]), **options)[0]
    assert int(sample["length"]) == 10
    for name in ("boxes", "mask", "num_boxes", "classes"):
        for at in (10, 11):
            np.testing.assert_array_equal(sample[name][at], sample[name][9])


def test_null_means_no_boxes(index: Index) -> None:
    some = index["boxes"].to_pylist()
    some[0][4] = None
    classes = index["classes"].to_pylist()
    classes[0][4] = None
    found = index.with_column("boxes", some).with_column("classes", classes)
    targets = {"boxes": TARGETS["boxes"]}
    one = found.with_column("frame", [4, 4])
    samples = read_here(video_pipeline, one, frames=2, targets=targets)
    assert samples[0]["num_boxes"].tolist() == [0, 1]
    assert samples[1]["num_boxes"].tolist() == [1, 1]
    none = index.with_column("boxes", [None, some[1]]).with_column("classes", [None, classes[1]])
    samples = read_here(video_pipeline, none, **CLIP, targets=targets)
    assert samples[0]["num_boxes"].tolist() == [0] * 4


def test_boxes_of_a_clip_stay(index: Index) -> None:
    """A box for each row holds for the whole clip, as before."""
    whole = index.with_column("boxes", [np.array([[1.0, 2, 30, 40]])] * 2)
    samples = read_here(video_pipeline, whole, **CLIP, targets={"boxes": Boxes("boxes")})
    assert samples[0]["boxes"].tolist() == [[1, 2, 30, 40]]


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("boxes", lambda rows: [rows[0][:-1], rows[1]], "boxes.*19.*20 frames"),
        ("classes", lambda rows: [[*rows[0], []], rows[1]], "classes.*21.*20 frames"),
        ("classes", lambda rows: [[[1, 2, 3]] * 20, rows[1]], "frame 4: .*3 labels"),
        ("mask_path", lambda rows: [["/nowhere.png"] * 20, rows[1]], "frame 4: .*nowhere"),
        ("mask_path", lambda rows: [[None] * 20, rows[1]], "frame 4: .*null"),
        ("boxes", lambda rows: [[[[5, 5, 1, 1]]] * 20, rows[1]], "frame 4: box 0.*inverted"),
    ],
)
def test_bad_rows_are_rejected(index: Index, name: str, change: Any, words: str) -> None:
    bad = index.with_column(name, change(index[name].to_pylist()))
    bad = bad.with_column("frame", [4, 4])
    with new_loader(video_pipeline, bad, **CLIP, targets=TARGETS, bad_sample="skip") as loader:
        assert [row for (batch,) in loader for row in batch["row"].tolist()] == [1]
        (rejected,) = loader.stats.rejected.values()
    assert rejected.row == 0
    assert re.search(words, rejected.reason), rejected.reason


def test_wrong_columns(index: Index, tmp_path: Path) -> None:
    for name, values, targets in (
        ("classes", [[1], [2]], TARGETS),
        ("classes", [[["a"]], [["b"]]], TARGETS),
        ("boxes", [[[["a"]]], [[["b"]]]], TARGETS),
    ):
        with pytest.raises(TypeError, match=name):
            video_pipeline(index.with_column(name, values), batch_size=2, **CLIP, targets=targets)
    with pytest.raises(TypeError, match=r"boxes.*video_pipeline"):
        jpeg_pipeline(index, batch_size=2, targets={"boxes": Boxes("boxes")})
    with pytest.raises(TypeError, match=r"mask_path.*video_pipeline"):
        jpeg_pipeline(index, batch_size=2, targets={"mask": Mask("mask_path")})


def test_show_draws_them_on_each_frame(index: Index, tmp_path: Path) -> None:
    index.save(tmp_path / "clips.parquet")
    flags = ["--pipeline=video", "--frames=4", "--stride=3", "--count=2"]
    plain, marked = tmp_path / "plain.png", tmp_path / "marked.png"
    assert main(["show", str(tmp_path / "clips.parquet"), "-o", str(plain), *flags]) == 0
    flags += ["--boxes=boxes", "--labels=classes", "--mask=mask_path"]
    assert main(["show", str(tmp_path / "clips.parquet"), "-o", str(marked), *flags]) == 0
    with Image.open(plain) as one, Image.open(marked) as other:
        before, after = (np.asarray(each.convert("RGB")).astype(int) for each in (one, other))
    assert before.shape == after.shape
    changed = np.abs(before - after).sum(2) > 60
    width = changed.shape[1] // 4
    assert all(changed[:, at * width : (at + 1) * width].any() for at in range(4))
