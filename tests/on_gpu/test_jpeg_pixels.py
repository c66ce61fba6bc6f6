"""Pixels of encoded images on a GPU are those on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_files import LOSSLESS

from dali_pipelines import (
    AugMix,
    AutoAugment,
    Blur,
    ColorJitter,
    Erase,
    Index,
    Noise,
    RandAugment,
    RandomGrayscale,
    TrivialAugment,
    jpeg_pipeline,
    with_mcu_rows,
)
from on_gpu import archives
from on_gpu.devices import (
    DEVICES,
    GEOMETRY,
    RESIZED,
    check,
    check_most,
    epoch,
    named,
    one_by_one,
)

WINDOW: dict[str, Any] = {"crop": (30, 36), "window": "random", "flip": "hv"}
DEEP = [name for name, (_, values) in LOSSLESS.items() if values.dtype == np.uint16]


@pytest.fixture(scope="module")
def lossless(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return archives.encoded_images(tmp_path_factory.mktemp("lossless"))


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return archives.photographs(tmp_path_factory.mktemp("photographs"))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("settings", "tolerance"),
    [
        (WINDOW, {}),
        (WINDOW | {"resize": (20, 25)}, RESIZED),
        (WINDOW | {"resize": (20, 25), "interpolation": "bicubic"}, RESIZED),
        (WINDOW | {"resize": (40, 25), "interpolation": "lanczos"}, RESIZED),
        (WINDOW | {"resize": (20, 25), "interpolation": "nearest"}, {}),
        (WINDOW | {"channels": 1}, {"atol": 2}),  # the luma of colours
        (WINDOW | {"mean": (1, 2, 3), "std": 4.0}, {"rtol": 1e-6, "atol": 1e-6}),
    ],
    ids=named,
)
def test_lossless_images_of_8_and_16_bits(
    lossless: Index, settings: dict[str, Any], tolerance: dict[str, float], device: int | None
) -> None:
    expected = one_by_one(jpeg_pipeline, lossless, **settings)
    check(epoch(jpeg_pipeline, lossless, [device], **settings), expected, **tolerance)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_stored_integers(lossless: Index, dtype: str, device: int | None) -> None:
    deep = np.array([Path(path).name in DEEP for path in lossless.table["path"].to_pylist()])
    index = lossless.select(deep if dtype == "uint16" else ~deep)
    settings = {**WINDOW, "dtype": dtype}
    expected = one_by_one(jpeg_pipeline, index, **settings)
    check(epoch(jpeg_pipeline, index, [device], **settings), expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "augment",
    [
        (ColorJitter(0.4, 0.4, 0.4, 0.1), RandomGrayscale(0.5)),
        (Blur(3, p=0.5), Erase(p=0.5), Noise(2.0)),
        (TrivialAugment(),),
        (RandAugment(),),
        (AutoAugment(),),
        (AugMix(),),
    ],
    ids=lambda augment: type(augment[0]).__name__,
)
def test_augmented(lossless: Index, augment: tuple[Any, ...], device: int | None) -> None:
    """Of some batches no image is blurred or erased, of others all are."""
    deep = np.array([Path(path).name in DEEP for path in lossless.table["path"].to_pylist()])
    index, settings = lossless.select(~deep), {**WINDOW, "augment": augment}
    expected = one_by_one(jpeg_pipeline, index, **settings)
    check_most(epoch(jpeg_pipeline, index, [device], **settings), expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("noted", [False, True], ids=["", "noted"])
def test_windows_of_photographs(photographs: Index, noted: bool, device: int | None) -> None:
    """Of all EXIF orientations, with and without noted rows of MCUs."""
    settings: dict[str, Any] = {"crop": (97, 65), "window": "random", "flip": "hv"}
    expected = one_by_one(jpeg_pipeline, photographs, **settings)
    index = with_mcu_rows(photographs) if noted else photographs
    found = epoch(jpeg_pipeline, index, [device], **settings)
    check_most(found, expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "settings",
    [{}, {"channels": 1}, {"flip": "hv", "dtype": "uint8"}, {"crop": 90, "resize": (40, 50)}],
    ids=named,
)
def test_photographs(photographs: Index, settings: dict[str, Any], device: int | None) -> None:
    expected = one_by_one(jpeg_pipeline, photographs, **settings)
    batch_size = 3 if "crop" in settings else 1  # they are turned: 180x240 and 240x180
    found = epoch(jpeg_pipeline, photographs, [device], batch_size=batch_size, **settings)
    check_most(found, expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("settings", GEOMETRY, ids=named)
def test_resampled_windows(
    photographs: Index, settings: dict[str, Any], device: int | None
) -> None:
    expected = one_by_one(jpeg_pipeline, photographs, **settings)
    check_most(epoch(jpeg_pipeline, photographs, [device], **settings), expected)
