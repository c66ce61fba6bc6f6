"""Masks and boxes in pipelines: they show the part of the image that the sample shows."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from epochs import HOW, by_row, check_equal, check_pure, in_turns, new_loader
from hypothesis import given, settings
from image_files import exif
from PIL import Image
from ramp_images import Archive, check, gray
from solar_files import frame, save

from dali_pipelines import (
    Boxes,
    Index,
    Mask,
    PipelineConfig,
    ReadError,
    aia_pipeline,
    jpeg_pipeline,
    npy_pipeline,
)
from dali_pipelines.graph.source import make_source
from readers.contract import Peek, Row, Sample, SampleSpec
from readers.jpeg.reader import JpegReader
from readers.sampling.placement import Placement
from readers.source import Source
from readers.window import Window
from readers.worker.read_report import ReadReport

Ramps = Callable[..., Archive]

SHAPES = ((75, 100), (100, 75), (65, 127), (60, 60), (127, 90), (64, 80), (49, 70))
ROWS = len(SHAPES)
RANDOM: dict[str, Any] = {"window": "random"}
TURNED: dict[str, Any] = {"crop": (40, 50), "zoom": (0.7, 2.0), "rotate": 180}
PURE: dict[str, Any] = {"crop": (40, 50), **RANDOM, "flip": "hv", "rotate": 20}

MASK = Mask("mask_path", "int16", outside=-1)
TARGETS: dict[str, Any] = {"mask": MASK, "boxes": Boxes("boxes", "labels", min_area=0)}


def boxes_of(row: int, shape: tuple[int, int]) -> list[list[float]]:
    """Return none to three boxes, which reach beyond the image."""
    height, width = shape
    return [[10.0 * n, 5 + row, width + 3 - 3 * n, height - 7.5] for n in range(row % 4)]


def with_boxes(archive: Archive) -> Archive:
    boxes = [boxes_of(row, shape) for row, shape in enumerate(archive.shapes)]
    labels = [list(range(row, row + len(each))) for row, each in enumerate(boxes)]
    boxes_column = pa.array(boxes, pa.list_(pa.list_(pa.float32(), 4)))
    labels_column = pa.array(labels, pa.list_(pa.int64()))
    return archive.with_column("boxes", boxes_column).with_column("labels", labels_column)


@pytest.fixture
def archive(ramps: Ramps, tmp_path: Path) -> Archive:
    """Return npy images with masks and boxes."""
    return with_boxes(ramps("npy", SHAPES)).with_masks(tmp_path, "npy")[0]


CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("plain", "fits", {"crop": (40, 50), **RANDOM, "flip": "hv"}),
    ("plain", "npy", {"random_area": (0.08, 1.0), "resize": (20, 28), "flip": "v"}),
    ("plain", "png", {"resize_shorter": 32, "crop": 28, "mode": "eval"}),
    ("RICE_1", "fits", {"crop": (45, 32), **RANDOM, "resize": 24, "flip": "h"}),
    ("RICE_1", "npy", {**TURNED, **RANDOM, "flip": "hv"}),
    ("npy", "png", {"resize": (20, 28), "flip": "hv"}),
    ("npy", "fits", {**TURNED, "zoom": (1, 2), "rotate": 30, "resize": 20, "flip": "h"}),
    ("npy", "npy", {"resize_shorter": 32, "crop": (20, 28), **RANDOM, "flip": "hv"}),
    ("jpeg", "png", {"crop": (45, 32), **RANDOM, "resize": 24, "flip": "v"}),
    ("jpeg", "fits", {"resize_shorter": 32, "crop": (20, 28), **RANDOM, "flip": "h"}),
    ("mcu rows", "png", {"crop": (40, 48), **RANDOM, "flip": "hv"}),
    ("mcu rows", "npy", {"random_area": (0.08, 1.0), "resize": (20, 28)}),
    ("mcu rows", "png", {**TURNED, "crop": 44, "flip": "hv"}),
]
"""Kind of the images, format of the masks, settings."""


@pytest.mark.parametrize(("kind", "suffix", "options"), CASES, ids=str)
def test_targets_follow(
    ramps: Ramps, tmp_path: Path, kind: str, suffix: str, options: dict[str, Any]
) -> None:
    archive, masks = with_boxes(ramps(kind, SHAPES)).with_masks(tmp_path, suffix)
    # A PNG of 16 bits has no negative numbers.
    mask = Mask("mask_path", "int32", outside=-1) if suffix == "png" else MASK
    found = check(archive, targets={**TARGETS, "mask": mask}, **options)
    truths = archive.truths(**options)
    for row, sample in found.items():
        truth = truths[row]
        assert sample["mask"].dtype == mask.dtype
        np.testing.assert_array_equal(sample["mask"], truth.nearest(masks[row], -1))
        count, own = int(sample["num_boxes"]), boxes_of(row, archive.shapes[row])
        assert sample["boxes"].shape == (3, 4)
        np.testing.assert_allclose(sample["boxes"][:count], truth.boxes(own), atol=1e-3)
        labels = [row + n for n, one in enumerate(own) if len(truth.boxes([one]))]
        assert sample["labels"].tolist() == labels + [-1] * (3 - count)
        assert not sample["boxes"][count:].any()


def test_targets_of_aia(tmp_path: Path) -> None:
    """Masks of the registered image, of one file and of parts of several."""
    pixels, header = frame()
    paths = [str(save(tmp_path / f"{n}.fits", pixels.astype(np.int16), header)) for n in range(3)]
    grid: dict[str, Any] = {"size": 128, "scale": 19.2, "missing": 0.0}
    index = Index.from_paths(paths)
    with new_loader(aia_pipeline, index, batch_size=1, **grid) as loader:
        whole = next(iter(loader))[0]["image"][0, 0].numpy()
    np.save(tmp_path / "mask.npy", whole)
    index = index.with_column("mask_path", [str(tmp_path / "mask.npy")] * 3)
    parts = index.with_column("path_171", paths).with_column("path_193", paths)
    grid["targets"] = {"map": Mask("mask_path", "float32")}
    for one, channels in ((index, 1), (parts, 2)):
        options: dict[str, Any] = {"crop": (40, 50), **RANDOM, "flip": "hv"}
        with new_loader(aia_pipeline, one, **grid, **options) as loader:
            for sample in by_row(loader).values():
                # The grid of a crop is that of the whole image, so are its values.
                atol = 1e-4 * whole.max()
                np.testing.assert_allclose(sample["image"][0], sample["map"], atol=atol)
                assert len(sample["image"]) == channels
        options = {"crop": (60, 60), "rotate": 180, "zoom": (1.5, 3)}
        with new_loader(aia_pipeline, one, **grid, **options) as loader:
            for sample in by_row(loader).values():
                image, mask = sample["image"][0], sample["map"]
                shifts = [(y, x) for y in range(-3, 4) for x in range(-3, 4)]
                alike = [np.corrcoef(image.flat, np.roll(mask, s, (0, 1)).flat) for s in shifts]
                assert shifts[int(np.argmax([both[0, 1] for both in alike]))] == (0, 0)


def test_targets_do_not_depend_on_how_they_are_read(archive: Archive) -> None:
    expected = archive.samples(targets=TARGETS, **PURE)

    @settings(max_examples=6)
    @given(HOW)
    def pure(how: dict[str, int]) -> None:
        check_pure(archive.samples, how, expected, targets=TARGETS, **PURE)

    pure()


def test_a_resume_goes_on_with_the_same_targets(archive: Archive) -> None:
    options = {**archive.settings, **PURE, "targets": TARGETS}
    turns = ({"batch_size": 2}, {"batch_size": 1, "num_read_processes": 2}, {"batch_size": 3})
    found = in_turns(npy_pipeline, archive.index, turns, **options)
    expected = archive.samples(targets=TARGETS, **PURE)
    assert sorted(found) == sorted(expected)
    for row, sample in found.items():
        for name in ("image", "mask", "boxes", "num_boxes", "labels"):
            np.testing.assert_array_equal(sample[name], expected[row][name])


def test_weighted_rows_have_their_own_targets(ramps: Ramps, archive: Archive) -> None:
    index = archive.index.with_column("w", [0, 1, 0, 3.0, 0, 0, 2])
    own: dict[str, Any] = {"batch_size": 7, "crop": (40, 50), **RANDOM, "outputs": ("window",)}
    with new_loader(npy_pipeline, index, channels=3, targets=TARGETS, weights="w", **own) as loader:
        ((batch,),) = loader
    rows = batch["row"].tolist()
    assert set(rows) <= {1, 3, 6}
    for slot, row in enumerate(rows):
        labels = batch["labels"][slot, : batch["num_boxes"][slot]].tolist()
        assert set(labels) <= set(range(row, row + row % 4))
        y, x = map(int, batch["window"][slot, :2])
        mask = gray(SHAPES[row], row)[y : y + 40, x : x + 50]
        np.testing.assert_array_equal(batch["mask"][slot].numpy(), mask)


@pytest.mark.parametrize("kind", ["jpeg", "RICE_1"])
def test_images_and_their_order_are_the_same_without_targets(
    ramps: Ramps, tmp_path: Path, kind: str
) -> None:
    archive = with_boxes(ramps(kind, SHAPES)).with_masks(tmp_path)[0]
    both = []
    for targets in ({}, TARGETS):
        options: dict[str, Any] = {"crop": (40, 48), **RANDOM, "flip": "hv", "targets": targets}
        with new_loader(archive.factory, archive.index, **options) as loader:
            both.append(by_row(loader))
    without, found = both
    assert [*found] == [*without]
    check_equal(found, without)
    assert found[0].keys() - without[0].keys() == {"mask", "boxes", "num_boxes", "labels"}


def damaged(archive: Archive, folder: Path) -> Index:
    """Return an Index whose first and last rows are good."""
    table = archive.index.table
    masks, boxes, labels = (table[name].to_pylist() for name in ("mask_path", "boxes", "labels"))
    (folder / "cut.npy").write_bytes(Path(masks[2]).read_bytes()[:500])
    masks[1:5] = [str(folder / "none.npy"), str(folder / "cut.npy"), masks[0], None]
    boxes[5], labels[5] = [[0, 0, 5, 5], [np.nan, 0, 1, 1]], [1, 2]
    return (
        archive.index.with_column("mask_path", masks)
        .with_column("boxes", pa.array(boxes, pa.list_(pa.list_(pa.float32(), 4))))
        .with_column("labels", pa.array(labels, pa.list_(pa.int64())))
    )


REASONS = {
    1: r"mask: .*none.npy: .*No such file",
    2: r"mask: .*cut.npy: .*ends at 500",
    3: "mask: .*mask0.npy: .*75x100.*60x60",
    4: "mask: .*'mask_path'.*this row",
    5: r"boxes: box 1 \(nan, 0, 1, 1\)",
}


@pytest.mark.parametrize("tail", ["partial", "fill"])
def test_bad_targets_are_rejected_rows(archive: Archive, tmp_path: Path, tail: str) -> None:
    index = damaged(archive, tmp_path)
    options: dict[str, Any] = {**archive.settings, "crop": (40, 50), "targets": TARGETS}
    options |= {"tail": tail, "batch_size": 4}
    with new_loader(npy_pipeline, index, bad_sample="skip", **options) as loader:
        assert sorted(by_row(loader)) == [0, 6]
        assert loader.stats.rejected.keys() == REASONS.keys()
        for row, reason in REASONS.items():
            assert re.match(reason, loader.stats.rejected[row].reason)
    known = dict.fromkeys(REASONS, "known")
    with new_loader(npy_pipeline, index, rejected=known, bad_sample="skip", **options) as loader:
        list(loader)
        assert {each.reason for each in loader.stats.rejected.values()} == {"known"}
    with (
        pytest.raises(ReadError, match=r"mask: |boxes:"),
        new_loader(npy_pipeline, index, **options) as loader,
    ):
        list(loader)


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({"resize": (40, 56)}, True),
        ({"crop": (64, 80), **RANDOM}, True),
        ({"crop": 64, "rotate": 180}, True),
        ({"crop": (64, 80), **RANDOM}, False),
    ],
)
def test_boxes_of_coco_for_another_size_are_rejected(
    tmp_path: Path, options: dict[str, Any], sizes: bool
) -> None:
    """Annotated as 300x200: EXIF turns some of the images, and one was made larger since."""
    picture = Image.fromarray(np.zeros((200, 300, 3), np.uint8))
    for orientation in range(1, 9):
        picture.save(tmp_path / f"{orientation}.jpg", exif=exif(orientation))
    picture.resize((600, 400)).save(tmp_path / "larger.jpg")
    names = [*(f"{orientation}.jpg" for orientation in range(1, 9)), "larger.jpg"]
    size = {"width": 300, "height": 200} if sizes else {}
    box = {"category_id": 1, "bbox": [100, 50, 60, 40]}
    content = {
        "images": [{"id": at, "file_name": name, **size} for at, name in enumerate(names)],
        "annotations": [{"id": at, "image_id": at, **box} for at in range(len(names))],
        "categories": [{"id": 1, "name": "x"}],
    }
    (tmp_path / "a.json").write_text(json.dumps(content))
    Index.from_coco(tmp_path, tmp_path / "a.json").save(tmp_path / "index.arrow")
    index = Index.load(tmp_path / "index.arrow")
    targets = {"boxes": Boxes("boxes", "labels")}
    with new_loader(jpeg_pipeline, index, targets=targets, bad_sample="skip", **options) as loader:
        list(loader)
        rejected = {names[row]: bad.reason for row, bad in loader.stats.rejected.items()}
    wrong = [f"{orientation}.jpg" for orientation in (5, 6, 7, 8)] + ["larger.jpg"]
    assert sorted(rejected) == (wrong if sizes else [])
    for name, reason in rejected.items():
        assert "200x300" in reason
        assert ("400x600" if name == "larger.jpg" else "300x200") in reason
        assert ("EXIF" in reason) == (name != "larger.jpg")


def test_too_many_boxes_are_a_bad_row(archive: Archive) -> None:
    options: dict[str, Any] = {"targets": {"boxes": Boxes("boxes", max_boxes=2)}, "crop": 40}
    with new_loader(
        npy_pipeline, archive.index, bad_sample="skip", **archive.settings, **options
    ) as loader:
        list(loader)
        (rejected,) = loader.stats.rejected.values()
    assert rejected.row == 3
    assert re.search(r"boxes: 3 .*max_boxes.*2.*min_area", rejected.reason)


def test_batches_without_rows_have_the_shapes_of_others(tmp_path: Path) -> None:
    """A shard without rows in the last step; no crop says the size."""
    paths = [str(tmp_path / f"{number}.npy") for number in range(5)]
    for number, path in enumerate(paths):
        np.save(path, np.full((20, 30), number, np.float32))
    index = Index.from_paths(paths).with_column("mask_path", paths)
    index = index.with_column("boxes", [np.ones((1, 4)) * (1, 1, 9, 9)] * 5)
    targets = {"m": Mask("mask_path", "float32"), "boxes": Boxes("boxes", max_boxes=6)}
    options: dict[str, Any] = {"targets": targets, "batch_size": 2, "num_shards": 2}
    with new_loader(npy_pipeline, index, shard_id=1, **options) as loader:
        first, last = ([(name, value.shape[1:]) for name, value in b.items()] for (b,) in loader)
        assert first == last
    with new_loader(npy_pipeline, index, shard_id=0, **options) as loader:
        for (batch,) in loader:
            assert (batch["m"] == batch["image"][:, 0]).all()


@pytest.mark.parametrize("dtype", ["uint16", "int32", "int64", "float32", "float64"])
def test_masks_of_16_bits(tmp_path: Path, dtype: str) -> None:
    np.save(tmp_path / "image.npy", np.full((20, 30), 60000, np.float32))
    np.save(tmp_path / "mask.npy", np.full((20, 30), 60000, np.uint16))
    index = Index.from_paths([tmp_path / "image.npy"])
    index = index.with_column("mask_path", [str(tmp_path / "mask.npy")])
    targets = {"mask": Mask("mask_path", dtype)}
    with new_loader(npy_pipeline, index, targets=targets, batch_size=1) as loader:
        ((batch,),) = loader
    assert str(batch["mask"].dtype) == f"torch.{dtype}"
    assert (batch["mask"] == 60000).all()


# The Source.


def source_of(index: Index, reader: Any, **options: Any) -> Source:
    options = {"batch_size": 2, "shuffle": False, "targets": TARGETS, **options}
    return make_source(index, reader, PipelineConfig(**options))


class Info:
    idx_in_epoch = 0


def arrays_of(source: Source) -> dict[str, Any]:
    return dict(zip((spec.name for spec in source.specs), source(Info()), strict=True))


def reports(index: Index, **options: Any) -> tuple[dict[str, Any], ReadReport]:
    found = arrays_of(source_of(index, JpegReader(), crop=40, **options))
    return found, ReadReport.unpack(found["report"][None])[0]


def test_bytes_of_masks_are_counted(ramps: Ramps, tmp_path: Path) -> None:
    index = with_boxes(ramps("jpeg", SHAPES)).with_masks(tmp_path, "png")[0].index
    targets = {**TARGETS, "mask": Mask("mask_path", "uint16")}
    (_, without), (_, found) = reports(index, targets={}), reports(index, targets=targets)
    assert found.input_bytes - without.input_bytes == (tmp_path / "mask0.png").stat().st_size


def test_memory_of_targets_is_counted(archive: Archive) -> None:
    options: dict[str, Any] = {"crop": (40, 50), "batch_size": 2, "num_read_processes": 1}
    without = npy_pipeline(archive.index, channels=3, **options)
    found = npy_pipeline(archive.index, channels=3, targets=TARGETS, **options)
    assert without.peek is not None
    assert found.peek is not None
    targets = 2 * 40 * 50 + 3 * 16 + 4 + 3 * 8
    assert found.peek.nbytes - without.peek.nbytes == targets
    assert (without.footprint.targets_nbytes, found.footprint.targets_nbytes) == (0, targets)


@dataclass(frozen=True)
class Slow:
    """A target of one's own, which waits for a server."""

    columns: tuple[str, ...] = ("number",)

    def fitted(self, table: pa.Table) -> Slow:
        del table
        return self

    def specs(self, name: str) -> tuple[SampleSpec, ...]:
        return (SampleSpec(name=name, dtype="float32", ndim=0),)

    def read(self, name: str, values: Any, placement: Placement) -> Sample:
        time.sleep(float(values["number"]))
        return Sample({name: np.array(placement.image[0], np.float32)})

    def blank(self, name: str, shape: tuple[int, int]) -> Sample:
        del shape
        return Sample({name: np.zeros((), np.float32)})


