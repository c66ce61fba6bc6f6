"""Masks and boxes in pipelines: they lie where the pixels of the images lie, in every promise."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from astropy.io import fits
from hypothesis import given, settings
from hypothesis import strategies as st
from image_files import exif
from numpy.typing import NDArray
from PIL import Image, ImageOps
from read_here import read_here
from solar_files import frame, save

from dali_pipelines import (
    Boxes,
    Index,
    Loader,
    Mask,
    PipelineConfig,
    ReadError,
    aia_pipeline,
    fits_pipeline,
    jpeg_pipeline,
    npy_pipeline,
    with_mcu_rows,
)
from dali_pipelines.graph.source import make_source
from readers.contract import Peek, Row, Sample, SampleSpec
from readers.jpeg.reader import JpegReader
from readers.sampling.placement import Placement
from readers.source import Source
from readers.window import Window
from readers.worker.read_report import ReadReport

SEED = 5
SHAPES = [(150, 200), (200, 150), (131, 333), (120, 120), (300, 201), (128, 160), (99, 140)]
LEVEL = 125.0
MARGIN = 45.0
"""Values so near to the level may be on either side of it, as images are interpolated."""

GEOMETRIES: dict[str, dict[str, Any]] = {
    "whole, resized": {"resize": (40, 56), "flip": "hv"},
    "crop": {"crop": (64, 80), "window": "random", "flip": "hv"},
    "crop, resized": {"crop": (90, 64), "window": "random", "resize": 48, "flip": "h"},
    "region": {"random_area": (0.08, 1.0), "resize": (40, 56), "flip": "v"},
    "shorter": {"resize_shorter": 64, "crop": (40, 56), "window": "random", "flip": "hv"},
    "eval": {"resize_shorter": 64, "crop": 56, "mode": "eval"},
    "turned": {"crop": 64, "window": "random", "rotate": 180, "zoom": (0.7, 2.0), "flip": "hv"},
    "turned, resized": {"crop": (60, 80), "rotate": 30, "zoom": (1, 2), "resize": 40, "flip": "h"},
}


@dataclass(frozen=True)
class Archive:
    factory: Callable[..., Any]
    index: Index


def waves(height: int, width: int) -> NDArray[np.float64]:
    y, x = np.mgrid[:height, :width]
    image: NDArray[np.float64] = (np.sin(x / 23 + 1) + np.cos(y / 19 + x / 60) + 2) * 62.5
    return image


def boxes_of(row: int, shape: tuple[int, int]) -> list[list[float]]:
    height, width = shape
    return [[10.0 * n, 5 + row, width - 3 * n, height - 7.5] for n in range(row % 4)]


def with_targets(index: Index, shapes: Any, masks: Any) -> Index:
    boxes = [boxes_of(row, shape) for row, shape in enumerate(shapes)]
    labels = [list(range(row, row + len(each))) for row, each in enumerate(boxes)]
    kind = pa.list_(pa.list_(pa.float32(), 4))
    return (
        index.with_column("mask_path", [str(mask) for mask in masks])
        .with_column("boxes", pa.array(boxes, kind))
        .with_column("labels", pa.array(labels, pa.list_(pa.int64())))
    )


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Archive]:
    """Return images of waves, and masks of where they are above a level, by the format of both."""
    folder = tmp_path_factory.mktemp("targets")
    names = ("jpeg", "plain", "rice", "npy")
    suffixes = {"jpeg": "jpg", "plain": "fits", "rice": "fits", "npy": "npy"}
    paths: dict[str, list[Path]] = {name: [] for name in names}
    masks: dict[str, list[Path]] = {name: [] for name in names}
    shapes = []
    for number, shape in enumerate(SHAPES):
        image = waves(*shape).astype(np.int16)
        for name in names:
            paths[name].append(folder / f"{number}_{name}.{suffixes[name]}")
            suffix = "png" if name == "jpeg" else suffixes[name]
            masks[name].append(folder / f"{number}_{name}_mask.{suffix}")
        picture = Image.fromarray(image.astype(np.uint8)).convert("RGB")
        picture.save(paths["jpeg"][-1], exif=exif(number % 8 + 1), quality=95)
        with Image.open(paths["jpeg"][-1]) as stored:
            shown = np.asarray(ImageOps.exif_transpose(stored).convert("L"))
        shapes.append(shown.shape)
        Image.fromarray(shown > LEVEL).save(masks["jpeg"][-1])
        np.save(paths["npy"][-1], image.astype(np.float32))
        np.save(masks["npy"][-1], image > LEVEL)
        above = (image > LEVEL).astype(np.uint8)
        tiles: dict[str, Any] = {"compression_type": "RICE_1", "tile_shape": (16, 32)}
        fits.PrimaryHDU(image).writeto(paths["plain"][-1])
        fits.PrimaryHDU(above).writeto(masks["plain"][-1])
        fits.CompImageHDU(image, **tiles).writeto(paths["rice"][-1])
        fits.CompImageHDU(above, **tiles).writeto(masks["rice"][-1])
    factories: dict[str, Any] = {"jpeg": jpeg_pipeline, "npy": npy_pipeline}
    indexes = {
        name: with_targets(
            Index.from_paths(paths[name]), shapes if name == "jpeg" else SHAPES, masks[name]
        )
        for name in names
    }
    indexes["mcu rows"] = with_mcu_rows(indexes["jpeg"])
    factories["mcu rows"] = jpeg_pipeline
    return {
        name: Archive(factories.get(name, fits_pipeline), index) for name, index in indexes.items()
    }


TARGETS: dict[str, Any] = {
    "mask": Mask("mask_path", outside=2),
    "boxes": Boxes("boxes", "labels", min_area=4),
}


def new_loader(archive: Archive, **options: Any) -> Loader:
    options = {"batch_size": 3, "num_read_processes": 1, "targets": TARGETS, **options}
    return Loader(archive.factory, archive.index, devices=[None], seed=SEED, **options)


def collected(loader: Loader, steps: int | None = None) -> dict[int, dict[str, Any]]:
    """Return what is valid of the rest of an epoch, or of some steps, by row."""
    found: dict[int, dict[str, Any]] = {}
    for (batch,) in loader:
        for place, row in enumerate(batch["row"].tolist()):
            if not batch["valid"][place]:
                continue
            assert row not in found
            found[row] = {name: values[place].numpy() for name, values in batch.items()}
        if steps is not None and (steps := steps - 1) == 0:
            break
    return found


def epoch_of(archive: Archive, **options: Any) -> dict[int, dict[str, Any]]:
    with new_loader(archive, **options) as loader:
        return collected(loader)


def placed(archive: Archive, kind: str) -> dict[int, dict[str, Any]]:
    """Return an epoch of a geometry, by row, of a pipeline that reads in this process."""
    options = {"seed": SEED, "targets": TARGETS, "outputs": ("matrix",), **GEOMETRIES[kind]}
    return read_here(archive.factory, archive.index, **options)


@pytest.mark.parametrize("kind", GEOMETRIES)
@pytest.mark.parametrize("name", ["jpeg", "mcu rows", "plain", "rice", "npy"])
def test_the_mask_lies_where_the_image_lies(
    archives: dict[str, Archive], name: str, kind: str
) -> None:
    found = placed(archives[name], kind)
    assert sorted(found) == list(range(len(SHAPES)))
    compared = 0
    for row, sample in found.items():
        image, mask = sample["image"][0], sample["mask"]
        assert (mask.shape, mask.dtype) == (image.shape, np.uint8)
        clear = (np.abs(image - LEVEL) > MARGIN) & (mask != 2)
        near = np.zeros_like(clear)  # interpolated with what is outside
        for axis in (0, 1):
            for shift in (-1, 1):
                near |= np.roll(mask, shift, axis) == 2
        clear &= ~near
        assert ((image > LEVEL) == mask)[clear].all(), row
        compared += int(clear.sum())
        assert GEOMETRIES[kind].get("rotate") or (mask < 2).all()
    assert compared > 0.3 * sum(sample["mask"].size for sample in found.values())


@pytest.mark.parametrize("kind", GEOMETRIES)
def test_boxes_lie_where_the_matrix_says(archives: dict[str, Archive], kind: str) -> None:
    """Each corner of the sample's boxes, or of its edge, is in the image's box, and none beyond."""
    found = placed(archives["npy"], kind)
    seen = 0
    for row, sample in found.items():
        height, width = sample["mask"].shape
        matrix, own = sample["matrix"], boxes_of(row, SHAPES[row])
        count = int(sample["num_boxes"])
        assert sample["boxes"].shape == (3, 4)
        assert not sample["boxes"][count:].any()
        assert (sample["labels"][count:] == -1).all()
        x, y = np.meshgrid(np.arange(width), np.arange(height))
        places = np.stack((x, y, np.ones_like(x)), -1) @ matrix.T + 0.5
        for box, label in zip(sample["boxes"][:count], sample["labels"], strict=False):
            x1, y1, x2, y2 = own[int(label) - row]
            inside = (places >= (x1, y1)).all(-1) & (places < (x2, y2)).all(-1)
            rows, columns = inside.nonzero()
            pixels = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
            if not GEOMETRIES[kind].get("rotate"):
                assert np.abs(box - pixels).max() <= 0.51
            else:  # it holds the corners, too, which may be outside
                assert (box[:2] <= np.add(pixels[:2], 0.51)).all()
                assert (box[2:] >= np.subtract(pixels[2:], 0.51)).all()
            seen += 1
    assert seen > 3


def test_aia(tmp_path: Path) -> None:
    """Masks of the registered image, of one file and of a part of several."""
    pixels, header = frame()
    paths = [str(save(tmp_path / f"{n}.fits", pixels.astype(np.int16), header)) for n in range(3)]
    grid: dict[str, Any] = {"size": 128, "scale": 19.2, "missing": 0.0}
    index = Index.from_paths(paths)
    with Loader(
        aia_pipeline, index, batch_size=1, num_read_processes=1, devices=[None], **grid
    ) as loader:
        whole = next(iter(loader))[0]["image"][0, 0].numpy()
    np.save(tmp_path / "mask.npy", whole)
    index = index.with_column("mask_path", [str(tmp_path / "mask.npy")] * 3)
    parts = index.with_column("path_171", paths).with_column("path_193", paths)
    target = {"map": Mask("mask_path", "float32")}
    for one in (index, parts):
        with Loader(
            aia_pipeline,
            one,
            batch_size=2,
            num_read_processes=1,
            devices=[None],
            targets=target,
            **grid,
            crop=(40, 50),
            window="random",
            flip="hv",
        ) as loader:
            for (batch,) in loader:
                # The grid of a crop is that of the whole image, so are its values.
                image, mask = batch["image"][:, 0].numpy(), batch["map"].numpy()
                np.testing.assert_allclose(image, mask, atol=1e-4 * whole.max())
        with Loader(
            aia_pipeline,
            one,
            batch_size=3,
            num_read_processes=1,
            devices=[None],
            targets=target,
            **grid,
            crop=(60, 60),
            rotate=180,
            zoom=(1.5, 3),
        ) as loader:
            ((batch,),) = loader
            image, mask = batch["image"][:, 0].numpy(), batch["map"].numpy()
            for each, nearest in zip(image, mask, strict=True):
                shifts = [(y, x) for y in range(-3, 4) for x in range(-3, 4)]
                alike = [np.corrcoef(each.flat, np.roll(nearest, s, (0, 1)).flat) for s in shifts]
                assert shifts[int(np.argmax([both[0, 1] for both in alike]))] == (0, 0)
    assert batch["image"].shape[1] == 2


def equal(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)


PURE: dict[str, Any] = {"crop": (40, 50), "window": "random", "flip": "hv", "rotate": 20}


@pytest.fixture(scope="module")
def plain_epoch(archives: dict[str, Archive]) -> dict[int, dict[str, Any]]:
    return epoch_of(archives["npy"], batch_size=1, **PURE)


@settings(max_examples=8, deadline=None)
@given(
    batch_size=st.integers(1, 9),
    num_shards=st.integers(1, 3),
    readers=st.integers(1, 2),
    tail=st.sampled_from(["partial", "fill"]),
    stop=st.integers(0, 6),
)
def test_targets_are_pure(
    archives: dict[str, Archive],
    plain_epoch: dict[int, dict[str, Any]],
    batch_size: int,
    num_shards: int,
    readers: int,
    tail: Any,
    stop: int,
) -> None:
    """Over batches, shards, readers and a resume with another batch size."""
    found: dict[int, dict[str, Any]] = {}
    options = {**PURE, "tail": tail, "batch_size": batch_size, "num_read_processes": readers}
    state: Any = None
    for shard in range(num_shards):
        with new_loader(
            archives["npy"], shard_id=shard, num_shards=num_shards, **options
        ) as loader:
            if stop and stop < len(loader):
                part = collected(loader, stop)
                state = loader.state_dict()
            else:
                part = collected(loader)
        assert not set(part) & set(found)
        found |= part
    if state is not None:
        with new_loader(archives["npy"], **{**PURE, "batch_size": 2}) as loader:
            loader.load_state_dict(state)
            rest = collected(loader)
        assert not set(rest) & set(found)
        found |= rest
    assert sorted(found) == list(range(len(SHAPES)))
    for row, sample in found.items():
        equal(sample, plain_epoch[row])


def test_weighted_rows_have_their_own_targets(archives: dict[str, Archive]) -> None:
    archive = archives["npy"]
    weighted = replace(archive, index=archive.index.with_column("w", [0, 1, 0, 3.0, 0, 0, 2]))
    with new_loader(weighted, weights="w", batch_size=7, crop=(40, 50), window="random") as loader:
        ((batch,),) = loader
    assert set(batch["row"].tolist()) <= {1, 3, 6}
    for place, row in enumerate(batch["row"].tolist()):
        labels = batch["labels"][place, : batch["num_boxes"][place]].tolist()
        assert set(labels) <= set(range(row, row + row % 4))
    clear = (batch["image"][:, 0] - LEVEL).abs() > 1
    assert ((batch["image"][:, 0] > LEVEL) == batch["mask"])[clear].all()


def test_images_and_order_stay_as_without_targets(archives: dict[str, Archive]) -> None:
    for name in ("jpeg", "rice"):
        options = {"crop": (64, 80), "window": "random", "flip": "hv"}
        without = epoch_of(archives[name], targets={}, **options)
        found = epoch_of(archives[name], **options)
        assert list(found) == list(without)
        for row, sample in without.items():
            assert not {"mask", "boxes", "num_boxes", "labels"} & sample.keys()
            np.testing.assert_array_equal(found[row]["image"], sample["image"])


def damaged(archive: Archive, folder: Path) -> Index:
    """Return an Index of seven rows of which only the first and the last are good."""
    index = archive.index
    masks = index.table["mask_path"].to_pylist()
    masks[1] = str(folder / "none.npy")
    (folder / "cut.npy").write_bytes(Path(masks[2]).read_bytes()[:500])
    masks[2] = str(folder / "cut.npy")
    masks[3] = masks[0]
    masks[4] = None
    boxes = index.table["boxes"].to_pylist()
    boxes[5] = [[0, 0, 5, 5], [np.nan, 0, 1, 1]]
    labels = index.table["labels"].to_pylist()
    labels[5] = [1, 2]
    kind = pa.list_(pa.list_(pa.float32(), 4))
    return (
        index.with_column("mask_path", masks)
        .with_column("boxes", pa.array(boxes, kind))
        .with_column("labels", pa.array(labels, pa.list_(pa.int64())))
    )


REASONS = {
    1: r"mask: .*none.npy: .*No such file",
    2: r"mask: .*cut.npy: the file ends at 500, its header needs",
    3: "mask: .*0_npy_mask.npy: has 150x200 pixels, and the image 120x120",
    4: "mask: column 'mask_path' names no mask for this row",
    5: r"boxes: box 1 \(nan, 0, 1, 1\) is not finite",
}


@pytest.mark.parametrize("tail", ["partial", "fill"])
def test_bad_targets_are_rejected_rows(
    archives: dict[str, Archive], tmp_path: Path, tail: Any
) -> None:
    archive = replace(archives["npy"], index=damaged(archives["npy"], tmp_path))
    options: dict[str, Any] = {"crop": (40, 50), "tail": tail, "batch_size": 4}
    with new_loader(archive, bad_sample="skip", **options) as loader:
        rows = [
            row
            for (batch,) in loader
            for row, valid in zip(batch["row"].tolist(), batch["valid"].tolist(), strict=True)
            if valid
        ]
        assert sorted(rows) == [0, 6]
        assert loader.stats.rejected.keys() == REASONS.keys()
        for row, reason in REASONS.items():
            assert re.match(reason, loader.stats.rejected[row].reason)
    known = dict.fromkeys(REASONS, "known")
    with new_loader(archive, rejected=known, bad_sample="skip", **options) as loader:
        list(loader)
        assert {each.reason for each in loader.stats.rejected.values()} == {"known"}
    with new_loader(archive, **options) as loader, pytest.raises(ReadError, match=r"mask: |boxes:"):
        list(loader)


@pytest.mark.parametrize("geometry", ["whole, resized", "crop", "turned"])
@pytest.mark.parametrize("sizes", ["in the file", "unknown"])
def test_boxes_of_coco_for_another_size_are_rejected(
    tmp_path: Path, geometry: str, sizes: str
) -> None:
    """Annotated as 300x200: EXIF turns some of the images, and one was made larger since."""
    picture = Image.fromarray(np.zeros((200, 300, 3), np.uint8))
    for orientation in range(1, 9):
        picture.save(tmp_path / f"{orientation}.jpg", exif=exif(orientation))
    picture.resize((600, 400)).save(tmp_path / "larger.jpg")
    names = [*(f"{orientation}.jpg" for orientation in range(1, 9)), "larger.jpg"]
    size = {"width": 300, "height": 200} if sizes == "in the file" else {}
    box = {"category_id": 1, "bbox": [100, 50, 60, 40]}
    content = {
        "images": [{"id": at, "file_name": name, **size} for at, name in enumerate(names)],
        "annotations": [{"id": at, "image_id": at, **box} for at in range(len(names))],
        "categories": [{"id": 1, "name": "x"}],
    }
    (tmp_path / "a.json").write_text(json.dumps(content))
    index = Index.from_coco(tmp_path, tmp_path / "a.json")
    index.save(tmp_path / "index.arrow")
    archive = Archive(jpeg_pipeline, Index.load(tmp_path / "index.arrow"))
    targets = {"boxes": Boxes("boxes", "labels")}
    options = {**GEOMETRIES[geometry], "targets": targets, "bad_sample": "skip"}
    with new_loader(archive, **options) as loader:
        list(loader)
        rejected = {names[row]: bad.reason for row, bad in loader.stats.rejected.items()}
    wrong = [f"{orientation}.jpg" for orientation in (5, 6, 7, 8)] + ["larger.jpg"]
    assert sorted(rejected) == (wrong if size else [])
    for name, reason in rejected.items():
        assert "200x300" in reason
        assert ("400x600" if name == "larger.jpg" else "300x200") in reason
        assert ("EXIF" in reason) == (name != "larger.jpg")


def test_too_many_boxes_say_what_to_do(archives: dict[str, Archive]) -> None:
    target = {"boxes": Boxes("boxes", max_boxes=2)}
    with new_loader(archives["npy"], targets=target, crop=40, bad_sample="skip") as loader:
        list(loader)
        (rejected,) = loader.stats.rejected.values()
    assert rejected.row == 3
    assert "boxes: 3 boxes are left, and max_boxes is 2: raise it, or drop" in rejected.reason


def test_batches_without_rows_have_the_shapes_of_others(tmp_path: Path) -> None:
    """A shard without rows in the last step; no crop says the size."""
    for number in range(5):
        np.save(tmp_path / f"{number}.npy", np.full((20, 30), number, np.float32))
    paths = [str(tmp_path / f"{number}.npy") for number in range(5)]
    index = Index.from_paths(paths).with_column("mask_path", paths)
    index = index.with_column("boxes", [np.ones((1, 4)) * (1, 1, 9, 9)] * 5)
    archive = Archive(npy_pipeline, index)
    targets = {"m": Mask("mask_path", "float32"), "boxes": Boxes("boxes", max_boxes=6)}
    options: dict[str, Any] = {"targets": targets, "batch_size": 2, "num_shards": 2}
    with new_loader(archive, shard_id=1, **options) as loader:
        first, last = ([(name, value.shape[1:]) for name, value in b.items()] for (b,) in loader)
        assert first == last
    with new_loader(archive, shard_id=0, **options) as loader:
        for (batch,) in loader:
            assert (batch["m"] == batch["image"][:, 0]).all()


def source_of(archive: Archive, reader: Any, **options: Any) -> Source:
    options = {"batch_size": 2, "shuffle": False, "targets": TARGETS, **options}
    return make_source(archive.index, reader, PipelineConfig(**options))


class Info:
    idx_in_epoch = 0


def arrays_of(source: Source) -> dict[str, Any]:
    return dict(zip((spec.name for spec in source.specs), source(Info()), strict=True))


def test_bytes_of_masks_are_counted(archives: dict[str, Archive]) -> None:
    archive = archives["jpeg"]
    mask = Path(archive.index.table["mask_path"][0].as_py())
    counts = []
    for targets in ({}, TARGETS):
        found = arrays_of(source_of(archive, JpegReader(), targets=targets, crop=40))
        counts.append(ReadReport.unpack(found["report"][None])[0].input_bytes)
    assert counts[1] - counts[0] == mask.stat().st_size


def test_memory_of_targets_is_counted(archives: dict[str, Archive]) -> None:
    options: dict[str, Any] = {"crop": (40, 50), "batch_size": 2, "num_read_processes": 1}
    index = archives["npy"].index
    without = npy_pipeline(index, **options)
    found = npy_pipeline(index, targets=TARGETS, **options)
    assert without.peek is not None
    assert found.peek is not None
    targets = 40 * 50 + 3 * 16 + 4 + 3 * 8
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


def test_own_targets_and_time_limits(archives: dict[str, Archive]) -> None:
    for seconds in (0.0, 30.0):
        index = archives["jpeg"].index.with_column("number", [seconds] * len(SHAPES))
        archive = replace(archives["jpeg"], index=index)
        source = source_of(archive, JpegReader(), targets={"h": Slow()}, read_timeout=1.0, crop=40)
        found = arrays_of(source)
        assert bool(found["valid"]) == (seconds == 0)
        assert float(found["target:h"]) == (150 if seconds == 0 else 0)
        reason = ReadReport.unpack(found["report"][None])[0].reason
        assert reason == ("" if seconds == 0 else "reading took longer than 1 s (read_timeout)")


def test_masks_of_16_bits(tmp_path: Path) -> None:
    for number in range(2):
        np.save(tmp_path / f"{number}.npy", np.full((20, 30), 60000 + number, np.float32))
        np.save(tmp_path / f"m{number}.npy", np.full((20, 30), 60000 + number, np.uint16))
    index = Index.from_paths([tmp_path / "0.npy", tmp_path / "1.npy"])
    index = index.with_column("mask_path", [str(tmp_path / f"m{n}.npy") for n in range(2)])
    for dtype in ("uint16", "int32", "int64", "float32", "float64"):
        archive, targets = Archive(npy_pipeline, index), {"mask": Mask("mask_path", dtype)}
        with new_loader(archive, targets=targets, batch_size=2) as loader:
            ((batch,),) = loader
        assert str(batch["mask"].dtype) == f"torch.{dtype}"
        assert (batch["mask"].numpy() == batch["image"][:, 0].numpy()).all()


@pytest.mark.parametrize(
    ("options", "error", "reason"),
    [
        ({"targets": [Mask("mask_path")]}, ValueError, "targets must be a mapping"),
        ({"targets": {"mask": "mask_path"}}, ValueError, "targets must be named by text, and be"),
        ({"targets": {"mask": Mask}}, ValueError, "targets must be named by text, and be"),
        ({"targets": {3: Mask("mask_path")}}, ValueError, "targets must be named by text"),
        ({"targets": {"image": Mask("mask_path")}}, ValueError, r"targets \['image'\] have the"),
        (
            {"targets": {"matrix": Mask("mask_path")}, "outputs": ("matrix",)},
            ValueError,
            r"targets \['matrix'\] have the name of another output",
        ),
        (
            {"targets": {"w": Mask("mask_path")}, "columns": ("w",)},
            ValueError,
            r"targets \['w'\] have the name of another output",
        ),
        (
            {"targets": {"a": Boxes("boxes", "labels"), "b": Boxes("boxes", "labels")}},
            ValueError,
            r"targets \['labels'\] have the name of another output",
        ),
        ({"targets": {"mask": Mask("masks")}}, KeyError, "no column 'masks'"),
        ({"targets": {"mask": Mask("w")}}, TypeError, "column 'w' must hold paths of masks"),
        ({"targets": {"boxes": Boxes("w")}}, TypeError, "column 'w' must hold a list of boxes"),
    ],
)
def test_settings_that_make_no_sense(
    archives: dict[str, Archive], options: Any, error: type[Exception], reason: str
) -> None:
    index = archives["jpeg"].index.with_column("w", np.ones(len(SHAPES)))
    with pytest.raises(error, match=reason):
        new_loader(Archive(jpeg_pipeline, index), crop=40, **options).make_pipelines()


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


def test_readers_without_sizes_have_no_targets(archives: dict[str, Archive]) -> None:
    with pytest.raises(ValueError, match=r"targets mask, boxes need a Reader whose Samples have"):
        source_of(archives["jpeg"], Sizeless())
