"""The setting `stretch`, against astropy.visualization and the Stretch itself on arrays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits
from astropy.visualization import AsinhStretch, ImageNormalize
from gpu_offline.device import Device
from hypothesis import given
from hypothesis import strategies as st
from stretches import stretches

from dali_pipelines import (
    ColorJitter,
    Index,
    Loader,
    Noise,
    PipelineConfig,
    Preprocessor,
    RandAugment,
    RandomGrayscale,
    Stretch,
    fits_pipeline,
    jpeg_pipeline,
    npy_pipeline,
)
from dali_pipelines.graph.gpu.operators import StretchImages

CURVES = (
    Stretch(kind="sqrt", unit=10, clip=(0, 50)),
    Stretch(kind="log1p", clip=(0, 900), mean=3),
    Stretch(kind="asinh", a=0.1, unit=100, std=2, clip_output=(-1, 2)),
)


@pytest.fixture(scope="module")
def cubes(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """Three FITS cubes of three planes, with NaN, and negative values."""
    folder = tmp_path_factory.mktemp("cubes")
    for row in range(3):
        pixels = np.random.default_rng(row).normal(200, 300, (3, 40, 30)).astype(np.float32)
        pixels[:, row, :4] = np.nan
        fits.writeto(folder / f"{row}.fits", pixels)
    return Index.scan(folder)


def delivered(factory: Any, index: Index, name: str = "image", **settings: Any) -> np.ndarray:
    """Return the batch of all rows, in their order."""
    always: dict[str, Any] = {"batch_size": len(index), "num_read_processes": 1, "shuffle": False}
    with Loader(factory, index, devices=[None], framework="numpy", **always, **settings) as loader:
        (batch,) = next(iter(loader))
        return np.array(batch[name])


def by_channel(images: np.ndarray) -> np.ndarray:
    return np.stack([curve(images[:, n]) for n, curve in enumerate(CURVES)], axis=1)


def close(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_it_is_that_of_astropy(cubes: Index) -> None:
    stretch = Stretch.onto(0, 1, kind="asinh", unit=500, a=0.05, clip=(0, 1))
    found = delivered(fits_pipeline, cubes, planes=0, stretch=stretch)
    expected = ImageNormalize(vmin=0, vmax=500, stretch=AsinhStretch(0.05), clip=True)
    for row, image in enumerate(found):
        pixels = fits.getdata(cubes.path(row))[0]
        np.testing.assert_array_equal(np.isnan(image[0]), np.isnan(pixels))
        valid = ~np.isnan(pixels)
        close(image[0][valid], np.asarray(expected(pixels[valid])))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"flip": "hv", "crop": (16, 20), "window": "random", "seed": 3},
        {"resize": (13, 17)},
        {"resize_shorter": 20, "crop": 16},
        {"crop": 16, "rotate": 20.0, "zoom": (0.5, 2.0)},
        {"crop": (60, 50), "outside": "fill"},
        {"mode": "eval", "crop": 16, "window": "random"},
        {"dtype": "float16", "crop": 16},
    ],
    ids=str,
)
def test_each_channel_has_its_own_after_the_geometry(
    cubes: Index, settings: dict[str, Any]
) -> None:
    plain = delivered(fits_pipeline, cubes, planes="all", **{**settings, "dtype": "float32"})
    found = delivered(fits_pipeline, cubes, planes="all", stretch=CURVES, **settings)
    assert found.dtype == settings.get("dtype", "float32")
    tolerance = 2e-3 if found.dtype == np.float16 else 1e-5
    np.testing.assert_allclose(found, by_channel(plain), rtol=tolerance, atol=tolerance)


def test_augmentations_and_a_transform_come_after_it(cubes: Index) -> None:
    def tenfold(image: Any, _chance: Any, _config: Any) -> Any:
        return image * 10.0

    plain = delivered(fits_pipeline, cubes, planes="all")
    both: Any = {"augment": (Noise(0.0),), "transform": tenfold, "start_method": "fork"}
    found = delivered(fits_pipeline, cubes, planes="all", stretch=CURVES, **both)
    close(found, 10 * by_channel(plain))


def test_other_images_of_a_row_are_not_stretched(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).normal(100, 9, (2, 20, 20)).astype(np.float32)
    hdus = [fits.PrimaryHDU(), *(fits.ImageHDU(p, name=n) for p, n in zip(pixels, ["SCI", "ERR"]))]  # noqa: B905
    fits.HDUList(hdus).writeto(tmp_path / "a.fits")
    names = {"image": "SCI", "err": "ERR"}
    index = Index.scan(tmp_path)
    found = delivered(fits_pipeline, index, "err", hdus=names, stretch=CURVES[0])
    np.testing.assert_array_equal(found[0, 0], pixels[1])
    found = delivered(fits_pipeline, index, hdus=names, stretch=CURVES[0])
    close(found[0, 0], CURVES[0](pixels[0]))


def test_sequences_have_one_for_each_channel_of_a_time(tmp_path: Path) -> None:
    for minute in range(3):
        for channel in (171, 193):
            cards = {"DATE-OBS": f"2011-01-01T00:{12 * minute}:00", "WAVELNTH": channel}
            pixels = np.full((8, 9), 100 * minute + channel, np.float32)
            fits.writeto(tmp_path / f"{channel}_{minute}.fits", pixels, fits.Header(cards))
    index = Index.scan(tmp_path)
    from dali_pipelines import with_keys

    grouped = with_keys(index, ["DATE-OBS", "WAVELNTH"]).group(
        (171, 193), by="wavelnth", time="date_obs", offsets=("-12min", "0")
    )
    curves = CURVES[:2]
    plain = delivered(fits_pipeline, grouped)
    found = delivered(fits_pipeline, grouped, stretch=curves)
    assert found.shape[1:3] == (2, 2)
    for channel, curve in enumerate(curves):
        close(found[:, :, channel], curve(plain[:, :, channel]))


def test_arrays_and_photographs(tmp_path: Path, npy_index: Index) -> None:
    plain = delivered(npy_pipeline, npy_index)
    close(delivered(npy_pipeline, npy_index, stretch=CURVES[2]), CURVES[2](plain))
    from PIL import Image

    Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)).save(tmp_path / "a.png")
    photos = Index.scan(tmp_path)
    plain = delivered(jpeg_pipeline, photos)
    close(delivered(jpeg_pipeline, photos, stretch=CURVES), by_channel(plain))


@pytest.mark.parametrize("suffix", ["png", "jpg"])
def test_its_values_are_no_longer_those_of_8_bits(tmp_path: Path, suffix: str) -> None:
    """ColorJitter clamps images of 8 bits to 0 to 255."""
    from PIL import Image

    Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)).save(tmp_path / f"a.{suffix}")
    photos = Index.scan(tmp_path)
    far = (replace(CURVES[0], mean=1.0), replace(CURVES[1], std=1e-3), CURVES[2])
    plain = delivered(jpeg_pipeline, photos, stretch=far)
    assert plain.min() < 0
    assert plain.max() > 255
    found = delivered(jpeg_pipeline, photos, stretch=far, augment=(ColorJitter((2, 2)),))
    close(found, 2 * plain)
    for one in (
        ColorJitter(saturation=0.5),
        ColorJitter(hue=0.1),
        RandomGrayscale(),
        RandAugment(),
    ):
        with pytest.raises(ValueError, match="8 bits"):
            delivered(jpeg_pipeline, photos, stretch=far, augment=(one,))


def test_a_preprocessor_has_it(cubes: Index, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"planes": "all", "stretch": CURVES, "resize": (13, 17)}
    expected = delivered(fits_pipeline, cubes, mode="eval", **settings)
    with Preprocessor(fits_pipeline, framework="numpy", num_planes=3, **settings) as preprocessor:
        paths = [cubes.path(row) for row in range(len(cubes))]
        np.testing.assert_array_equal(preprocessor(paths)["image"], expected)
        preprocessor.save(tmp_path / "a.toml")
    with Preprocessor.load(tmp_path / "a.toml", framework="numpy") as loaded:
        np.testing.assert_array_equal(loaded(paths)["image"], expected)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"stretch": "asinh"}, "must be a Stretch.*'asinh'"),
        ({"stretch": ()}, "one for each channel"),
        ({"stretch": {171: CURVES[0]}}, "one for each channel"),
        ({"stretch": CURVES[0], "dtype": "int16"}, "int16.*leave out stretch"),
        ({"stretch": CURVES[0], "mean": 3}, "leave out mean and std"),
        ({"stretch": CURVES[0], "std": 3}, "leave out mean and std"),
    ],
)
def test_values_that_make_no_sense(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        PipelineConfig(batch_size=1, **settings)


def test_the_wrong_number_of_channels(cubes: Index) -> None:
    with pytest.raises(ValueError, match=r"stretch must be one Stretch, or 1.*got 3"):
        fits_pipeline(cubes, batch_size=1, num_read_processes=0, stretch=CURVES, planes=0)


@given(
    shape=st.tuples(st.integers(1, 50), st.integers(1, 40)),
    curves=st.lists(stretches(), min_size=1, max_size=4),
    scale=st.sampled_from((1.0, 1e3, 1e6)),
)
def test_a_gpu_does_the_same(
    gpu: Device, shape: tuple[int, int], curves: list[Stretch], scale: float
) -> None:
    random = np.random.default_rng(0)
    images = [
        (scale * random.normal(size=(*each, len(curves)))).astype(np.float32)
        for each in (shape, (1, 1))
    ]
    images[0][0, 0] = np.nan
    operator = StretchImages(tuple(tuple(one.parameters().tolist()) for one in curves))
    for image, found in zip(images, gpu.apply(operator, images), strict=True):
        for channel, curve in enumerate(curves):
            expected = curve(image[..., channel].astype(np.float64))
            size = np.nanmax(np.abs(expected), initial=1)
            np.testing.assert_allclose(found[..., channel], expected, rtol=1e-4, atol=1e-4 * size)
