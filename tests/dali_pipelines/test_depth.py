"""Images of all formats at their full depth, against the values that were encoded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from image_files import C8, C16, G8, G16, LOSSLESS, as_pillow, by_pillow, pillow, png, refused
from PIL import Image

from dali_pipelines import Index, Loader, fits_pipeline, jpeg_pipeline, with_mcu_rows
from dali_pipelines.values import warn_of_fractions
from readers.index.table import SUFFIXES

LUMA = np.array([0.299, 0.587, 0.114])


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder = tmp_path_factory.mktemp("images")
    for name, (content, _) in LOSSLESS.items():
        (folder / name).write_bytes(content)
    return Index.from_paths(folder / name for name in LOSSLESS)


def delivered(index: Index, **settings: Any) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Return the images of an epoch, shape (height, width, channels), and the reasons of others."""
    options: dict[str, Any] = {
        "batch_size": 1,
        "num_read_processes": 1,
        "devices": [None],
        **settings,
    }
    with Loader(jpeg_pipeline, index, bad_sample="skip", **options) as loader:
        images = {
            Path(index.path(row)).name: image.numpy().transpose(1, 2, 0)
            for (batch,) in loader
            for image, row in zip(batch["image"], batch["row"].tolist(), strict=True)
        }
    return images, {Path(bad.path).name: bad.reason for bad in loader.stats.rejected.values()}


def as_channels(values: np.ndarray, channels: int) -> np.ndarray:
    """Return gray as three equal channels, or the luma of colours as one."""
    if values.ndim == 2:
        return np.repeat(values[..., None], channels, axis=2)
    return values if channels == 3 else (values @ LUMA)[..., None]


@pytest.mark.parametrize("channels", [3, 1])
def test_values_are_those_of_the_file(index: Index, channels: int) -> None:
    images, rejected = delivered(index, channels=channels)
    assert not rejected
    for name, (_, values) in LOSSLESS.items():
        expected = as_channels(values, channels)
        assert images[name].shape == expected.shape, name
        assert images[name].dtype == np.float32
        # Decoders round the weights of the luma to 15 bits.
        luma_off = 0.51 if values.dtype == np.uint8 else 8
        off = luma_off if channels == 1 and values.ndim == 3 else 0
        np.testing.assert_allclose(images[name], expected, rtol=0, atol=off, err_msg=name)


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_an_integer_type_refuses_the_other_depth_by_name(index: Index, dtype: str) -> None:
    images, rejected = delivered(index, dtype=dtype)
    for name, (_, values) in LOSSLESS.items():
        if values.dtype == dtype:
            assert images[name].dtype == dtype
            np.testing.assert_array_equal(images[name], as_channels(values, 3), err_msg=name)
        else:
            bits = 8 * values.itemsize
            reason = f"{bits} bits per sample, expected {24 - bits} for values of type {dtype}"
            assert rejected[name] == reason
    assert len(images) + len(rejected) == len(LOSSLESS)


@pytest.mark.parametrize("settings", [{}, {"crop": (20, 30), "flip": "hv"}, {"resize": (20, 32)}])
@pytest.mark.parametrize("channels", [3, 1])
def test_a_batch_of_both_depths(tmp_path: Path, settings: dict[str, Any], channels: int) -> None:
    """Each image is what it is in a batch of its own, and normalised in its own units."""
    contents = [png(C16, 2), pillow(C8, "PNG"), pillow(G16, "PNG"), pillow(G8, "JPEG")]
    for number, content in enumerate(contents * 2):
        (tmp_path / f"{number}").write_bytes(content)
    index = Index.from_paths(tmp_path / f"{number}" for number in range(8))
    settings = {**settings, "channels": channels, "mean": 5.0, "std": 2.0}
    alone, _ = delivered(index, **settings)
    together, _ = delivered(index, batch_size=5, **settings)
    assert sorted(together) == sorted(alone) == sorted(map(str, range(8)))
    for name, image in alone.items():
        np.testing.assert_array_equal(together[name], image)
        assert (image.max() > 127) == (int(name) % 2 == 0)


