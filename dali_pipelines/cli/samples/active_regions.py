"""Active regions of the drawn Sun: their glow, and the loops that stand on them. SYNTHETIC."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Region:
    """An active region."""

    position: NDArray[np.float64]  # unit vector (x, y, z) from the centre of the Sun, z towards us
    size: float  # radius in solar radii
    strength: float  # brightness, of order 1


def draw_region(random: np.random.Generator) -> Region:
    """Place a region in one of the two activity belts."""
    import numpy as np

    latitude = math.radians(random.uniform(8, 28)) * random.choice([-1, 1])
    longitude = math.radians(random.uniform(-88, 88))
    x = math.cos(latitude) * math.sin(longitude)
    z = math.cos(latitude) * math.cos(longitude)
    position = np.array([x, math.sin(latitude), z])
    return Region(position, random.uniform(0.035, 0.1), random.lognormal(0, 0.5))


def glow(regions: list[Region], axis: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the glow of the regions at the points of `axis` x `axis` (solar radii)."""
    import numpy as np

    x, y = axis, axis[:, None]
    z = np.sqrt(np.maximum(1 - x**2 - y**2, 0))
    light = np.zeros((len(axis), len(axis)), np.float32)
    for region in regions:
        u, v, w = region.position
        distance2 = (x - u) ** 2 + (y - v) ** 2 + (z - w) ** 2
        light += region.strength * np.exp(-distance2 / (2 * region.size**2))
    return light


def loops(
    regions: list[Region], random: np.random.Generator, size: int, radius: float
) -> NDArray[np.float32]:
    """Return thin half circles, seen in projection, that stand on the regions.

    The image is `size` pixels high and wide; the Sun is in its middle, of a radius in pixels.
    """
    import numpy as np

    drawn = [_draw_loop(region, random) for region in regions for _ in range(45)]
    x, y, z = np.concatenate([points for points, _ in drawn]).T
    weights = np.repeat([light * 100 / len(points) for points, light in drawn], len(drawn[0][0]))
    seen = (z > 0) | (np.hypot(x, y) > 1)
    column = np.rint(x * radius + (size - 1) / 2).astype(np.intp)
    row = np.rint(y * radius + (size - 1) / 2).astype(np.intp)
    pixels = (row * size + column)[seen]
    image = np.bincount(pixels, weights[seen], minlength=size**2)
    return _blur(image.reshape(size, size).astype(np.float32))


def _draw_loop(region: Region, random: np.random.Generator) -> tuple[NDArray[np.float64], float]:
    """Return points (x, y, z) along a half circle between two feet, and its light."""
    import numpy as np

    angle = np.linspace(0, np.pi, 500)[:, None]
    feet = region.position + region.size * random.normal(0, 0.9, (2, 3))
    feet /= np.linalg.norm(feet, axis=1, keepdims=True)
    middle, half = feet.mean(axis=0), (feet[1] - feet[0]) / 2
    up = middle / np.linalg.norm(middle) + random.normal(0, 0.25, 3)
    up *= np.linalg.norm(half) * random.uniform(0.7, 1.3) / np.linalg.norm(up)
    light = region.strength * random.uniform(0.2, 1) * np.linalg.norm(half) / 0.05
    return middle + half * np.cos(angle) + up * np.sin(angle), float(light)


def _blur(image: NDArray[np.float32]) -> NDArray[np.float32]:
    """Blur with the weights 1 2 1 along both axes, twice."""
    import numpy as np

    for axis in (0, 1, 0, 1):
        image = (np.roll(image, 1, axis) + 2 * image + np.roll(image, -1, axis)) / np.float32(4)
    return image
