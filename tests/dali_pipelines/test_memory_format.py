"""memory_format channels_last: the same images, with the channels of a pixel side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from astropy.io import fits
from PIL import Image

from dali_pipelines import (
    ColorJitter,
    Index,
    Loader,
    Mask,
    PipelineConfig,
    Preprocessor,
    fits_pipeline,
    jpeg_pipeline,
    mixup,
    npy_pipeline,
)

SETTINGS: list[dict[str, Any]] = [
    {},
    {"dtype": "uint8"},
    {"dtype": "float16", "flip": "hv"},
    {"dtype": "bfloat16", "mean": 100, "std": 50},
    {"resize": (17, 13), "flip": "hv", "mean": (1, 2, 3), "std": 50},
    {"resize": (17, 13), "dtype": "uint8"},
    {"resize": (17, 13), "dtype": "uint8", "interpolation": "nearest"},
    {"crop": 20, "augment": (ColorJitter(0.4, 0.4),)},
    {"crop": 20, "augment": (ColorJitter(0.4, 0.4),), "dtype": "uint8"},
    {"crop": 50, "outside": "fill", "missing": 3, "std": 9},
    {"crop": 20, "channels": 1},
]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder = tmp_path_factory.mktemp("photos")
    for row in range(7):
        pixels = np.random.default_rng(row).integers(0, 256, (40, 30, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{row}.png")
        Image.fromarray(pixels[..., 0]).save(folder / f"{row}.pgm")
    index = Index.scan(folder, suffixes=(".png",)).with_column("label", np.arange(7))
    return index.with_column("mask_path", [str(folder / f"{row}.pgm") for row in range(7)])


def delivered(factory: Any, index: Index, **settings: Any) -> list[Any]:
    always: dict[str, Any] = {"num_read_processes": 1, "devices": "cpu", "seed": 5}
    with Loader(factory, index, **{"batch_size": 3, **always, **settings}) as loader:
        return [step["image"] for _ in range(2) for step in loader]


def check(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected) > 0
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)
        assert a.dtype == b.dtype
        assert a.is_contiguous(memory_format=torch.channels_last)
        assert b.is_contiguous()


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_images_are_the_same(photos: Index, settings: dict[str, Any]) -> None:
    expected = delivered(jpeg_pipeline, photos, **settings)
    for name in ("channels_last", torch.channels_last):
        check(delivered(jpeg_pipeline, photos, memory_format=name, **settings), expected)
    plain = delivered(jpeg_pipeline, photos, memory_format=torch.contiguous_format, **settings)
    assert all(torch.equal(a, b) for a, b in zip(plain, expected, strict=True))


@pytest.mark.parametrize("dtype", ["float32", "int16"])
@pytest.mark.parametrize("settings", [{}, {"crop": (10, 12), "window": "random", "flip": "hv"}])
def test_other_formats(tmp_path: Path, dtype: Any, settings: dict[str, Any]) -> None:
    """Whose images are made in another layout, and read without a copy."""
    for number in range(9):
        pixels = np.random.default_rng(number).integers(0, 999, (4, 20, 30)).astype(dtype)
        fits.writeto(tmp_path / f"{number}.fits", pixels)
        np.save(tmp_path / f"{number}.npy", pixels.transpose(1, 2, 0))
    options: dict[str, Any] = {"dtype": dtype, **settings}
    for factory, more in (
        (fits_pipeline, {"planes": (2, 0, 1)}),
        (fits_pipeline, {"planes": (3,)}),
        (npy_pipeline, {"channels": 4, "file_dtype": dtype}),
    ):
        suffixes = (".fits",) if factory is fits_pipeline else (".npy",)
        index = Index.scan(tmp_path, suffixes=suffixes)
        expected = delivered(factory, index, **options, **more)
        check(delivered(factory, index, memory_format="channels_last", **options, **more), expected)


def test_targets_and_short_batches(photos: Index) -> None:
    settings: dict[str, Any] = {"targets": {"mask": Mask("mask_path")}, "crop": 16}
    with Loader(
        jpeg_pipeline,
        photos,
        batch_size=5,
        num_read_processes=1,
        devices="cpu",
        columns=("label",),
        memory_format="channels_last",
        **settings,
    ) as loader:
        for step in loader:
            count = len(step["row"])
            assert step["image"].shape == (count, 3, 16, 16)
            assert step["mask"].shape == (count, 16, 16)
            mixed = mixup(step, 7)["image"]
            assert mixed.shape == (count, 3, 16, 16)
            assert mixed.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("framework", ["numpy", "jax", "dlpack"])
def test_others_have_none(photos: Index, framework: Any) -> None:
    with pytest.raises(ValueError, match=rf"channels_last.*'torch', not '{framework}'.*leave"):
        Loader(
            jpeg_pipeline, photos, batch_size=1, framework=framework, memory_format="channels_last"
        )


def test_a_preprocessor_has_the_images(photos: Index) -> None:
    given: dict[str, Any] = {"batch_size": 7, "devices": "cpu", "mode": "eval", "crop": 16}
    with Loader(jpeg_pipeline, photos, memory_format="channels_last", **given) as loader:
        (batch,) = next(iter(loader))
        assert "preprocess" in loader.state_dict()
        with loader.preprocessor() as pre:
            assert torch.equal(pre(photos.table["path"].to_pylist())["image"], batch["image"])
    with pytest.raises(TypeError, match="memory_format"):
        Preprocessor(jpeg_pipeline, memory_format="channels_last")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"memory_format": "NHWC"}, "memory_format.*'channels_last'.*'NHWC'"),
        ({"memory_format": "channels_last", "ragged": "pad"}, "one size.*ragged='pad'"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PipelineConfig(batch_size=1, **settings)
