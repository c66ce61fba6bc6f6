"""Blur and Erase against SciPy and the formulas of torchvision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from augmented import augmented
from scipy import stats
from scipy.ndimage import correlate1d

from dali_pipelines import Blur, Erase


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
@pytest.mark.parametrize(("size", "sigma"), [(3, 0.5), (9, 2.0), (23, 4.0)])
def test_the_blur_is_that_of_scipy(size: int, sigma: float, dtype: str) -> None:
    image = np.random.default_rng(0).integers(0, 256, (24, 31, 3)).astype(dtype)
    (found,) = augmented(Blur(size, (sigma, sigma)), [image])
    kernel = np.exp(-0.5 * (np.arange(size) - size // 2) ** 2 / sigma**2)
    expected = image.astype(np.float64)
    for axis in (0, 1):
        expected = correlate1d(expected, kernel / kernel.sum(), axis, mode="mirror")
    np.testing.assert_allclose(found, expected, atol=1e-3 if dtype == "float32" else 0.501)


def test_the_width_of_the_blur_is_uniform() -> None:
    """A single point shows it: its neighbour is less by exp(-1 / (2 sigma**2))."""
    image = np.zeros((7, 7, 1), np.float32)
    image[3, 3] = 1
    found = np.array(augmented(Blur(7, (0.5, 2.0)), [image] * 10000))[..., 0]
    sigma = np.sqrt(-0.5 / np.log(found[:, 3, 4] / found[:, 3, 3]))
    assert abs(sigma.mean() / 1.25 - 1) < 0.01
    assert abs(sigma.std() / (1.5 / 12**0.5) - 1) < 0.01
    assert stats.kstest(sigma, stats.uniform(0.5, 1.5).cdf).pvalue > 1e-3


def test_some_images_are_blurred() -> None:
    image = np.random.default_rng(0).random((8, 8, 1), np.float32)
    found = augmented(Blur(5, 1.0, p=0.3), [image] * 10000)
    blurred = augmented(Blur(5, 1.0), [image])[0]
    is_blurred = np.array([not np.array_equal(one, image) for one in found])
    assert all(np.array_equal(one, blurred) for one in np.array(found)[is_blurred])
    assert abs(is_blurred.mean() - 0.3) < 0.015


def erased_parts(one: Erase, shape: tuple[int, int], count: int) -> np.ndarray:
    """Return y, x, height and width for each image from which something is erased."""
    found = np.array(augmented(one, [np.ones((*shape, 1), np.float32)] * count))[..., 0]
    parts = []
    for image in found:
        rows, columns = np.nonzero(image.min(axis=1) == 0)[0], np.nonzero(image.min(axis=0) == 0)[0]
        if rows.size:
            parts.append((rows[0], columns[0], np.ptp(rows) + 1, np.ptp(columns) + 1))
            y, x, height, width = parts[-1]
            assert not image[y : y + height, x : x + width].any()
            assert image.sum() == image.size - height * width
    return np.array(parts)


def reference_parts(one: Erase, shape: tuple[int, int], count: int) -> np.ndarray:
    """Draw parts as torchvision.transforms.RandomErasing.get_params does."""
    random, parts = np.random.default_rng(1), []
    for _ in range(count):
        if random.random() >= one.p:
            continue
        for _ in range(10):
            area = shape[0] * shape[1] * random.uniform(*one.scale)
            ratio = np.exp(random.uniform(*np.log(one.ratio)))
            height, width = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
            if height < shape[0] and width < shape[1]:
                y = random.integers(0, shape[0] - height + 1)
                x = random.integers(0, shape[1] - width + 1)
                parts.append((y, x, height, width))
                break
    return np.array(parts)


@pytest.mark.parametrize(
    ("one", "shape"),
    [(Erase(), (64, 80)), (Erase(p=1, scale=(0.3, 0.9), ratio=(0.2, 2.0)), (60, 40))],
)
def test_parts_are_those_of_torchvision(one: Erase, shape: tuple[int, int]) -> None:
    found, expected = erased_parts(one, shape, 4000), reference_parts(one, shape, 4000)
    assert abs(len(found) - len(expected)) < 0.03 * len(expected)
    areas = [(parts[:, 2] * parts[:, 3]) for parts in (found, expected)]
    assert abs(areas[0].mean() / areas[1].mean() - 1) < 0.03
    assert abs(areas[0].std() / areas[1].std() - 1) < 0.03
    for number in range(4):
        assert stats.ks_2samp(found[:, number], expected[:, number]).pvalue > 1e-3
    # Place and size are independent of each other, where there is room.
    room = np.array(shape) - found[:, 2:] + 1
    places, sizes = (found[:, :2] + 0.5) / room, np.sqrt([areas[0], found[:, 2] / found[:, 3]])
    drawn = np.vstack([places.T, sizes])[:, (room > 8).all(axis=1)]
    ranks = stats.spearmanr(drawn.T).statistic
    assert np.abs(ranks[:2] - np.eye(2, 4)).max() < 5 / np.sqrt(drawn.shape[1])


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_each_channel_gets_its_value(dtype: str) -> None:
    image = np.full((9, 9, 3), 50, dtype)
    (found,) = augmented(Erase(p=1, value=(1, 2, 3)), [image])
    colors = {tuple(color) for color in found.reshape(-1, 3).tolist()}
    assert colors == {(50, 50, 50), (1, 2, 3)}


def test_what_fits_nowhere_erases_nothing() -> None:
    image: Any = np.ones((3, 90, 1), np.float32)
    (found,) = augmented(Erase(p=1, scale=(0.5, 0.6), ratio=(1, 1)), [image])
    np.testing.assert_array_equal(found, image)
