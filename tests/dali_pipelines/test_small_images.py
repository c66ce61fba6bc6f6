"""Images smaller than the crop, with outside="fill", against padding by NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from astropy.io import fits
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from dali_pipelines import (
    Boxes,
    Index,
    Loader,
    Mask,
    PipelineConfig,
    fits_pipeline,
    jpeg_pipeline,
    npy_pipeline,
    with_mcu_rows,
)
from readers.sampling.draws import Draws

SEED, EPOCH = 7, 0
CROP = 12, 17
SHAPES = [(40, 50), (7, 50), (31, 6), (8, 9), (1, 1), (12, 17), (11, 18)]
"""The first and the last but one are large enough."""
MISSING = 200.0
KINDS = ("plain", "rice", "npy", "png", "jpeg", "mcu rows")


@dataclass(frozen=True)
class Archive:
    factory: Callable[..., Any]
    index: Index
    images: list[NDArray[Any]]
    """By astropy, NumPy and Pillow; channels last."""
    atol: float = 0
    """Grey levels by which decoders of JPEG may differ."""


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Archive]:
    folder = tmp_path_factory.mktemp("small")
    random = np.random.default_rng(0)
    paths: dict[str, list[Path]] = {name: [] for name in KINDS[:5]}
    for number, shape in enumerate(SHAPES):
        image = random.integers(0, 3000, shape).astype(np.int16)
        colours = random.integers(0, 255, (*shape, 3)).astype(np.uint8)
        for name, suffix in zip(paths, ("fits", "fits", "npy", "png", "jpg"), strict=True):
            paths[name].append(folder / f"{number}_{name}.{suffix}")
        fits.PrimaryHDU(image).writeto(paths["plain"][-1])
        fits.CompImageHDU(image, tile_shape=(1, shape[1])).writeto(paths["rice"][-1])
        np.save(paths["npy"][-1], image.astype(np.float32))
        Image.fromarray(colours).save(paths["png"][-1])
        Image.fromarray(colours).save(paths["jpeg"][-1], quality=95, subsampling=0)
    stored = [fits.getdata(path)[..., None] for path in paths["plain"]]
    found = {
        "plain": Archive(fits_pipeline, Index.from_paths(paths["plain"]), stored),
        "rice": Archive(fits_pipeline, Index.from_paths(paths["rice"]), stored),
        "npy": Archive(npy_pipeline, Index.from_paths(paths["npy"]), stored),
    }
    for name, atol in (("png", 0), ("jpeg", 2)):
        pixels = [np.array(Image.open(path)) for path in paths[name]]
        found[name] = Archive(jpeg_pipeline, Index.from_paths(paths[name]), pixels, atol)
    jpeg = found["jpeg"]
    found["mcu rows"] = Archive(jpeg_pipeline, with_mcu_rows(jpeg.index), jpeg.images, 2)
    return found


def delivered(archive: Archive, index: Index, **options: Any) -> dict[int, dict[str, Any]]:
    """Return the arrays of each row."""
    options = {"batch_size": 3, "num_read_processes": 1, "crop": CROP, "outside": "fill", **options}
    options = {"missing": MISSING, "seed": SEED, **options}
    found = {}
    with Loader(archive.factory, index, devices=[None], **options) as loader:
        for (batch,) in loader:
            for place, row in enumerate(batch["row"].tolist()):
                found[row] = {name: values[place].numpy() for name, values in batch.items()}
    assert len(found) == len(index)
    return found


def corner(row: int, size: tuple[int, ...], window: str) -> tuple[int, int]:
    """Return first row and column, by the draws of a row."""
    draws = Draws.of(SEED, EPOCH, row)
    places: list[int] = []
    for fraction, pixels, length in zip((draws.y, draws.x), CROP, size, strict=False):
        free = length - pixels
        drawn = int(fraction * (free + 1)) if window == "random" else free // 2
        places.append(drawn if free >= 0 else -((pixels - length) // 2))
    return places[0], places[1]


def padded(image: NDArray[Any], y: int, x: int, value: float) -> NDArray[Any]:
    """Return the window of an image that NumPy pads on all sides."""
    margins = [(pixels, pixels) for pixels in CROP] + [(0, 0)] * (image.ndim - 2)
    whole = np.pad(image.astype(np.float64), margins, constant_values=value)
    return whole[y + CROP[0] : y + 2 * CROP[0], x + CROP[1] : x + 2 * CROP[1]]


@pytest.mark.parametrize("window", ["center", "random"])
@pytest.mark.parametrize("name", KINDS)
def test_pixels(archives: dict[str, Archive], name: str, window: Any) -> None:
    archive = archives[name]
    found = delivered(archive, archive.index, window=window, flip="hv", outputs=("window",))
    for row, sample in found.items():
        image, draws = archive.images[row], Draws.of(SEED, EPOCH, row)
        y, x = corner(row, image.shape, window)
        truth = padded(image, y, x, MISSING)
        truth = truth[:: -1 if draws.vertical else 1, :: -1 if draws.horizontal else 1]
        np.testing.assert_allclose(
            sample["image"].transpose(1, 2, 0), truth, rtol=0, atol=archive.atol
        )
        assert sample["window"].tolist() == [y, x, *CROP]


@pytest.mark.parametrize("name", ["plain", "png"])
def test_along_axes_that_are_too_short_it_is_the_center_crop_of_torchvision(
    archives: dict[str, Archive], name: str
) -> None:
    """Its ``center_crop`` pads by half of what lacks, rounded down before and up after."""
    archive = archives[name]
    found = delivered(archive, archive.index, mode="eval", missing=0, window="random")
    short = [shape[0] <= CROP[0] and shape[1] <= CROP[1] for shape in SHAPES]
    assert sum(short) > 2
    for row in np.flatnonzero(short).tolist():
        lacks = [pixels - size for pixels, size in zip(CROP, SHAPES[row], strict=True)]
        margins = [(one // 2, (one + 1) // 2) for one in lacks]
        truth = np.pad(archive.images[row], [*margins, (0, 0)])
        np.testing.assert_array_equal(found[row]["image"].transpose(1, 2, 0), truth)


@pytest.mark.parametrize("window", ["center", "random"])
@pytest.mark.parametrize("name", KINDS)
def test_windows_of_large_images_are_the_same(
    archives: dict[str, Archive], name: str, window: Any
) -> None:
    archive = archives[name]
    large = archive.index.select([0, 5])
    options: dict[str, Any] = {"window": window, "flip": "hv", "outputs": ("window", "matrix")}
    options["dtype"] = "float16"
    before = delivered(archive, large, outside="reject", missing=None, **options)
    after = delivered(archive, large, **options)
    for row, sample in before.items():
        for output, values in sample.items():
            np.testing.assert_array_equal(after[row][output], values)


@pytest.mark.parametrize("options", [{}, {"resize": (24, 34)}, {"rotate": 30.0}])
def test_targets_follow(archives: dict[str, Archive], options: Any, tmp_path: Path) -> None:
    """A mask that is the image itself has its pixels, and boxes lie where they lay."""
    archive = archives["plain"]
    paths = []
    for number, shape in enumerate(SHAPES):
        paths.append(str(tmp_path / f"{number}.fits"))
        fits.PrimaryHDU(np.full(shape, 9, np.uint8)).writeto(paths[-1])
    boxes = [[[0.0, 0.0, *shape[::-1]]] for shape in SHAPES]
    index = archive.index.with_column("mask_path", paths).with_column("boxes", boxes)
    targets = {"mask": Mask("mask_path", outside=1), "boxes": Boxes("boxes", min_area=0)}
    options = {"window": "random", "flip": "hv", "targets": targets, **options}
    found = delivered(archive, index, missing=float("nan"), **options)
    for row, sample in found.items():
        image, mask = sample["image"][0], sample["mask"]
        assert np.isnan(image[mask == 1]).all()
        assert (mask == 9).any()
        if "rotate" not in options:
            scale = image.shape[0] // CROP[0]
            x1, y1, x2, y2 = sample["boxes"][0]
            assert ((y2 - y1) * (x2 - x1)) == (mask == 9).sum()
            assert (mask[round(y1) : round(y2), round(x1) : round(x2)] == 9).all()
            assert (y2 - y1, x2 - x1) == tuple(
                scale * min(pair) for pair in zip(CROP, SHAPES[row], strict=True)
            )


@settings(max_examples=8)
@given(
    batch_size=st.integers(1, 5),
    num_shards=st.integers(1, 3),
    start=st.integers(0, len(SHAPES)),
    window=st.sampled_from(["center", "random"]),
)
def test_a_sample_does_not_depend_on_how_it_is_read(
    archives: dict[str, Archive],
    batch_size: int,
    num_shards: int,
    start: int,
    window: Literal["center", "random"],
) -> None:
    archive, rows = archives["rice"], []
    for shard in range(num_shards):
        pipeline = archive.factory(
            archive.index,
            batch_size=batch_size,
            shard_id=shard,
            num_shards=num_shards,
            position=start,
            crop=CROP,
            window=window,
            outside="fill",
            missing=MISSING,
            seed=SEED,
            num_read_processes=0,
        )
        pipeline.build()
        for _ in range(-(-(len(SHAPES) - start) // (batch_size * num_shards))):
            out = dict(zip(pipeline.output_names, pipeline.run(), strict=True))
            for slot in range(batch_size):
                if np.array(out["valid"][slot]):
                    row = int(np.array(out["row"][slot]))
                    image = archive.images[row]
                    truth = padded(image[..., 0], *corner(row, image.shape, window), MISSING)
                    np.testing.assert_array_equal(np.array(out["image"][slot])[0], truth)
                    rows.append(row)
        pipeline.close()
    assert len(rows) == len(set(rows)) == len(SHAPES) - start


def test_integers_need_a_value_for_what_is_missing() -> None:
    options: dict[str, Any] = {"batch_size": 1, "crop": 8, "outside": "fill", "dtype": "uint8"}
    with pytest.raises(ValueError, match="dtype 'uint8' has no NaN for filled pixels"):
        PipelineConfig(**options)
    assert PipelineConfig(**options, missing=3).missing == 3