@pytest.mark.parametrize("seconds", [0.0, 30.0])
def test_own_targets_have_the_time_limit_of_reading(ramps: Ramps, seconds: float) -> None:
    index = ramps("jpeg", SHAPES).index.with_column("number", [seconds] * ROWS)
    found, report = reports(index, targets={"h": Slow()}, read_timeout=1.0)
    assert bool(found["valid"]) == (seconds == 0)
    assert float(found["target:h"]) == (SHAPES[0][0] if seconds == 0 else 0)
    assert ("read_timeout" in report.reason) == (seconds > 0)


TAKEN = "have the name of another output"
ERRORS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"targets": [MASK]}, ValueError, "targets must be a mapping"),
    ({"targets": {"mask": "mask_path"}}, ValueError, "targets must map names"),
    ({"targets": {"mask": Mask}}, ValueError, "targets must map names"),
    ({"targets": {3: MASK}}, ValueError, "targets must map names"),
    ({"targets": {"image": MASK}}, ValueError, rf"\['image'\] {TAKEN}"),
    ({"targets": {"flip": MASK}, "outputs": ("flip",)}, ValueError, rf"\['flip'\] {TAKEN}"),
    ({"targets": {"w": MASK}, "columns": ("w",)}, ValueError, rf"\['w'\] {TAKEN}"),
    (
        {"targets": {"a": TARGETS["boxes"], "b": TARGETS["boxes"]}},
        ValueError,
        rf"\['labels'\] {TAKEN}",
    ),
    ({"targets": {"mask": Mask("masks")}}, KeyError, "no column 'masks'"),
    ({"targets": {"mask": Mask("w")}}, TypeError, "column 'w'.*paths of masks"),
    ({"targets": {"boxes": Boxes("w")}}, TypeError, "column 'w'.*list of boxes"),
]


@pytest.mark.parametrize(("options", "error", "message"), ERRORS, ids=str)
def test_settings_that_contradict_each_other(
    archive: Archive, options: Any, error: type[Exception], message: str
) -> None:
    index = archive.index.with_column("w", np.ones(ROWS))
    with pytest.raises(error, match=message):
        npy_pipeline(index, batch_size=1, crop=40, **archive.settings, **options)


class Sizeless:
    """A Reader without image_size."""

    specs = (SampleSpec(name="pixels", dtype="uint8", ndim=3, layout="HWC"),)
    channels = 1

    def read(self, row: Row, window: Window | None) -> Sample:
        raise NotImplementedError

    def peek(self, row: Row, window: Window | None) -> Peek:
        raise NotImplementedError

    def verify(self, row: Row) -> None:
        raise NotImplementedError

    def blank(self, height: int, width: int) -> Sample:
        raise NotImplementedError


def test_readers_without_sizes_have_no_targets(archive: Archive) -> None:
    with pytest.raises(ValueError, match=r"targets mask, boxes.*regions = True.*Sizeless"):
        source_of(archive.index, Sizeless())
