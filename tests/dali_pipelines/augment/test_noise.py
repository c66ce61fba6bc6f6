"""Noise and PhotonNoise against SciPy's distributions, and Philox against its test vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from augmented import augmented
from numpy.typing import NDArray
from scipy import stats

from dali_pipelines import Noise, PhotonNoise
from dali_pipelines.kernels.augment.philox import philox
from dali_pipelines.kernels.stretch import log32

SIDE = 1000
ONES = 2**32 - 1
PI = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0,) * 4, (0,) * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((ONES,) * 4, (ONES,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (*PI, "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_philox_passes_its_test_vectors(counter: Any, key: Any, words: str) -> None:
    """Those of kat_vectors in Random123, by its authors."""
    found = philox(tuple(map(np.uint64, key)), tuple(map(np.uint64, counter)))
    assert " ".join(f"{int(word):08x}" for word in found) == words


def test_the_logarithm() -> None:
    x = np.geomspace(1e-37, 1e38, 9999).astype(np.float32)
    found = np.array([log32(number) for number in x])
    np.testing.assert_allclose(found, np.log(x.astype(np.float64)), rtol=2e-7, atol=2e-7)


def noisy(one: Any, value: float, *, seed: int = 0) -> NDArray[np.float64]:
    """Return a million values with noise."""
    image = np.full((SIDE, SIDE, 1), value, np.float32)
    return augmented(one, [image], largest=None, seed=seed)[0].ravel().astype(np.float64)


@pytest.mark.parametrize("std", [0.01, 3.0])
def test_noise_is_normal(std: float) -> None:
    found = noisy(Noise(std), 0) / std
    assert stats.kstest(found, stats.norm.cdf).pvalue > 1e-3
    assert 4.2 < np.abs(found).max() < 6.7
    near = found.reshape(SIDE, SIDE)
    for other in (near[:, :-1] * near[:, 1:], near[:-1] * near[1:], near[:, :-2] * near[:, 2:]):
        assert abs(other.mean()) < 5e-3  # neighbours are independent
    assert abs(found.mean()) < 5e-3
    assert abs(found.std() - 1) < 5e-3


@pytest.mark.parametrize("width", [1, 3, 7, 9, 10])
def test_each_value_has_its_own_noise_at_the_end_of_an_image_too(width: int) -> None:
    image = np.zeros((5, width, 1), np.float32)
    found = augmented(Noise(1.0), [image], largest=None)[0]
    assert len(np.unique(found)) == image.size


def test_each_image_has_its_own_std_and_noise() -> None:
    images = np.zeros((500, 40, 40, 1), np.float32)
    found = np.array(augmented(Noise((1, 3)), list(images)))
    widths = found.std(axis=(1, 2, 3))
    assert stats.kstest(widths, stats.uniform(1, 2).cdf).pvalue > 1e-3
    products = np.corrcoef(found.reshape(500, -1))[~np.eye(500, dtype=bool)]
    assert abs(products.std() / 1600**-0.5 - 1) < 0.02


@pytest.mark.parametrize("mean", [0.3, 4.0, 15.9, 16.1, 30.0, 250.0, 5000.0])
def test_photons_follow_poisson(mean: float) -> None:
    """Chi squared over all numbers that are expected 20 times; half of a million is enough."""
    found = noisy(PhotonNoise(gain=1.0), mean)
    assert np.all(found == np.rint(found))
    law = stats.poisson(np.float32(mean))
    counts = np.arange(law.ppf(1e-4), law.isf(1e-4) + 1)
    expected = law.pmf(counts) * found.size
    seen = np.array([np.count_nonzero(found == count) for count in counts])
    rest = found.size - np.array([seen.sum(), expected.sum()])
    result = stats.chisquare([*seen, rest[0]], [*expected, rest[1]])
    assert result.pvalue > 1e-3
    assert abs(found.mean() / mean - 1) < 0.01
    assert abs(found.var() / mean - 1) < 0.01


@pytest.mark.parametrize("mean", [1e6, 1e10])
def test_many_photons(mean: float) -> None:
    found = (noisy(PhotonNoise(gain=1.0), mean) - mean) / mean**0.5
    assert abs(found.mean()) < 5e-3
    assert abs(found.std() - 1) < 5e-3


@pytest.mark.parametrize(("gain", "read_noise"), [(0.1, 3.0), (20.0, 5.0)])
def test_gain_and_read_noise(gain: float, read_noise: float) -> None:
    found = noisy(PhotonNoise(gain, read_noise), 100)
    assert abs(found.mean() / 100 - 1) < 0.01
    assert abs(found.std() / ((100 * gain + read_noise**2) ** 0.5 / gain) - 1) < 0.01


def test_values_without_photons() -> None:
    image = np.array([np.nan, np.inf, -np.inf, -30, 0, 1e30], np.float32).reshape(2, 3, 1)
    (found,) = augmented(PhotonNoise(2.0), [image], largest=None)
    np.testing.assert_array_equal(found, image)
    read = noisy(PhotonNoise(2.0, 6.0), -30)
    assert abs(read.mean() + 30) < 0.02
    assert abs(read.std() / 3 - 1) < 0.01


def test_bytes_are_rounded_and_saturate() -> None:
    image = np.full((50, 50, 3), 250, np.uint8)
    (found,) = augmented(Noise(20.0), [image])
    (exact,) = augmented(Noise(20.0), [image.astype(np.float32)])
    np.testing.assert_array_equal(found, np.clip(np.rint(exact), 0, 255))
