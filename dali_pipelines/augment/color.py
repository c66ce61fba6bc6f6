"""Random changes of colours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from nvidia.dali import fn, types

from dali_pipelines.augment.checks import check_8_bits, range_of
from dali_pipelines.augment.parts import constant, in_float, side_by_side
from dali_pipelines.graph.operators_augment import retouch
from dali_pipelines.graph.user_operators.chance import Chance
from dali_pipelines.graph.user_operators.operators import ImageKind
from dali_pipelines.kernels.augment.color import HUE, SATURATION
from dali_pipelines.settings import Augmentation
from readers.values import check_number

_LARGEST_FACTOR = 1e6

Step = tuple[int, float, float]
"""Code of a step, its least and its largest magnitude."""


@dataclass(frozen=True)
class ColorJitter(Augmentation):
    """Change brightness, contrast, saturation and hue at random, in random order.

    Like torchvision.transforms.v2.ColorJitter. Images of 8 bits are clamped to 0 ... 255 after each
    of the four changes. Other images, such as FITS, accept only brightness and contrast, and are
    not clamped.

    Parameters
    ----------
    brightness, contrast, saturation : float or (float, float)
        Range of the factor, uniform; a number x means ``(max(0, 1 - x), 1 + x)``. Brightness
        multiplies values, contrast the difference from the mean of the gray image, and saturation
        the difference from the gray value of the pixel.
    hue : float or (float, float)
        Range of the shift of the hue in HSV, uniform, as a fraction of the circle from -0.5 to 0.5;
        a number x means ``(-x, x)``.

    Raises
    ------
    ValueError
        If a value is out of range, or all are 0.
    """

    brightness: float | tuple[float, float] = 0.0
    contrast: float | tuple[float, float] = 0.0
    saturation: float | tuple[float, float] = 0.0
    hue: float | tuple[float, float] = 0.0

    of_8_bits = True

    def __post_init__(self) -> None:
        if not self._steps():
            raise ValueError(
                "ColorJitter() changes nothing: set one of brightness, contrast, saturation, hue"
            )

    def add(self, image: Any, chance: Chance, kind: ImageKind) -> Any:
        """Add the operators to the graph; see `dali_pipelines.settings.Augmentation`."""
        steps = self._steps()
        if {SATURATION, HUE} & {code for code, _, _ in steps}:
            check_8_bits("ColorJitter with saturation or hue", kind)
        numbers = _numbers(list(permutations(steps)), kind.largest, chance)
        return _retouched(image, kind, numbers)

    def _steps(self) -> list[Step]:
        """Return the steps that change something."""
        found = []
        for code, name in enumerate(("brightness", "contrast", "saturation")):
            value = getattr(self, name)
            if isinstance(value, Sequence):
                found.append((code, *range_of(name, value, 0, _LARGEST_FACTOR)))
            else:
                check_number(name, value, 0, _LARGEST_FACTOR)
                found.append((code, max(0.0, 1.0 - value), 1.0 + value))
        if not isinstance(self.hue, Sequence):
            check_number("hue", self.hue, 0, 0.5)
        hue = self.hue if isinstance(self.hue, Sequence) else (-self.hue, self.hue)
        found.append((HUE, *range_of("hue", hue, -0.5, 0.5)))
        neutral = {HUE: 0.0}
        return [step for step in found if step[1:] != (neutral.get(step[0], 1.0),) * 2]


@dataclass(frozen=True)
class RandomGrayscale(Augmentation):
    """Make some images gray, without changing the number of channels.

    Like torchvision.transforms.v2.RandomGrayscale. Only images of three channels are changed.

    Parameters
    ----------
    p : float
        Probability that an image becomes gray.
    """

    p: float = 0.1

    of_8_bits = True

    def __post_init__(self) -> None:
        check_number("p", self.p, 0, 1)

    def add(self, image: Any, chance: Chance, kind: ImageKind) -> Any:
        """Add the operators to the graph; see `dali_pipelines.settings.Augmentation`."""
        check_8_bits("RandomGrayscale", kind)
        is_gray = fn.cast(chance.bernoulli(self.p), dtype=types.FLOAT)
        numbers = constant([kind.largest, SATURATION, 1]) - constant([0, 0, 1]) * is_gray
        return _retouched(image, kind, numbers)


def _retouched(image: Any, kind: ImageKind, numbers: Any) -> Any:
    """Change the colours of the image, see `retouch`, and keep its type."""
    return in_float(
        image, kind, lambda pixels: side_by_side(pixels, kind, lambda wide: retouch(wide, numbers))
    )


def _numbers(orders: list[tuple[Step, ...]], largest: float | None, chance: Chance) -> Any:
    """Return numbers for `retouch`: a random one of the orders, with random magnitudes."""
    first = math.inf if largest is None else largest
    least = [[first, *(x for code, low, _ in order for x in (code, low))] for order in orders]
    spans = [[0, *(x for _, low, high in order for x in (0, high - low))] for order in orders]
    order = chance.choice(len(orders))
    return constant(least)[order] + constant(spans)[order] * chance.fractions(len(least[0]))
