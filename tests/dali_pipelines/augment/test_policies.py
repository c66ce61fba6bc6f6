"""TrivialAugment and RandAugment: each operation against Pillow, and how often each comes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from augmented import augmented
from PIL import Image
from pillow_operations import RAND, WIDE, expected_operations, photo
from scipy import stats

from dali_pipelines import RandAugment, TrivialAugment
from dali_pipelines.settings import Augmentation

NUM_OPERATIONS = 14


def check(one: Augmentation, strengths: list[float], ranges: dict[str, Any]) -> None:
    """Draw each row of the table once, and compare it with Pillow."""
    image, count = photo(), 2 * NUM_OPERATIONS * len(strengths)
    draws = ((np.arange(count, dtype=np.float32) + 0.5) / count)[:, None]
    found = iter(augmented(one, [image] * count, draws=draws))
    for strength in strengths:
        for sign in (1, -1):
            for number, made in enumerate(expected_operations(strength, sign, **ranges)[:-1]):
                expected = np.array(made(Image.fromarray(image))).astype(int)
                differences = np.abs(next(found) - expected)
                if number in (1, 2, 3, 4, 5):  # half a pixel is rounded either way
                    assert np.mean(differences.max(axis=2) > 2) < 0.03, (number, strength, sign)
                elif number == 9:  # Pillow leaves the border as it is
                    assert differences[1:-1, 1:-1].max() <= 2, (strength, sign)
                else:
                    # Pillow truncates, and rounds means.
                    assert differences.max() <= (1 if number == 13 else 2), (number, strength, sign)
    assert next(found, None) is None


def test_each_operation_of_trivial_augment_is_that_of_pillow() -> None:
    check(TrivialAugment(num_magnitude_bins=11), np.linspace(0, 1, 11).tolist(), WIDE)


@pytest.mark.parametrize("magnitude", [0, 9, 30])
def test_each_operation_of_rand_augment_is_that_of_pillow(magnitude: int) -> None:
    check(RandAugment(num_ops=1, magnitude=magnitude), [magnitude / 30], RAND)


def test_operations_are_as_likely_as_each_other() -> None:
    """Each of them makes another image."""
    image = photo()[:6, :8]
    found = augmented(RandAugment(num_ops=1, magnitude=15), [image] * 7000)
    seen = Counter(one.tobytes() for one in found)
    # Six come twice as often, as their sign does not matter: 8 of two signs, 6 of one.
    assert len(seen) == 2 * 9 + 5
    counts = np.sort([*seen.values()])
    expected = np.repeat([250, 500], [18, 5])
    assert stats.chisquare(counts, expected).pvalue > 1e-3


def test_mean_and_std_are_those_of_pillow() -> None:
    """Over all rows of the table of TrivialAugment, as torchvision draws them."""
    image = photo()
    found = np.array(augmented(TrivialAugment(num_magnitude_bins=31), [image] * 3000))
    strengths = np.linspace(0, 1, 31).tolist()
    expected = np.array(
        [
            np.array(made(Image.fromarray(image)))
            for strength in strengths
            for sign in (1, -1)
            for made in expected_operations(strength, sign, **WIDE)[:-1]
        ]
    )
    assert abs(found.mean() / expected.mean() - 1) < 0.01
    assert abs(found.std() / expected.std() - 1) < 0.01


def test_operations_come_one_after_the_other() -> None:
    image = photo()
    draws = (np.array([[6, 13]], np.float32) + 0.5) / 28  # brighter, then equalized
    (found,) = augmented(RandAugment(2, 10), [image], draws=draws)
    for number in (6, 13):
        (image,) = augmented(RandAugment(1, 10), [image], draws=draws[:, [0 if number == 6 else 1]])
    np.testing.assert_array_equal(found, image)


@pytest.mark.parametrize("one", [TrivialAugment(), RandAugment()])
def test_floats_are_rounded_first(one: Augmentation) -> None:
    image = photo()
    exact = augmented(one, [image] * 50)
    floats = augmented(one, [image + np.float32(0.4)] * 50)
    assert all(np.array_equal(a, b) for a, b in zip(exact, floats, strict=True))


def test_gray_images_have_no_colours() -> None:
    image = photo()[..., :1]
    draws = ((np.arange(28, dtype=np.float32) + 0.5) / 28)[:, None]
    found = augmented(RandAugment(1, 20), [image] * 28, draws=draws)
    np.testing.assert_array_equal(found[7], image)
    assert not np.array_equal(found[6], image)


@pytest.mark.parametrize(("fill", "interpolation"), [(0, "nearest"), (99, "bilinear")])
def test_what_is_outside_is_filled(fill: float, interpolation: Any) -> None:
    one = RandAugment(1, 30, interpolation=interpolation, fill=fill)
    draws = np.array([[3.5 / 28]], np.float32)  # shifted along x
    (found,) = augmented(one, [photo()], draws=draws)
    assert np.all(found[:, -27:] == fill)
    assert np.all(found[:, :-27] >= 40)