def test_float16(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(pillow(G16, "PNG"))
    images, _ = delivered(Index.scan(tmp_path), dtype="float16", mean=30000.0, std=10000.0)
    expected = as_channels((G16.astype(np.float32) - 30000) / 10000, 3)
    np.testing.assert_allclose(images["a.png"].astype(np.float32), expected, atol=2e-3)


@pytest.mark.parametrize("channels", [3, 1])
@pytest.mark.parametrize("crop", [None, (2, 3)])
def test_what_pillow_decodes(tmp_path: Path, channels: int, crop: tuple[int, int] | None) -> None:
    contents = by_pillow()
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    index = Index.from_paths(tmp_path / name for name in contents)
    images, rejected = delivered(index, channels=channels, crop=crop)
    assert not rejected
    for name, content in contents.items():
        expected = as_pillow(content, channels)
        if crop:
            y, x = ((size - part) // 2 for size, part in zip(expected.shape, crop, strict=False))
            expected = expected[y : y + crop[0], x : x + crop[1]]
        np.testing.assert_array_equal(images[name], expected, err_msg=name)


def test_what_nobody_decodes_is_refused_by_name(tmp_path: Path) -> None:
    for name, (content, _) in refused().items():
        (tmp_path / name).write_bytes(content)
    for number in range(4):
        (tmp_path / f"good{number}.png").write_bytes(pillow(C8, "PNG"))
    index = Index.from_paths(sorted(tmp_path.iterdir()))
    images, rejected = delivered(index, crop=8, batch_size=4)
    assert sorted(images) == [f"good{number}.png" for number in range(4)]
    for name, (_, reason) in refused().items():
        assert reason in rejected[name]


def test_every_suffix_that_is_scanned_can_be_decoded(tmp_path: Path) -> None:
    formats = Image.registered_extensions()
    written = [suffix for suffix in SUFFIXES["jpeg"] if suffix not in (".cur", ".psd")]
    for suffix in written:  # by Pillow, which writes none of these two
        form = "JPEG" if suffix == ".mpo" else formats[suffix]
        image = Image.fromarray(G8 > 99) if suffix == ".pbm" else Image.fromarray(C8)
        image.save(tmp_path / f"image{suffix}", form)
    index = Index.scan(tmp_path, suffixes=SUFFIXES["jpeg"])
    images, rejected = delivered(index, batch_size=9, ragged="list")
    assert not rejected
    assert sorted(images) == sorted(f"image{suffix}" for suffix in written)


def test_pixels_that_need_more_memory_than_was_forecast(tmp_path: Path) -> None:
    """The first file says how much readers get at first; a fax of 1 kB holds a million pixels."""
    for number, size in enumerate(((8, 8), (1500, 800))):
        fax = pillow(Image.new("1", size, 1), "TIFF", compression="group4")
        assert len(fax) < 2000
        (tmp_path / f"{number}.tif").write_bytes(fax)
    images, rejected = delivered(Index.scan(tmp_path), ragged="list", shuffle=False)
    assert not rejected
    assert {name: image.shape for name, image in images.items()} == {
        "0.tif": (8, 8, 3),
        "1.tif": (800, 1500, 3),
    }
    assert images["1.tif"].min() == 255


def test_noted_rows_and_uint16(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(pillow(C8, "JPEG"))
    index = with_mcu_rows(Index.scan(tmp_path))
    images, rejected = delivered(index, dtype="uint16", crop=8)
    assert not images
    assert rejected["a.jpg"].startswith("8 bits per sample, expected 16")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dtype": "int16"}, "uint8 images cannot be converted to int16"),
        ({"check_entropy": "no"}, "check_entropy must be True or False, got 'no'"),
        ({"channels": 2}, r"channels must be 3 \(RGB\) or 1 \(gray\), got 2"),
        ({"dtype": "uint16", "std": 2}, "dtype 'uint16' .*leave out std"),
        ({"channels": 1, "mean": (1, 2, 3)}, "mean must be one number, or 1, one for each"),
    ],
)
def test_settings_that_make_no_sense(index: Index, settings: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        jpeg_pipeline(index, batch_size=1, **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)},
            "mean=(0.485, .*) and std=(0.229, .*): images .* mean=(123.675, .*), std=(58.395, .*)",
        ),
        ({"std": 0.5}, "std=(0.5,): images of 8 bits .*: set std=(127.5,)"),
        ({"mean": 0.5, "std": 1}, ": set mean=(127.5,), std=(255.0,)"),
        ({"mean": 0, "std": 1}, ""),
        ({"mean": 0.5, "std": 100}, ""),
        ({"mean": 0.5, "transform": lambda image, *_: image / 255.0}, ""),
        ({}, ""),
    ],
)
def test_mean_and_std_of_values_from_0_to_1(
    index: Index, settings: dict[str, Any], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_fractions.cache_clear()
    for _ in range(2):
        jpeg_pipeline(index, batch_size=1, start_method="fork", **settings)
    pattern = re.escape(message).replace(r"\.\*", ".*")
    assert len(caplog.messages) == bool(message)
    assert re.search(pattern, caplog.text)


def test_fits_has_no_uint16(index: Index) -> None:
    with pytest.raises(ValueError, match=r"uint16.*set dtype 'int16'"):
        fits_pipeline(index, batch_size=1, dtype="uint16")


def test_uint16_of_several_batches(tmp_path: Path) -> None:
    """The Loader takes the good rows out of a batch of a type of which PyTorch can do little."""
    for number in range(5):
        image = C8 if number == 1 else np.full((8, 9), 1000 * number, np.uint16)
        (tmp_path / f"{number}.png").write_bytes(pillow(image, "PNG"))
    index = Index.scan(tmp_path)
    options: dict[str, Any] = {
        "batch_size": 4,
        "num_read_processes": 1,
        "devices": [None],
        "shuffle": False,
    }
    with Loader(
        jpeg_pipeline, index, bad_sample="skip", crop=8, channels=1, dtype="uint16", **options
    ) as loader:
        images = torch.cat([batch["image"] for (batch,) in loader])
    assert images.dtype == torch.uint16
    assert images.float().amax(dim=(1, 2, 3)).tolist() == [0, 2000, 3000, 4000]


@pytest.mark.parametrize("crop", [None, (16, 16)])
@pytest.mark.parametrize("noted", [False, True])
def test_four_colours_with_and_without_the_segment_of_adobe(
    tmp_path: Path, crop: tuple[int, int] | None, noted: bool
) -> None:
    """Pillow inverts them always, DALI only with it."""
    picture = Image.fromarray(C8).resize((320, 200), Image.Resampling.BICUBIC).convert("CMYK")
    encoded = pillow(picture, "JPEG", quality=95)
    begin = encoded.index(b"\xff\xee")
    assert encoded[begin + 4 : begin + 9] == b"Adobe"
    (tmp_path / "with.jpg").write_bytes(encoded)
    (tmp_path / "without.jpg").write_bytes(encoded[:begin] + encoded[begin + 16 :])
    index = Index.scan(tmp_path)
    images, rejected = delivered(with_mcu_rows(index) if noted else index, crop=crop)
    assert len(images) == 2
    assert not rejected
    for name, found in images.items():
        with Image.open(tmp_path / name) as image:
            expected = np.asarray(image.convert("RGB")).astype(float)
        y, x = ((200 - 16) // 2, (320 - 16) // 2) if crop else (0, 0)
        expected = expected[y : y + found.shape[0], x : x + found.shape[1]]
        assert abs(found - expected).max() <= 2
