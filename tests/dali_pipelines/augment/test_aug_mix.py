"""AugMix, against torchvision's algorithm with operations of Pillow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from augmented import augmented
from numpy.typing import NDArray
from PIL import Image
from pillow_operations import (
    HEIGHT,
    NAMES,
    RAND,
    WIDTH,
    Expected,
    expected_operations,
    in_turn,
    photo,
)
from scipy import stats

from dali_pipelines import AugMix

COLORS = ("Brightness", "Color", "Contrast", "Sharpness")
RANGES = {**RAND, "shift": (WIDTH / 3, HEIGHT / 3), "all_bits": 4}
BILINEAR = Image.Resampling.BILINEAR


def operations(severity: int, *, all_ops: bool = True) -> dict[tuple[str, int, int], Expected]:
    """Return those that AugMix draws, by name, magnitude and sign; all are equally likely."""
    names = [name for name in NAMES[1:-1] if all_ops or name not in COLORS]
    return {
        (name, number, sign): expected_operations(number / 9, sign, **RANGES, resample=BILINEAR)[
            NAMES.index(name)
        ]
        for number in range(severity)
        for sign in (1, -1)
        for name in names
    }


def explained(found: NDArray[Any], made: NDArray[Any], image: NDArray[Any]) -> tuple[float, float]:
    """Return the weight at which `made` explains the change of an image, and what is left."""
    inner = (slice(1, -1), slice(1, -1))  # Pillow does not sharpen the border
    change, whole = (one.astype(float)[inner] - image[inner] for one in (found, made))
    weight = float((change * whole).sum() / max((whole**2).sum(), 1e-9))
    return weight, float(np.quantile(np.abs(change - weight * whole), 0.9))


@pytest.mark.parametrize("all_ops", [True, False])
def test_one_operation_at_a_random_weight(all_ops: bool) -> None:
    """Each image is explained by its operation at some weight; the weights are of Beta(1, 1)."""
    image, severity, times = photo(), 10, 2
    one = AugMix(severity, mixture_width=1, chain_depth=1, all_ops=all_ops)
    known = operations(severity, all_ops=all_ops)
    draws = np.random.default_rng(0).random((len(known) * times, 4), np.float32)
    draws[:, 3] = (np.arange(len(known)).repeat(times) + 0.5) / len(known)
    images = augmented(one, [image.astype(np.float32)] * len(draws), draws=draws)
    weights = []
    for number, (key, operation) in enumerate(known.items()):
        made = in_turn(image, [operation])
        for found in images[number * times : (number + 1) * times]:
            weight, rest = explained(found, made, image)
            assert rest < 4, key
            if np.abs(made - image).mean() > 10:  # clear enough
                assert -0.02 < weight < 1.02, key
                weights.append(weight)
    assert len(weights) > 200
    assert stats.kstest(weights, stats.uniform.cdf).pvalue > 1e-3


@pytest.mark.parametrize("alpha", [0.5, 1.0, 4.0])
def test_means_are_those_of_the_algorithm_of_torchvision(alpha: float) -> None:
    """Of how far images change, over many draws."""
    image, count = photo(), 600
    random = np.random.default_rng(0)
    space = [*operations(3).values()]
    expected = []
    for _ in range(count):
        own, rest = random.dirichlet([alpha, alpha])
        mix = own * image.astype(float)
        for weight in random.dirichlet([alpha] * 3) * rest:
            depth = random.integers(1, 4)
            chain = [space[random.integers(len(space))] for _ in range(depth)]
            mix += weight * in_turn(image, chain)
        expected.append(np.abs(mix - image).mean())
    found = augmented(AugMix(alpha=alpha), [image.astype(np.float32)] * count, seed=1)
    changes = [np.abs(one - image).mean() for one in found]
    assert stats.ks_2samp(changes, expected).pvalue > 1e-3


def test_depth_and_width_of_chains() -> None:
    """Deep chains change more, and many chains average."""
    image = photo()
    found = {}
    for depth, width in ((1, 1), (3, 1), (1, 6)):
        one = AugMix(mixture_width=width, chain_depth=depth)
        changes = [np.abs(x - image.astype(int)).mean() for x in augmented(one, [image] * 300)]
        found[depth, width] = np.mean(changes), np.std(changes)
    assert found[3, 1][0] > 1.3 * found[1, 1][0]
    assert found[1, 6][1] < 0.8 * found[1, 1][1]


def test_bytes_are_rounded() -> None:
    image = photo()
    floats = augmented(AugMix(), [image.astype(np.float32)] * 20)
    for a, b in zip(augmented(AugMix(), [image] * 20), floats, strict=True):
        assert np.abs(a - b).max() <= 0.5
        assert np.any(b != np.rint(b)) or np.array_equal(a, b)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"severity": 11}, "severity.*1 to 10.*11"),
        ({"mixture_width": 0}, "mixture_width.*1 to 16.*0"),
        ({"chain_depth": 0}, "chain_depth.*1 to 16.*0"),
        ({"alpha": 0}, r"alpha.*0\.1 to 100.*0"),
        ({"all_ops": 1}, "all_ops.*True or False.*1"),
        ({"interpolation": "lanczos"}, "interpolation.*'nearest', 'bilinear'"),
    ],
)
def test_values_that_make_no_sense(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AugMix(**settings)
