"""One launch of each CUDA kernel, before anything that takes longer.

The fixture `gpu` is a GPU where there is one, and runs their PTX on the CPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from astropy.io import fits
from gpu_offline.device import Device
from gpu_offline.kernels import KERNELS

from dali_pipelines.graph.gpu.operators import StretchImages
from dali_pipelines.graph.operators_augment import AddNoise, Retouch
from dali_pipelines.kernels.augment.color import retouch
from dali_pipelines.kernels.resample.warp import warp
from dali_pipelines.stretch import Stretch
from on_gpu.archives import RICE, noise
from on_gpu.launcher import Gpu
from readers import FitsReader, Row, Sample


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    path = tmp_path_factory.mktemp("image") / "image.fits"
    fits.CompImageHDU(noise(0).astype(np.int16), **RICE).writeto(path)
    return FitsReader().read(Row(0, str(path)), None)


@pytest.fixture(scope="module")
def frame() -> tuple[Any, ...]:
    """What the warp takes: an image that is turned, flipped and stretched."""
    image = noise(1).astype(np.float32)
    matrix = np.array([[0.99, 0.1, -0.3], [-0.1, 0.99, 4.2]])
    stretch = Stretch(kind="asinh", a=100).parameters()
    special, flip = np.array((0, np.nan, -np.inf, -np.inf)), np.array((1, 0), np.int32)
    return (
        *(image[..., None], np.zeros((30, 33, 0), np.uint8), matrix, np.array([1])),
        *(np.array([0.5]), stretch, special, np.array((0, 0, *image.shape)), flip),
    )


def test_the_decoder(gpu: Device, sample: Sample) -> None:
    ((image,), statuses) = gpu.decode([sample], "float32", (0, 1), ((500.0, 0.25),))
    assert statuses == [0]
    expected = (noise(0).astype(np.int16)[::-1, :, None] - np.float32(500)) * np.float32(0.25)
    np.testing.assert_array_equal(image, expected)


def test_the_warp(gpu: Device, frame: tuple[Any, ...]) -> None:
    (found,) = gpu.warp([frame], 3)
    image, _, matrix, *_, stretch, special, _, flip = frame
    expected = np.empty((30, 33), np.float32)
    numbers = 3, 1, special.astype(np.float32), True, 0.5
    warp(expected, image[..., 0], matrix, *numbers, stretch, flip)
    assert expected.std() > 0.05
    np.testing.assert_allclose(found[0], expected, rtol=2e-5, atol=2e-5)


COLOURS = [np.array((255, 1, 0.4, 3, 0.2), np.float32)]
"""Contrast, then hue."""
PHOTOGRAPH = np.random.default_rng(0).integers(0, 256, (20, 30, 3)).astype(np.float32)


ASINH = Stretch(kind="asinh", unit=100).parameters()


def augmented(gpu: Device | Gpu) -> list[np.ndarray]:
    """Return what the kernels of augmentations make of a small image."""
    image = [PHOTOGRAPH]
    numbers = [np.array((0.5, 0.25, 1.5, 2), np.float32)]
    return [
        *gpu.apply(Retouch(), image, COLOURS),
        *gpu.apply(AddNoise(of_photons=False), image, numbers),
        *gpu.apply(AddNoise(of_photons=True), image, numbers),
        *gpu.apply(StretchImages((tuple(ASINH.tolist()),) * 3), image),
    ]


def test_the_augmentations(gpu: Device | Gpu) -> None:
    coloured, noisy, counted, stretched = augmented(gpu)
    np.testing.assert_allclose(stretched, np.arcsinh(PHOTOGRAPH / 100), rtol=1e-5, atol=1e-6)
    expected = np.empty_like(PHOTOGRAPH)
    retouch(expected, PHOTOGRAPH, COLOURS[0][1:].reshape(-1, 2), COLOURS[0][0])
    np.testing.assert_allclose(coloured, expected, rtol=1e-5, atol=2e-3)
    assert abs((noisy - PHOTOGRAPH).std() - 1.5) < 0.15
    assert 1 < np.abs(counted - PHOTOGRAPH).max() < 8 * np.sqrt(256 / 1.5 + 4)


def test_no_kernel_was_left_out(gpu: Device | Gpu, sample: Sample, frame: tuple[Any, ...]) -> None:
    gpu.decode([sample], "float32", (0, 1), ((500.0, 0.25),))
    gpu.warp([frame], 3)
    augmented(gpu)
    assert set(gpu.counts) == {kernel.name for kernel in KERNELS}
