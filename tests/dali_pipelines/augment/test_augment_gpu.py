"""Kernels of augmentations for a GPU, their PTX run on the CPU, against those of the CPU."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from gpu_offline.device import Device, emulated
from hypothesis import given
from hypothesis import strategies as st

from dali_pipelines.graph.operators_augment import AddNoise, Retouch
from dali_pipelines.kernels.augment.color import POSTERIZE, SOLARIZE, retouch
from dali_pipelines.kernels.augment.noise import add_noise, add_photon_noise

STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.floats(0, 2, width=32))
    | st.tuples(st.just(3), st.floats(-0.5, 0.5, width=32)),
    max_size=5,
    unique_by=lambda step: step[0],
)


def check_colors(gpu: Device, images: list[Any], numbers: list[Any]) -> None:
    for image, values, found in zip(
        images, numbers, gpu.apply(Retouch(), images, numbers), strict=True
    ):
        expected = np.empty_like(image)
        retouch(expected, image, values[1:].reshape(-1, 2), values[0])
        # A GPU fuses products and sums.
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-3)


@given(
    shape=st.tuples(st.integers(1, 50), st.integers(1, 40), st.sampled_from((1, 3, 4))),
    steps=STEPS,
    largest=st.sampled_from((255.0, math.inf)),
    seed=st.integers(0, 99),
)
def test_colours_are_those_of_the_cpu(
    gpu: Device, shape: Any, steps: list[tuple[int, float]], largest: float, seed: int
) -> None:
    image = np.random.default_rng(seed).integers(0, 256, shape).astype(np.float32)
    check_colors(gpu, [image], [np.array([largest, *np.ravel(steps)], np.float32)])


def test_colours_of_a_batch(gpu: Device) -> None:
    """Images of several sizes and steps, several tiles of one, holes, and an empty batch."""
    random = np.random.default_rng(0)
    shapes = ((90, 100, 3), (3, 7, 3), (1, 1, 3), (40, 40, 3), (20, 20, 1))
    images = [random.integers(0, 256, shape).astype(np.float32) for shape in shapes]
    images[-1][3:9] = np.nan
    steps = [(1, 0.4, 0, 1.5), (POSTERIZE, 32), (SOLARIZE, 100), (2, 0.1, 1, 0.0), (1, 3)]
    numbers = [np.array([255, *step], np.float32) for step in steps]
    numbers[-1][0] = np.inf
    check_colors(gpu, images, numbers)
    assert gpu.apply(Retouch(), [], []) == []


def test_architectures_with_ptx_of_their_own(kernels_folder: Path) -> None:
    """With nvJitLink the sum of grays has another for sm_120 than for sm_100."""
    test_colours_of_a_batch(emulated(kernels_folder, "sm_120"))


def check_noise(gpu: Device, images: list[Any], numbers: list[Any], *, of_photons: bool) -> None:
    """Compare all values but those for which a rounding decides on a photon."""
    found = gpu.apply(AddNoise(of_photons), images, numbers)
    for image, values, out in zip(images, numbers, found, strict=True):
        expected = np.empty_like(image.ravel())
        (add_photon_noise if of_photons else add_noise)(expected, image.ravel(), values)
        close = np.isclose(out.ravel(), expected, rtol=1e-5, atol=2e-5 * values[2], equal_nan=True)
        if of_photons:
            one = 1.01 / values[2] + 1e-5 * np.abs(expected)
            assert np.all(close | (np.abs(out.ravel() - expected) <= one))
        assert np.mean(~close) <= (2e-3 if of_photons else 0)


@given(
    shape=st.tuples(st.integers(1, 70), st.integers(1, 40), st.sampled_from((1, 3))),
    scale=st.sampled_from((1.0, 20.0, 1e3, 1e6)),
    key=st.tuples(*[st.integers(0, 2**24 - 1)] * 2),
    std=st.floats(0, 9, width=32),
)
def test_noise_is_that_of_the_cpu(
    gpu: Device, shape: Any, scale: float, key: tuple[int, int], std: float
) -> None:
    random = np.random.default_rng(0)
    image = (scale * random.random(shape) - 0.1 * scale).astype(np.float32)
    image[random.random(shape) < 0.02] = np.nan
    start = [number / 2**24 for number in key]
    check_noise(gpu, [image], [np.array([*start, std], np.float32)], of_photons=False)
    numbers = np.array([*start, 2.0, std], np.float32)
    check_noise(gpu, [image], [numbers], of_photons=True)


def test_noise_of_a_batch(gpu: Device) -> None:
    random = np.random.default_rng(0)
    shapes = ((90, 100, 1), (3, 7, 3), (1, 1, 1), (33, 5, 1))
    images = [(40 * random.random(shape)).astype(np.float32) for shape in shapes]
    for of_photons in (False, True):
        numbers = [np.array([0.5, n / 8, 1.5, 2], np.float32) for n in range(4)]
        check_noise(gpu, images, numbers, of_photons=of_photons)
        assert gpu.apply(AddNoise(of_photons), [], []) == []
