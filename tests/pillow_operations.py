"""The operations of torchvision's policies, by Pillow, and an image for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageOps

HEIGHT, WIDTH = 40, 61
Expected = Callable[[Image.Image], Any]


def photo() -> NDArray[np.uint8]:
    """Return smooth colours, from 40 to 220, and some noise."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    planes = [np.sin(x / 9 + y / 7), np.cos(x / 5), np.sin(y / 4 - x / 11)]
    noise = np.random.default_rng(0).normal(0, 3, (HEIGHT, WIDTH, 3))
    return np.clip(130 + 85 * np.stack(planes, axis=2) + noise, 40, 220).astype(np.uint8)


def affine(*matrix: float, resample: Image.Resampling) -> Expected:
    """Return the transform by a matrix."""
    return lambda image: image.transform(image.size, Image.Transform.AFFINE, matrix, resample)


def equalized(image: Image.Image) -> NDArray[np.uint8]:
    """Equalize as OpenCV does; Pillow's integers are far from it where an image is small."""
    planes = []
    for plane in np.moveaxis(np.array(image), 2, 0):
        counts = np.bincount(plane.ravel(), minlength=256)
        least = counts[counts > 0][0]
        planes.append(np.rint(255 * (counts.cumsum() - least) / (plane.size - least))[plane])
    return np.stack(planes, axis=2).astype(np.uint8)


def expected_operations(
    strength: float,
    sign: int,
    *,
    shear: float,
    shift: Any,
    degrees: float,
    most: float,
    bits: int,
    all_bits: int = 8,
    resample: Image.Resampling = Image.Resampling.NEAREST,
) -> list[Expected]:
    """Return the operations of torchvision by Pillow, in its order, and last the inversion."""
    signed, factor = sign * strength, 1 + sign * strength * most
    x, y = (math.trunc(signed * value) for value in shift)
    least = math.ceil(np.float32(255 * (1 - strength)))  # as torch compares
    return [
        lambda image: image,
        affine(1, signed * shear, 0, 0, 1, 0, resample=resample),
        affine(1, 0, 0, signed * shear, 1, 0, resample=resample),
        affine(1, 0, x, 0, 1, 0, resample=resample),
        affine(1, 0, 0, 0, 1, y, resample=resample),
        lambda image: image.rotate(-signed * degrees, resample),
        lambda image: ImageEnhance.Brightness(image).enhance(factor),
        lambda image: ImageEnhance.Color(image).enhance(factor),
        lambda image: ImageEnhance.Contrast(image).enhance(factor),
        lambda image: ImageEnhance.Sharpness(image).enhance(factor),
        lambda image: posterized(image, all_bits - round(strength * bits)),
        lambda image: ImageOps.solarize(image, least),
        lambda image: ImageOps.autocontrast(image),
        equalized,
        ImageOps.invert,
    ]


def posterized(image: Image.Image, bits: int) -> NDArray[np.uint8]:
    """Keep the first bits; Pillow keeps at least one."""
    return np.array(image) & np.uint8(256 - 2 ** (8 - bits) & 255)


def in_turn(image: NDArray[Any], operations: Iterable[Expected]) -> NDArray[Any]:
    """Return the image, uint8, after operations one after the other, as int64."""
    for one in operations:
        image = np.array(one(Image.fromarray(image)))
    return image.astype(int)


NAMES = (
    *("Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate"),
    *("Brightness", "Color", "Contrast", "Sharpness", "Posterize", "Solarize"),
    *("AutoContrast", "Equalize", "Invert"),
)
"""Names of `expected_operations`."""
MOVES = ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate")

WIDE: dict[str, Any] = {"shear": 0.99, "shift": (32, 32), "degrees": 135, "most": 0.99, "bits": 6}
RAND: dict[str, Any] = {
    "shear": 0.3,
    "shift": (150 / 331 * WIDTH, 150 / 331 * HEIGHT),
    "degrees": 30,
    "most": 0.9,
    "bits": 4,
}
