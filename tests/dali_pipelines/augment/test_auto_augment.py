"""AutoAugment: each pair of operations against Pillow, and how often each operation comes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from augmented import augmented
from pillow_operations import MOVES, NAMES, RAND, expected_operations, in_turn, photo

from dali_pipelines import AutoAugment

Operation = tuple[str, float, int | None]

# _get_policies of torchvision.transforms.v2.AutoAugment.
POLICIES: dict[Any, list[tuple[Operation, Operation]]] = {
    "imagenet": [
        (("Posterize", 0.4, 8), ("Rotate", 0.6, 9)),
        (("Solarize", 0.6, 5), ("AutoContrast", 0.6, None)),
        (("Equalize", 0.8, None), ("Equalize", 0.6, None)),
        (("Posterize", 0.6, 7), ("Posterize", 0.6, 6)),
        (("Equalize", 0.4, None), ("Solarize", 0.2, 4)),
        (("Equalize", 0.4, None), ("Rotate", 0.8, 8)),
        (("Solarize", 0.6, 3), ("Equalize", 0.6, None)),
        (("Posterize", 0.8, 5), ("Equalize", 1.0, None)),
        (("Rotate", 0.2, 3), ("Solarize", 0.6, 8)),
        (("Equalize", 0.6, None), ("Posterize", 0.4, 6)),
        (("Rotate", 0.8, 8), ("Color", 0.4, 0)),
        (("Rotate", 0.4, 9), ("Equalize", 0.6, None)),
        (("Equalize", 0.0, None), ("Equalize", 0.8, None)),
        (("Invert", 0.6, None), ("Equalize", 1.0, None)),
        (("Color", 0.6, 4), ("Contrast", 1.0, 8)),
        (("Rotate", 0.8, 8), ("Color", 1.0, 2)),
        (("Color", 0.8, 8), ("Solarize", 0.8, 7)),
        (("Sharpness", 0.4, 7), ("Invert", 0.6, None)),
        (("ShearX", 0.6, 5), ("Equalize", 1.0, None)),
        (("Color", 0.4, 0), ("Equalize", 0.6, None)),
        (("Equalize", 0.4, None), ("Solarize", 0.2, 4)),
        (("Solarize", 0.6, 5), ("AutoContrast", 0.6, None)),
        (("Invert", 0.6, None), ("Equalize", 1.0, None)),
        (("Color", 0.6, 4), ("Contrast", 1.0, 8)),
        (("Equalize", 0.8, None), ("Equalize", 0.6, None)),
    ],
    "cifar10": [
        (("Invert", 0.1, None), ("Contrast", 0.2, 6)),
        (("Rotate", 0.7, 2), ("TranslateX", 0.3, 9)),
        (("Sharpness", 0.8, 1), ("Sharpness", 0.9, 3)),
        (("ShearY", 0.5, 8), ("TranslateY", 0.7, 9)),
        (("AutoContrast", 0.5, None), ("Equalize", 0.9, None)),
        (("ShearY", 0.2, 7), ("Posterize", 0.3, 7)),
        (("Color", 0.4, 3), ("Brightness", 0.6, 7)),
        (("Sharpness", 0.3, 9), ("Brightness", 0.7, 9)),
        (("Equalize", 0.6, None), ("Equalize", 0.5, None)),
        (("Contrast", 0.6, 7), ("Sharpness", 0.6, 5)),
        (("Color", 0.7, 7), ("TranslateX", 0.5, 8)),
        (("Equalize", 0.3, None), ("AutoContrast", 0.4, None)),
        (("TranslateY", 0.4, 3), ("Sharpness", 0.2, 6)),
        (("Brightness", 0.9, 6), ("Color", 0.2, 8)),
        (("Solarize", 0.5, 2), ("Invert", 0.0, None)),
        (("Equalize", 0.2, None), ("AutoContrast", 0.6, None)),
        (("Equalize", 0.2, None), ("Equalize", 0.6, None)),
        (("Color", 0.9, 9), ("Equalize", 0.6, None)),
        (("AutoContrast", 0.8, None), ("Solarize", 0.2, 8)),
        (("Brightness", 0.1, 3), ("Color", 0.7, 0)),
        (("Solarize", 0.4, 5), ("AutoContrast", 0.9, None)),
        (("TranslateY", 0.9, 9), ("TranslateY", 0.7, 9)),
        (("AutoContrast", 0.9, None), ("Solarize", 0.8, 3)),
        (("Equalize", 0.8, None), ("Invert", 0.1, None)),
        (("TranslateY", 0.7, 9), ("AutoContrast", 0.9, None)),
    ],
    "svhn": [
        (("ShearX", 0.9, 4), ("Invert", 0.2, None)),
        (("ShearY", 0.9, 8), ("Invert", 0.7, None)),
        (("Equalize", 0.6, None), ("Solarize", 0.6, 6)),
        (("Invert", 0.9, None), ("Equalize", 0.6, None)),
        (("Equalize", 0.6, None), ("Rotate", 0.9, 3)),
        (("ShearX", 0.9, 4), ("AutoContrast", 0.8, None)),
        (("ShearY", 0.9, 8), ("Invert", 0.4, None)),
        (("ShearY", 0.9, 5), ("Solarize", 0.2, 6)),
        (("Invert", 0.9, None), ("AutoContrast", 0.8, None)),
        (("Equalize", 0.6, None), ("Rotate", 0.9, 3)),
        (("ShearX", 0.9, 4), ("Solarize", 0.3, 3)),
        (("ShearY", 0.8, 8), ("Invert", 0.7, None)),
        (("Equalize", 0.9, None), ("TranslateY", 0.6, 6)),
        (("Invert", 0.9, None), ("Equalize", 0.6, None)),
        (("Contrast", 0.3, 3), ("Rotate", 0.8, 4)),
        (("Invert", 0.8, None), ("TranslateY", 0.0, 2)),
        (("ShearY", 0.7, 6), ("Solarize", 0.4, 8)),
        (("Invert", 0.6, None), ("Rotate", 0.8, 4)),
        (("ShearY", 0.3, 7), ("TranslateX", 0.9, 3)),
        (("ShearX", 0.1, 6), ("Invert", 0.6, None)),
        (("Solarize", 0.7, 2), ("TranslateY", 0.6, 7)),
        (("ShearY", 0.8, 4), ("Invert", 0.8, None)),
        (("ShearX", 0.7, 9), ("TranslateY", 0.8, 3)),
        (("ShearY", 0.8, 5), ("AutoContrast", 0.7, None)),
        (("ShearX", 0.7, 2), ("Invert", 0.1, None)),
    ],
}


def test_the_pairs_are_those_of_torchvision() -> None:
    v2 = pytest.importorskip("torchvision.transforms.v2")
    for name, pairs in POLICIES.items():
        assert v2.AutoAugment(v2.AutoAugmentPolicy(name))._policies == pairs


def operation(one: Operation, sign: int, more: float = 0.0) -> Any:
    strength = (one[2] or 0) / 9 * (1 + more * (one[0] in MOVES))
    return expected_operations(strength, sign, **RAND)[NAMES.index(one[0])]


@pytest.mark.parametrize("policy", POLICIES)
def test_each_pair_is_that_of_pillow(policy: Any) -> None:
    image, draws, expected = photo(), [], []
    for number, pair in enumerate(POLICIES[policy]):
        for sign, fraction in ((1, 0.75), (-1, 0.25)):
            for which in ((True, False), (False, True), (True, True)):
                # Just below the probability, or just above it.
                used = [
                    one[1] - 1e-3 if use else one[1] + 1e-3
                    for one, use in zip(pair, which, strict=True)
                ]
                if min(used) < 0 or max(used) >= 1:
                    continue
                draws.append([(number + 0.5) / 25, used[0], fraction, used[1], fraction])
                expected.append(([one for one, use in zip(pair, which, strict=True) if use], sign))
    made = augmented(AutoAugment(policy), [image] * len(draws), draws=np.array(draws, np.float32))
    for found, (operations, sign) in zip(made, expected, strict=True):
        names = [one[0] for one in operations]
        # Half a pixel is rounded either way.
        differences = np.minimum(
            *(
                np.abs(found - in_turn(image, [operation(one, sign, more) for one in operations]))
                for more in (-1e-4, 1e-4)
            )
        )
        if "Sharpness" in names:  # Pillow leaves the border as it is
            differences = differences[1:-1, 1:-1]
        # Later operations widen what was rounded before.
        far = np.mean(differences.max(axis=2) > (2 if len(names) == 1 else 6))
        assert far < (0.03 if set(names) & set(MOVES) else 5e-3), (operations, sign)


def test_operations_come_as_often_as_in_torchvision() -> None:
    for number in (0, 17):
        count = 2000
        draws = np.random.default_rng(number).random((count, 5), np.float32)
        draws[:, 0] = (number + 0.5) / 25
        image = photo()[:6, :8]
        found = augmented(AutoAugment("imagenet"), [image] * count, draws=draws)
        (_, p, _), (_, q, _) = POLICIES["imagenet"][number]
        same = np.mean([np.array_equal(one, image) for one in found])
        assert abs(same - (1 - p) * (1 - q)) < 0.04
    # Each pair is as likely as another: pair 12, for one, never takes its first operation.
    draws = np.full((25, 5), 0.999, np.float32)
    draws[:, 0] = (np.arange(25) + 0.5) / 25
    last = augmented(AutoAugment("imagenet"), [photo()] * 25, draws=draws)
    always = [number for number in range(25) if not np.array_equal(last[number], photo())]
    assert always == [
        n for n, pair in enumerate(POLICIES["imagenet"]) if 1.0 in (pair[0][1], pair[1][1])
    ]


def test_names_of_policies() -> None:
    with pytest.raises(ValueError, match=r"policy.*'imagenet', 'cifar10', 'svhn'.*'ImageNet'"):
        AutoAugment("ImageNet")  # type: ignore[arg-type]
