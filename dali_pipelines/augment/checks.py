"""Checks of the settings of augmentations."""

from __future__ import annotations

from numbers import Real
from typing import Any

from dali_pipelines.graph.user_operators.operators import ImageKind
from dali_pipelines.values import are_all
from readers.values import is_number

LARGEST = 1e30
"""Largest number in a setting: sums of products stay finite in float32."""


def range_of(name: str, value: Any, least: float, most: float = LARGEST) -> tuple[float, float]:
    """Return (lowest, highest) for a setting of one or two numbers; ValueError if wrong."""
    pair: Any = (value, value) if is_number(value) else value
    if not are_all(pair, Real) or len(pair) != 2 or not least <= pair[0] <= pair[1] <= most:
        limits = f"from {least:g} on" if most == LARGEST else f"from {least:g} to {most:g}"
        raise ValueError(
            f"{name} must be (lowest, highest), or one number for both, {limits}, got {value!r}"
        )
    return float(pair[0]), float(pair[1])


def check_8_bits(what: str, kind: ImageKind) -> None:
    """Raise ValueError if the images are not of 8 bits, or their depth is unknown."""
    if kind.largest is None:
        raise ValueError(
            f"{what} needs images of 8 bits, with values from 0 to 255, as from jpeg_pipeline: "
            "leave it out. For other images there are Erase, Blur, Noise, PhotonNoise, and "
            "ColorJitter with only brightness and contrast"
        )
