"""AutoAugment: a random pair of operations, from pairs that were learned on a data set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from nvidia.dali import fn, types

from dali_pipelines.augment.parts import constant
from dali_pipelines.augment.policies import (
    NAMES,
    RAND,
    Interpolation,
    Operation,
    Policy,
    operations,
)
from dali_pipelines.graph.user_operators.chance import Chance
from dali_pipelines.graph.user_operators.operators import ImageKind
from dali_pipelines.values import check_choice

DataSet = Literal["imagenet", "cifar10", "svhn"]

_BINS = 10
_POLICIES = {
    "imagenet": """
        Posterize 0.4 8, Rotate 0.6 9
        Solarize 0.6 5, AutoContrast 0.6
        Equalize 0.8, Equalize 0.6
        Posterize 0.6 7, Posterize 0.6 6
        Equalize 0.4, Solarize 0.2 4
        Equalize 0.4, Rotate 0.8 8
        Solarize 0.6 3, Equalize 0.6
        Posterize 0.8 5, Equalize 1.0
        Rotate 0.2 3, Solarize 0.6 8
        Equalize 0.6, Posterize 0.4 6
        Rotate 0.8 8, Color 0.4 0
        Rotate 0.4 9, Equalize 0.6
        Equalize 0.0, Equalize 0.8
        Invert 0.6, Equalize 1.0
        Color 0.6 4, Contrast 1.0 8
        Rotate 0.8 8, Color 1.0 2
        Color 0.8 8, Solarize 0.8 7
        Sharpness 0.4 7, Invert 0.6
        ShearX 0.6 5, Equalize 1.0
        Color 0.4 0, Equalize 0.6
        Equalize 0.4, Solarize 0.2 4
        Solarize 0.6 5, AutoContrast 0.6
        Invert 0.6, Equalize 1.0
        Color 0.6 4, Contrast 1.0 8
        Equalize 0.8, Equalize 0.6
    """,
    "cifar10": """
        Invert 0.1, Contrast 0.2 6
        Rotate 0.7 2, TranslateX 0.3 9
        Sharpness 0.8 1, Sharpness 0.9 3
        ShearY 0.5 8, TranslateY 0.7 9
        AutoContrast 0.5, Equalize 0.9
        ShearY 0.2 7, Posterize 0.3 7
        Color 0.4 3, Brightness 0.6 7
        Sharpness 0.3 9, Brightness 0.7 9
        Equalize 0.6, Equalize 0.5
        Contrast 0.6 7, Sharpness 0.6 5
        Color 0.7 7, TranslateX 0.5 8
        Equalize 0.3, AutoContrast 0.4
        TranslateY 0.4 3, Sharpness 0.2 6
        Brightness 0.9 6, Color 0.2 8
        Solarize 0.5 2, Invert 0.0
        Equalize 0.2, AutoContrast 0.6
        Equalize 0.2, Equalize 0.6
        Color 0.9 9, Equalize 0.6
        AutoContrast 0.8, Solarize 0.2 8
        Brightness 0.1 3, Color 0.7 0
        Solarize 0.4 5, AutoContrast 0.9
        TranslateY 0.9 9, TranslateY 0.7 9
        AutoContrast 0.9, Solarize 0.8 3
        Equalize 0.8, Invert 0.1
        TranslateY 0.7 9, AutoContrast 0.9
    """,
    "svhn": """
        ShearX 0.9 4, Invert 0.2
        ShearY 0.9 8, Invert 0.7
        Equalize 0.6, Solarize 0.6 6
        Invert 0.9, Equalize 0.6
        Equalize 0.6, Rotate 0.9 3
        ShearX 0.9 4, AutoContrast 0.8
        ShearY 0.9 8, Invert 0.4
        ShearY 0.9 5, Solarize 0.2 6
        Invert 0.9, AutoContrast 0.8
        Equalize 0.6, Rotate 0.9 3
        ShearX 0.9 4, Solarize 0.3 3
        ShearY 0.8 8, Invert 0.7
        Equalize 0.9, TranslateY 0.6 6
        Invert 0.9, Equalize 0.6
        Contrast 0.3 3, Rotate 0.8 4
        Invert 0.8, TranslateY 0.0 2
        ShearY 0.7 6, Solarize 0.4 8
        Invert 0.6, Rotate 0.8 4
        ShearY 0.3 7, TranslateX 0.9 3
        ShearX 0.1 6, Invert 0.6
        Solarize 0.7 2, TranslateY 0.6 7
        ShearY 0.8 4, Invert 0.8
        ShearX 0.7 9, TranslateY 0.8 3
        ShearY 0.8 5, AutoContrast 0.7
        ShearX 0.7 2, Invert 0.1
    """,
}
"""Pairs of operations, one in each line: names, probabilities, and magnitudes from 0 to 9."""


class _Turn(NamedTuple):
    """The first, or the second, operation of each pair."""

    rows: list[Operation]
    """Operation of each pair with both signs, and at the end one that does nothing."""
    p: list[float]
    """Probability of the operation of each pair."""


@dataclass(frozen=True)
class AutoAugment(Policy):
    """Apply one of 25 pairs of operations; for images of 8 bits.

    Like torchvision.transforms.v2.AutoAugment, with the same pairs. Each operation of a pair has
    its own probability. Operations are those of `RandAugment`, and the inversion of an image.

    Parameters
    ----------
    policy : {"imagenet", "cifar10", "svhn"}
        Data set on which the pairs were learned.
    interpolation : {"nearest", "bilinear"}
        Interpolation of shear, shift and rotation.
    fill : float
        Value of pixels outside the image.

    Raises
    ------
    ValueError
        If a value is out of range.

    Notes
    -----
    Cubuk et al., "AutoAugment: Learning Augmentation Policies from Data", 2018. Pixels differ from
    torchvision's in the details that `TrivialAugment` lists.
    """

    policy: DataSet = "imagenet"
    interpolation: Interpolation = "nearest"
    fill: float = 0.0

    num_images = 4

    def __post_init__(self) -> None:
        self._check()
        check_choice("policy", self.policy, get_args(DataSet))

    def add(self, image: Any, chance: Chance, kind: ImageKind) -> Any:
        """Add the operators to the graph; see `dali_pipelines.settings.Augmentation`."""
        turns = _turns(self.policy)
        pair = chance.choice(len(turns[0].p))
        rows = []
        for turn in turns:
            is_used = fn.cast(chance.uniform() < constant(turn.p)[pair], dtype=types.INT32)
            sign = fn.cast(chance.bernoulli(), dtype=types.INT32)
            nothing = len(turn.rows) - 1
            number = nothing + is_used * (2 * pair + sign - nothing)
            rows.append(constant(np.array(turn.rows))[number])
        return self._apply(image, kind, rows)


def _turns(policy: DataSet) -> tuple[_Turn, _Turn]:
    """Return the operations and probabilities of a policy."""
    turns = _Turn([], []), _Turn([], [])
    for line in _POLICIES[policy].strip().splitlines():
        for turn, text in zip(turns, line.split(","), strict=True):
            name, p, *magnitude = text.split()
            strength = int(magnitude[0]) / (_BINS - 1) if magnitude else 0.0
            at = NAMES.index(name)
            turn.rows.extend(operations(RAND, strength, sign)[at] for sign in (1, -1))
            turn.p.append(float(p))
    for turn in turns:
        turn.rows.append(Operation())
    return turns
