"""dtype uint8 of images that are resampled: the values of float32, rounded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits
from PIL import Image

from dali_pipelines import (
    ColorJitter,
    Index,
    Loader,
    PipelineConfig,
    fits_pipeline,
    jpeg_pipeline,
    npy_pipeline,
)

GEOMETRIES: list[dict[str, Any]] = [
    {"resize": (17, 13), "flip": "hv"},
    {"random_area": (0.1, 1), "resize": (12, 9), "flip": "h"},
    {"resize_shorter": 20, "crop": 16, "window": "random"},
    {"crop": (20, 16), "rotate": 30.0, "zoom": (0.5, 2.0), "window": "random"},
    {"crop": (60, 50), "outside": "fill", "missing": 7, "resize": (30, 25)},
]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder = tmp_path_factory.mktemp("photos")
    for row in range(4):
        pixels = np.random.default_rng(row).integers(0, 256, (40, 30, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{row}.png")
    return Index.scan(folder)


def delivered(factory: Any, index: Index, **settings: Any) -> np.ndarray:
    always: dict[str, Any] = {"num_read_processes": 1, "devices": [None], "framework": "numpy"}
    with Loader(factory, index, batch_size=len(index), seed=5, **always, **settings) as loader:
        (batch,) = next(iter(loader))
        return np.array(batch["image"])


@pytest.mark.parametrize("settings", GEOMETRIES, ids=str)
@pytest.mark.parametrize("channels", [1, 3])
def test_they_are_the_rounded_floats(photos: Index, settings: Any, channels: int) -> None:
    exact = delivered(jpeg_pipeline, photos, channels=channels, **settings)
    found = delivered(jpeg_pipeline, photos, channels=channels, dtype="uint8", **settings)
    assert found.dtype == np.uint8
    assert found.shape == exact.shape
    assert np.abs(found - np.clip(exact, 0, 255)).max() <= 0.5 + 1e-4


def test_augmentations_come_after_it(photos: Index) -> None:
    settings: dict[str, Any] = {"resize": (17, 13), "augment": (ColorJitter(0.4, 0.4),)}
    exact = delivered(jpeg_pipeline, photos, **settings)
    found = delivered(jpeg_pipeline, photos, dtype="uint8", **settings)
    assert found.dtype == np.uint8
    assert np.abs(found - exact).max() < 3  # the image was rounded before


@pytest.mark.parametrize("settings", GEOMETRIES, ids=str)
def test_other_formats(tmp_path: Path, settings: Any) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 30), np.uint8)
    fits.writeto(tmp_path / "a.fits", pixels)
    fits.CompImageHDU(pixels).writeto(tmp_path / "b.fits")
    np.save(tmp_path / "a.npy", pixels)
    index = Index.scan(tmp_path, suffixes=(".fits",))
    exact = delivered(fits_pipeline, index, **settings)
    found = delivered(fits_pipeline, index, dtype="uint8", **settings)
    assert np.abs(found - np.clip(exact, 0, 255)).max() <= 0.5 + 1e-4
    arrays = Index.scan(tmp_path, suffixes=(".npy",))
    of: dict[str, Any] = {"file_dtype": "uint8"}
    exact = delivered(npy_pipeline, arrays, **of, **settings)
    found = delivered(npy_pipeline, arrays, **of, dtype="uint8", **settings)
    assert np.abs(found - np.clip(exact, 0, 255)).max() <= 0.5 + 1e-4


@pytest.mark.parametrize("dtype", ["uint16", "int16", "int32"])
def test_others_are_as_stored(dtype: Any) -> None:
    with pytest.raises(ValueError, match=f"{dtype}.*leave out resize"):
        PipelineConfig(batch_size=1, dtype=dtype, resize=9)
