"""The setting `interpolation`: filters of a resize against Pillow, nearest pixels as of masks."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits
from numpy.typing import NDArray
from PIL import Image

from dali_pipelines import (
    Index,
    Loader,
    Mask,
    PipelineConfig,
    aia_pipeline,
    fits_pipeline,
    jpeg_pipeline,
    npy_pipeline,
)

HEIGHT, WIDTH, NUM_ROWS = 48, 70, 3
PILLOWS = {
    "bilinear": Image.Resampling.BILINEAR,
    "nearest": Image.Resampling.NEAREST,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
REACH = {"bilinear": 1, "nearest": 0, "bicubic": 2, "lanczos": 3}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """Return images of noise, each of which is its own mask.

    No filter leaves the range of 8 bits, to which Pillow cuts between rows and columns.
    """
    folder = tmp_path_factory.mktemp("photos")
    for row in range(NUM_ROWS):
        pixels = np.random.default_rng(row).integers(80, 170, (HEIGHT, WIDTH), np.uint8)
        Image.fromarray(pixels).save(folder / f"{row}.png")
    index = Index.scan(folder)
    return index.with_column("mask_path", index.table["path"].to_pylist())


def delivered(factory: Any, index: Index, **settings: Any) -> dict[str, NDArray[Any]]:
    always: dict[str, Any] = {"num_read_processes": 1, "devices": [None], "framework": "numpy"}
    always |= {"batch_size": len(index), "shuffle": False, "seed": 5}
    with Loader(factory, index, **{**always, **settings}) as loader:
        (batch,) = next(iter(loader))
        return {name: np.array(array) for name, array in batch.items()}


def inner(name: str, size: tuple[int, int], source: tuple[int, int]) -> tuple[slice, ...]:
    """Return the pixels of an output whose filter does not reach beyond the image."""
    found = []
    for new, old in zip(size, source, strict=True):
        edge = math.ceil(REACH[name] * max(1, new / old))
        found.append(slice(edge, new - edge))
    return tuple(found)


@pytest.mark.parametrize("size", [(17, 26), (41, 33), (96, 100)])
@pytest.mark.parametrize("name", PILLOWS)
def test_a_resize_is_that_of_pillow(photos: Index, name: Any, size: tuple[int, int]) -> None:
    options: dict[str, Any] = {"channels": 1, "dtype": "uint8"}
    found = delivered(jpeg_pipeline, photos, resize=size, interpolation=name, **options)["image"]
    for row, path in enumerate(photos.table["path"].to_pylist()):
        expected = np.asarray(Image.open(path).resize(size[::-1], PILLOWS[name])).astype(int)
        where = inner(name, size, (HEIGHT, WIDTH))
        differences = np.abs(found[row, 0].astype(int) - expected)[where]
        if name == "nearest":  # which differ where two are equally near
            assert np.mean(differences > 0) < 0.08
        else:
            assert differences.max() <= 1


@pytest.mark.parametrize("name", PILLOWS)
def test_resize_shorter_reads_all_that_the_filter_needs(photos: Index, name: Any) -> None:
    """A crop of the resized image, in the middle, is that of Pillow."""
    shorter, crop = 24, 12
    options: dict[str, Any] = {"resize_shorter": shorter, "crop": crop, "dtype": "uint8"}
    found = delivered(jpeg_pipeline, photos, interpolation=name, channels=1, **options)["image"]
    whole = (shorter, shorter * WIDTH // HEIGHT)
    top, left = (round((side - crop) / 2) for side in whole)
    for row, path in enumerate(photos.table["path"].to_pylist()):
        resized = np.asarray(Image.open(path).resize(whole[::-1], PILLOWS[name])).astype(int)
        expected = resized[top : top + crop, left : left + crop]
        differences = np.abs(found[row, 0].astype(int) - expected)
        assert differences.max() <= 1 if name != "nearest" else np.mean(differences > 0) < 0.08


GEOMETRIES: list[dict[str, Any]] = [
    {"resize": (17, 13), "flip": "hv"},
    {"resize": (90, 99)},
    {"random_area": (0.1, 1), "resize": (12, 9), "flip": "h"},
    {"resize_shorter": 20, "crop": 16, "window": "random", "flip": "v"},
    {"crop": (20, 16), "rotate": 30.0, "zoom": (0.5, 2.0), "window": "random", "flip": "hv"},
    {"crop": (60, 50), "outside": "fill", "missing": 7, "resize": (30, 25)},
    {"crop": (40, 50), "outside": "fill", "missing": 7, "rotate": 40.0},
]


@pytest.mark.parametrize("settings", GEOMETRIES, ids=str)
def test_nearest_pixels_are_those_of_masks(photos: Index, settings: dict[str, Any]) -> None:
    mask = Mask("mask_path", outside=settings.get("missing", 0))
    options: dict[str, Any] = {"targets": {"mask": mask}, "interpolation": "nearest", "channels": 1}
    for dtype in ("uint8", "float32"):
        found = delivered(jpeg_pipeline, photos, dtype=dtype, **options, **settings)
        assert found["image"].dtype == dtype
        np.testing.assert_array_equal(found["image"][:, 0], found["mask"])
    colours = delivered(jpeg_pipeline, photos, **{**options, "channels": 3}, **settings)
    for channel in range(3):
        np.testing.assert_array_equal(colours["image"][:, channel], colours["mask"])


@pytest.mark.parametrize("settings", GEOMETRIES, ids=str)
@pytest.mark.parametrize("name", ["bicubic", "lanczos"])
def test_filters_with_other_geometry(photos: Index, name: Any, settings: dict[str, Any]) -> None:
    """Only the resize changes: windows, flips and fills stay those of bilinear."""
    if not {"resize", "resize_shorter"} & settings.keys():
        pytest.skip("without a resize")
    smooth: dict[str, Any] = {"channels": 1, **settings}
    found = delivered(jpeg_pipeline, photos, interpolation=name, **smooth)["image"]
    plain = delivered(jpeg_pipeline, photos, **smooth)["image"]
    assert found.shape == plain.shape
    assert not np.array_equal(found, plain)
    assert np.corrcoef(found.ravel(), plain.ravel())[0, 1] > 0.85


def test_mean_and_std_come_after_it(photos: Index) -> None:
    for name in PILLOWS:
        options: dict[str, Any] = {"resize": (30, 25), "flip": "hv", "interpolation": name}
        plain = delivered(jpeg_pipeline, photos, **options)["image"]
        found = delivered(jpeg_pipeline, photos, mean=100, std=50, **options)["image"]
        np.testing.assert_allclose(found, (plain - 100) / 50, atol=1e-4)


@pytest.mark.parametrize("dtype", ["int16", "int32"])
def test_nearest_pixels_keep_integers(tmp_path: Path, dtype: Any) -> None:
    pixels = np.random.default_rng(0).integers(-30000, 30000, (40, 30)).astype(dtype)
    fits.writeto(tmp_path / "a.fits", pixels)
    fits.CompImageHDU(pixels).writeto(tmp_path / "b.fits")
    np.save(tmp_path / "a.npy", pixels)
    settings: dict[str, Any] = {"resize": (20, 15), "interpolation": "nearest", "dtype": dtype}
    # Of two equally near pixels the one further down and right.
    index = Index.scan(tmp_path, suffixes=(".fits",))
    for image in delivered(fits_pipeline, index, **settings)["image"]:
        np.testing.assert_array_equal(image[0], pixels[1::2, 1::2])
    index = Index.scan(tmp_path, suffixes=(".npy",))
    image = delivered(npy_pipeline, index, file_dtype=dtype, **settings)["image"][0, 0]
    np.testing.assert_array_equal(image, pixels[1::2, 1::2])
    turned = {**settings, "crop": 20, "rotate": 20.0, "seed": 3}
    assert np.isin(
        delivered(npy_pipeline, index, file_dtype=dtype, **turned)["image"], pixels
    ).all()


def test_windows_between_pixels_take_the_nearest(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).normal(size=(40, 30)).astype(np.float32)
    fits.writeto(tmp_path / "a.fits", pixels)
    index = Index.scan(tmp_path).with_column("y", [3.2]).with_column("x", [5.7])
    settings: dict[str, Any] = {"crop": 8, "window": "row", "interpolation": "nearest"}
    (image,) = delivered(fits_pipeline, index, **settings)["image"]
    np.testing.assert_array_equal(image[0], pixels[3:11, 6:14])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"interpolation": "cubic", "resize": 9}, "interpolation.*'bilinear'.*'cubic'"),
        ({"interpolation": "bicubic"}, "bicubic.*resize or resize_shorter"),
        ({"interpolation": "lanczos", "crop": 9, "rotate": 5.0}, "lanczos.*resize"),
        ({"interpolation": "bicubic", "resize": 9, "dtype": "int16"}, "int16.*leave out resize"),
        ({"interpolation": "nearest", "resize": 9, "dtype": "int16", "mean": 3}, "leave out mean"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PipelineConfig(batch_size=1, **settings)


def test_aia_has_an_order_of_its_own() -> None:
    with pytest.raises(ValueError, match=r"interpolation.*order"):
        aia_pipeline(Index.from_paths(["/nowhere.fits"]), batch_size=1, interpolation="nearest")
