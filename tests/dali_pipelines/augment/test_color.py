"""ColorJitter and RandomGrayscale against Pillow, colorsys and the formulas of torchvision."""

from __future__ import annotations

import colorsys
from collections import Counter
from collections.abc import Sequence
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from augmented import augmented
from numpy.typing import NDArray
from PIL import Image, ImageEnhance
from scipy import stats

from dali_pipelines import ColorJitter, RandomGrayscale

Pixels = NDArray[np.float32]


def photo(seed: int = 0, shape: tuple[int, int, int] = (20, 30, 3)) -> Pixels:
    """Return random colours with gray and saturated ones among them."""
    random = np.random.default_rng(seed)
    image = random.integers(0, 256, shape).astype(np.float32)
    image[0], image[1, :, 0], image[2, :, -1] = 77, 255, 0
    return image


def jittered(image: Pixels, **factors: float) -> Pixels:
    """Jitter an image by factors that are certain."""
    ranges: dict[str, Any] = {name: (value, value) for name, value in factors.items()}
    return augmented(ColorJitter(**ranges), [image])[0]


ENHANCE = {
    "brightness": ImageEnhance.Brightness,
    "contrast": ImageEnhance.Contrast,
    "saturation": ImageEnhance.Color,
}


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        ("brightness", 0.3),
        ("brightness", 1.7),
        ("contrast", 0.0),
        ("contrast", 1.7),
        ("saturation", 0.9),
        ("saturation", 1.7),
    ],
)
def test_factors_are_those_of_pillow(name: str, factor: float) -> None:
    image = photo()
    enhance: Any = ENHANCE[name](Image.fromarray(image.astype(np.uint8)))
    expected = np.array(enhance.enhance(factor))
    # Pillow rounds the gray of a pixel, the mean and the result down.
    tolerance = 1 + abs(1 - factor)
    np.testing.assert_allclose(jittered(image, **{name: factor}), expected, atol=tolerance)


@pytest.mark.parametrize("shift", [-0.5, -0.21, 0.1, 0.37, 0.5])
def test_the_hue_is_that_of_colorsys(shift: float) -> None:
    image = photo()
    found = jittered(image, hue=shift)
    np.testing.assert_allclose(found, reference(image, [("hue", shift)]), atol=2e-3)


def reference(image: Pixels, steps: Sequence[tuple[str, float]]) -> NDArray[np.float64]:
    """Jitter by torchvision's formulas, in double precision."""
    found = image.astype(np.float64)
    for name, factor in steps:
        gray = found @ (0.299, 0.587, 0.114)
        if name == "hue":
            hsv = [colorsys.rgb_to_hsv(*pixel) for pixel in found.reshape(-1, 3) / 255]
            turned = [colorsys.hsv_to_rgb((h + factor) % 1, s, v) for h, s, v in hsv]
            found = 255 * np.array(turned).reshape(found.shape)
        else:
            towards = {"brightness": 0, "contrast": gray.mean(), "saturation": gray[..., None]}
            found = np.clip(factor * found + (1 - factor) * towards[name], 0, 255)
    return found


FIXED = {"brightness": 1.4, "contrast": 0.6, "saturation": 1.5, "hue": 0.2}


def test_each_order_is_as_likely() -> None:
    """Their results differ, so that each sample shows its order."""
    image = photo(shape=(4, 4, 3))
    possible = [reference(image, order) for order in permutations(FIXED.items())]
    ranges: Any = {name: (value, value) for name, value in FIXED.items()}
    found = augmented(ColorJitter(**ranges), [image] * 4800)
    distances = [[np.abs(one - other).max() for other in possible] for one in found[:480]]
    assert np.max(np.min(distances, axis=1)) < 5e-3
    seen = Counter(image.tobytes() for image in found)
    assert len(seen) == 24
    assert stats.chisquare([*seen.values()]).pvalue > 1e-3


@pytest.mark.parametrize(
    ("given", "low", "high"), [(0.4, 0.6, 1.4), (2.0, 0.0, 3.0), ((0.5, 0.75), 0.5, 0.75)]
)
def test_factors_are_uniform(given: Any, low: float, high: float) -> None:
    found = augmented(ColorJitter(brightness=given), [np.full((1, 1, 1), 64, np.float32)] * 5000)
    factors = np.ravel(found) / 64
    assert abs(factors.mean() / ((low + high) / 2) - 1) < 0.01
    assert abs(factors.std() / ((high - low) / 12**0.5) - 1) < 0.01
    assert stats.kstest(factors, stats.uniform(low, high - low).cdf).pvalue > 1e-3


def test_mean_and_std_are_those_of_the_formulas() -> None:
    """Over 4000 draws of all four, against as many draws of the reference's own."""
    image, random = photo(shape=(6, 6, 3)), np.random.default_rng(5)
    found = np.array(augmented(ColorJitter(0.4, 0.4, 0.4, 0.1), [image] * 4000))
    expected = []
    for _ in range(4000):
        factors = dict(
            zip(FIXED, [*random.uniform(0.6, 1.4, 3), random.uniform(-0.1, 0.1)], strict=True)
        )
        names = random.permutation([*FIXED])
        expected.append(reference(image, [(name, factors[name]) for name in names]))
    assert abs(found.mean() / np.mean(expected) - 1) < 0.01
    assert abs(found.std() / np.std(expected) - 1) < 0.01


def test_uint8_is_rounded() -> None:
    image = photo()
    (found,) = augmented(ColorJitter(0.4, 0.4, 0.4, 0.1), [image.astype(np.uint8)])
    (expected,) = augmented(ColorJitter(0.4, 0.4, 0.4, 0.1), [image])
    assert np.abs(found - expected).max() <= 0.5 + 1e-4


def test_other_values_are_not_clamped_and_nan_does_not_count() -> None:
    image = np.array([-1000, 5000, np.nan, 2000], np.float32).reshape(2, 2, 1)
    one = ColorJitter(contrast=(1.5, 1.5))
    (found,) = augmented(one, [image], largest=None)
    np.testing.assert_allclose(found.ravel(), [-2500, 6500, np.nan, 2000])
    (found,) = augmented(one, [np.full((2, 2, 1), np.nan, np.float32)], largest=None)
    assert np.isnan(found).all()


@pytest.mark.parametrize("one", [ColorJitter(hue=0.5), RandomGrayscale(1), ColorJitter(0, 0, 1)])
def test_other_channels_have_no_colours(one: Any) -> None:
    for channels in (1, 4):
        image = photo(shape=(5, 4, channels))
        np.testing.assert_array_equal(augmented(one, [image])[0], image)


def test_some_images_become_gray() -> None:
    image = photo(shape=(4, 4, 3))
    found = np.array(augmented(RandomGrayscale(0.3), [image] * 5000))
    gray = np.repeat(image @ np.array([[0.299], [0.587], [0.114]]), 3, axis=2)
    is_gray = np.ptp(found, axis=3).max(axis=(1, 2)) < 1e-3
    assert np.all(found[~is_gray] == image)
    np.testing.assert_allclose(
        found[is_gray], np.broadcast_to(gray, found[is_gray].shape), rtol=1e-5
    )
    assert abs(is_gray.mean() - 0.3) < 0.01
