"""Windows across the edges of images, and between pixels; images smaller than the crop."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits
from astropy.nddata import Cutout2D
from epochs import HOW, by_row, check_pure, new_loader
from hypothesis import given, settings
from ramp_images import Archive, check

from dali_pipelines import Boxes, Index, Mask, PipelineConfig, TrivialAugment, fits_pipeline
from readers.aia.reader import AiaReader
from readers.sampling.geometry import Geometry

Ramps = Callable[..., Archive]

CROP = 12, 16
SHAPES = ((40, 50), (31, 22), (8, 60), (9, 7), (1, 1), (12, 16))
"""All but two are smaller than the crop along an axis, or have no pixel to spare."""
PIXELS: list[tuple[float, float]] = [
    (3, 4),
    (-5, -7),
    (35, 45),
    (-11, 20),
    (0, 0),
    (-3, -2),
    (-11, -15),
    (39, 49),
]
BETWEEN: list[tuple[float, float]] = [
    (3.25, 4.75),
    (-5.5, -7.125),
    (27.9, 33.99),
    (0.0, 0.0),
    (28.0, 34.0),
    (-10.9, 40.3),
    (5.0, 33.5),
    (1e-9, -1e-9),  # meant to be a pixel
]
ROW: dict[str, Any] = {"crop": CROP, "window": "row"}
FILL: dict[str, Any] = {"crop": CROP, "outside": "fill"}
TURN: dict[str, Any] = {"rotate": 40.0, "zoom": (0.5, 1.5)}

CORNERS = {"pixels": PIXELS, "between": BETWEEN}

ROWS: list[tuple[str, str, dict[str, Any]]] = [
    ("plain", "pixels", {"outside": "fill", "flip": "hv"}),
    ("plain", "pixels", {"outside": "shift", "dtype": "int16"}),
    ("plain", "between", {"outside": "reject", "flip": "h"}),
    ("plain", "pixels", {"outside": "fill", "dtype": "int16", "missing": -32768, "flip": "hv"}),
    ("plain", "between", {"outside": "fill", "missing": 50.0, "resize": (6, 8)}),
    ("plain", "between", {"outside": "fill", **TURN, "resize": (24, 8), "flip": "v"}),
    ("RICE_1", "pixels", {"outside": "reject", "flip": "v"}),
    ("RICE_1", "between", {"outside": "shift"}),
    ("RICE_1", "between", {"outside": "fill", "flip": "hv"}),
    ("RICE_1", "pixels", {"outside": "fill", "dtype": "int16", "missing": 7, "flip": "h"}),
    ("RICE_1", "pixels", {"outside": "fill", "missing": -700.0, **TURN}),
    ("RICE_1", "between", {"outside": "reject", **TURN, "flip": "hv"}),
    ("GZIP_2", "pixels", {"outside": "fill", "dtype": "float16", "missing": -1.5, "flip": "hv"}),
    ("GZIP_2", "between", {"outside": "fill", **TURN}),
    ("npy", "pixels", {"outside": "shift", "flip": "hv"}),
    ("zarr", "between", {"outside": "fill", "flip": "hv"}),
    ("zarr", "pixels", {"outside": "fill", "dtype": "uint8", "missing": 7, "flip": "h"}),
    ("npy", "between", {"outside": "fill", "mean": 1.0, "std": 4.0}),
    ("npy", "pixels", {"outside": "fill", "resize": (6, 8), "flip": "h"}),
    ("npy", "between", {"outside": "reject"}),
    ("png", "pixels", {"outside": "fill", "dtype": "uint8", "missing": 255, "flip": "hv"}),
    ("png", "pixels", {"outside": "fill", "missing": -0.5, "mean": 1.0, "std": 4.0, "flip": "h"}),
    ("png", "pixels", {"outside": "reject", "resize": (6, 8)}),
    ("png", "between", {"outside": "shift", "flip": "v"}),
    ("png", "between", {"outside": "fill", "missing": 0, "resize": (24, 20)}),
    ("jpeg", "pixels", {"outside": "fill", "flip": "v"}),
    ("jpeg", "between", {"outside": "fill", "flip": "hv"}),
    ("mcu rows", "pixels", {"outside": "fill", "dtype": "uint8", "missing": 3, "flip": "h"}),
    ("mcu rows", "pixels", {"outside": "shift", **TURN}),
    ("mcu rows", "between", {"outside": "fill"}),
]


@pytest.mark.parametrize(("kind", "corners", "options"), ROWS, ids=str)
def test_windows_of_rows(ramps: Ramps, kind: str, corners: str, options: dict[str, Any]) -> None:
    found = check(ramps(kind, SHAPES).at(CORNERS[corners]), **ROW, **options)
    assert 4 <= len(found) < 8 * len(SHAPES)


SMALL: list[tuple[str, dict[str, Any]]] = [
    ("plain", {"flip": "hv"}),
    ("plain", {"window": "random", "resize": (24, 34), "missing": 50.0}),
    ("RICE_1", {"window": "random", "missing": 200, "flip": "h"}),
    ("RICE_1", {"window": "random", **TURN, "flip": "v"}),
    ("GZIP_2", {"dtype": "int16", "missing": -1}),
    ("npy", {"window": "random", "flip": "v"}),
    ("png", {"dtype": "uint8", "missing": 200, "flip": "hv"}),
    ("png", {"window": "random", "mode": "eval", "missing": 0}),
    ("jpeg", {"window": "random", "missing": 200, "flip": "hv"}),
    ("mcu rows", {"window": "random", "dtype": "float16", "flip": "h"}),
    ("mcu rows", {"mode": "eval"}),
]


@pytest.mark.parametrize(("kind", "options"), SMALL, ids=str)
def test_images_smaller_than_the_crop(ramps: Ramps, kind: str, options: dict[str, Any]) -> None:
    assert len(check(ramps(kind, SHAPES), **FILL, **options)) == len(SHAPES)


@pytest.mark.parametrize("crop", [1, (1, 3), 100])
def test_crops_of_one_pixel_and_larger_than_any_image(ramps: Ramps, crop: Any) -> None:
    archive = ramps("RICE_1", SHAPES[:2]).at([(0, 49), (30, 21), (-50, -60), (7, 0)])
    for mode in ("train", "eval"):
        check(archive, window="row", crop=crop, outside="fill", mode=mode, flip="hv", missing=-9)


def test_filled_windows_are_those_of_astropy(ramps: Ramps) -> None:
    archive = ramps("RICE_1", SHAPES).at(PIXELS)
    for row, sample in archive.samples(**ROW, outside="fill").items():
        y, x = PIXELS[row % len(PIXELS)]
        middle = x + CROP[1] / 2 - 0.5, y + CROP[0] / 2 - 0.5
        how: dict[str, Any] = {"mode": "partial", "fill_value": np.nan}
        truth = Cutout2D(archive.images[row][..., 0].astype(float), middle, CROP, **how)
        np.testing.assert_array_equal(sample["image"][0], truth.data)


@pytest.mark.parametrize("place", [(8.0, 8.0), (8.5, 8.0), (8.25, 9.75), (8, 8)])
def test_between_pixels_a_nan_becomes_four(tmp_path: Path, place: tuple[float, float]) -> None:
    """As the guide says: of 2x2 neighbours those without weight count, too."""
    image = np.arange(400, dtype=np.float32).reshape(20, 20)
    image[10, 10] = np.nan
    fits.PrimaryHDU(image).writeto(tmp_path / "nan.fits")
    archive = Archive(fits_pipeline, Index.scan(tmp_path), [image[..., None]]).at([place])
    sample = archive.samples(window="row", crop=5)[0]["image"][0]
    reach = (10,) if isinstance(place[0], int) else (9, 10)
    down, across = ([math.floor(first + k) in reach for k in range(5)] for first in place)
    np.testing.assert_array_equal(np.isnan(sample), np.outer(down, across))


def same(image: Any, chance: Any, config: PipelineConfig) -> Any:
    del chance, config
    return image


def test_missing_pixels_come_before_a_transform_and_mean_and_std(ramps: Ramps) -> None:
    archive = ramps("png", SHAPES).at(PIXELS)
    options: dict[str, Any] = {"missing": 9, "mean": (1, 2, 3), "std": (4, 5, 6)}
    truths = archive.truths(**ROW, outside="fill", **options)
    for transform in (None, same):
        found = archive.samples(**ROW, outside="fill", **options, transform=transform)
        assert sorted(found) == sorted(truths)
        for row, sample in found.items():
            np.testing.assert_allclose(
                sample["image"].transpose(1, 2, 0), truths[row].image, atol=1e-4
            )


@pytest.mark.parametrize(
    ("corners", "options"),
    [
        ("pixels", {**ROW, "flip": "hv"}),
        ("pixels", {**ROW, "resize": (24, 8), "flip": "h"}),
        ("pixels", {**ROW, **TURN}),
        ("between", {**ROW, "flip": "v"}),
        ("between", {**ROW, "resize": (24, 8)}),
        ("between", {**ROW, **TURN, "flip": "hv"}),
        (None, {"crop": CROP, "window": "random", "flip": "hv"}),
        (None, {"crop": CROP, "resize": (24, 32)}),
    ],
    ids=str,
)
def test_targets_follow(
    ramps: Ramps, tmp_path: Path, corners: str | None, options: dict[str, Any]
) -> None:
    """Boxes of the whole image are cut; the mask is outside where there is no image."""
    archive = ramps("plain", SHAPES)
    archive = archive if corners is None else archive.at(CORNERS[corners])
    archive, masks = archive.with_masks(tmp_path)
    boxes = [[[0.0, 0.0, width, height]] for height, width in archive.shapes]
    archive = archive.with_column("boxes", boxes)
    targets = {"mask": Mask("mask_path", "int16", outside=-1), "boxes": Boxes("boxes", min_area=0)}
    found = archive.samples(outside="fill", targets=targets, **options)
    truths = archive.truths(outside="fill", **options)
    assert sorted(found) == sorted(truths)
    for row, sample in found.items():
        np.testing.assert_array_equal(sample["mask"], truths[row].nearest(masks[row], -1))
        boxes_left = sample["boxes"][: int(sample["num_boxes"])]
        np.testing.assert_allclose(boxes_left, truths[row].boxes(boxes[row]), atol=1e-4)
        assert np.isnan(sample["image"][0][sample["mask"] == -1]).all()


@pytest.mark.parametrize("outside", ["reject", "fill", "shift"])
@pytest.mark.parametrize("kind", ["npy", "mcu rows"])
def test_places_beyond_all_images_are_rejected(ramps: Ramps, kind: str, outside: str) -> None:
    archive = ramps(kind, SHAPES)
    for values in ([2**62, -(2**62), 10**6], [math.nan, math.inf, -math.inf, 1e300, -1e18]):
        zero = type(values[0])(0)
        corners = [(zero, zero), *((one, zero) for one in values), *((zero, one) for one in values)]
        index = archive.select([0]).at(corners).index
        options: dict[str, Any] = {**ROW, **archive.settings, "outside": outside, "shuffle": False}
        with new_loader(archive.factory, index, bad_sample="skip", **options) as loader:
            assert list(by_row(loader)) == [0]
            reasons = [bad.reason for bad in loader.stats.rejected.values()]
        assert len(reasons) == 2 * len(values)
        words = (
            "is not inside" if outside == "reject" else "is outside the image",
            "must be finite",
        )
        assert all(any(one in reason for one in words) for reason in reasons), reasons


def test_only_the_pixels_inside_are_read(ramps: Ramps) -> None:
    archive = ramps("plain", SHAPES).select([0])
    read = []
    for corner in ((0, 3), (-10, 3), (-10.5, 3.0), (10.5, 3.0)):
        index = archive.at([corner]).index
        with new_loader(fits_pipeline, index, **ROW, outside="fill") as loader:
            list(loader)
            read.append(loader.stats.input_bytes)
    row = 2 * SHAPES[0][1]
    header = read[0] - 12 * row
    assert [(nbytes - header) / row for nbytes in read] == [12, 2, 2, 13]


@pytest.mark.parametrize("kind", ["RICE_1", "png"])
@pytest.mark.parametrize("window", ["row", "random"])
def test_samples_do_not_depend_on_how_they_are_read(ramps: Ramps, kind: str, window: str) -> None:
    archive = ramps(kind, SHAPES)
    if window == "row":
        archive = archive.select([0]).at([(y + 6, x + 8) for y, x in BETWEEN])
    options: dict[str, Any] = {**FILL, "window": window, "flip": "hv", "missing": 3}
    expected = archive.samples(**options)

    @settings(max_examples=5)
    @given(HOW)
    def pure(how: dict[str, int]) -> None:
        check_pure(archive.samples, how, expected, **options)

    pure()


def test_arrays_that_are_not_used_are_not_sent(ramps: Ramps) -> None:
    archive = ramps("plain", SHAPES)
    pixels, between = archive.at([(0, 0)]).index, archive.at([(0.0, 0.0)]).index
    plain = {"shape", "payload", "plan", "scaling", "row", "valid", "report"}
    for index, options, added in (
        (pixels, {}, set()),
        (pixels, {"outside": "shift"}, set()),
        (pixels, {"outside": "fill"}, {"inside"}),
        (pixels, {"outside": "fill", "rotate": 9.0}, {"affine"}),
        (between, {}, {"affine"}),
        (between, {"outside": "fill"}, {"affine", "inside"}),
    ):
        made = fits_pipeline(index, batch_size=1, crop=8, window="row", **options)
        assert {spec.name for spec in made.source.specs} == plain | added


def test_the_digest_has_the_places(ramps: Ramps) -> None:
    index = ramps("plain", SHAPES[:2]).index

    def digest(y: Any, x: Any) -> str:
        return index.with_column("y", y).with_column("x", x).digest

    floats = digest([0.5, 1], [0.0, 0])
    distinct = {index.digest, floats, digest([0.25, 1], [0.0, 0]), digest([0, 1], [0, 0])}
    assert len(distinct) == 4
    assert digest([0.5, 1], [0, 0]) == index.digest
    assert digest(np.array([0.5, 1], np.float32), [0.0, 0]) == floats


ERRORS: list[tuple[dict[str, Any], str]] = [
    ({"outside": "fill", "crop": None}, "outside='fill'.*set crop"),
    ({"outside": "fill", "resize_shorter": 9}, "outside='fill'.*leave out.*resize_shorter"),
    ({"outside": "shift", "window": "random"}, "outside='shift'.*window 'row'"),
    ({"outside": "pad", "window": "row"}, "outside.*'reject', 'fill', 'shift'.*'pad'"),
    ({"window": "row", "missing": 3}, "missing=3.*outside='fill'"),
    ({"window": "row", "outside": "shift", "missing": 3}, "missing=3.*outside='fill'"),
    ({"outside": "fill", "missing": "0"}, "missing.*number.*'0'"),
    ({"outside": "fill", "missing": True}, "missing.*number.*True"),
    ({"outside": "fill", "dtype": "uint8"}, "uint8.*no NaN.*missing"),
    ({"outside": "fill", "dtype": "int16", "missing": 0.5}, r"32767.*0\.5"),
    ({"outside": "fill", "dtype": "int32", "missing": 2**24 + 1}, "float32"),
    ({"outside": "fill", "dtype": "uint8", "missing": -1}, "missing.*255.*-1"),
    ({"outside": "fill", "dtype": "int16", "missing": math.nan}, "nan"),
    ({"outside": "fill", "dtype": "float16", "missing": 1e6}, "float16"),
    ({"outside": "fill", "augment": (TrivialAugment(),)}, "TrivialAugment"),
    ({"outside": "fill", "missing": 1e39}, r"missing=1e\+39.*float32"),
]


@pytest.mark.parametrize(("options", "message"), ERRORS, ids=str)
def test_settings_that_contradict_each_other(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PipelineConfig(**{"batch_size": 1, "crop": 8, **options})


def test_a_reader_without_regions_cannot_fill() -> None:
    with pytest.raises(ValueError, match=r"fill'.*regions = True.*AiaReader.*'reject'"):
        Geometry(crop=(8, 8), window="row", outside="fill").check_reader(AiaReader())
