"""Windows of random size, and windows of the resized image."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from readers.window import Window, offset


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomRegion(Window):
    """Region of random area and aspect ratio, which the graph resizes to height x width.

    Notes
    -----
    As in ``torchvision.transforms.RandomResizedCrop.get_params`` and DALI's
    ``random_crop_generator``, the first attempt that fits into the image is used. If none fits, the
    region is the largest centred one with an allowed aspect ratio.
    """

    area: tuple[float, float]
    """Smallest and largest share of the image's area."""
    aspect_ratio: tuple[float, float]
    """Smallest and largest aspect ratio of a region, width / height."""
    attempts: Iterable[tuple[float, float]]
    """Two fractions in [0, 1) for each attempt: they select the area and the log of the ratio."""

    def within(self, height: int, width: int) -> Window:
        """Return the region in an image of this size."""
        rows, columns, y, x = *self._central(height, width), None, None
        least, most = self.aspect_ratio
        for area, ratio in self.attempts:
            pixels = height * width * _between(self.area, area)
            aspect = math.exp(_between((math.log(least), math.log(most)), ratio))
            shape = round(math.sqrt(pixels / aspect)), round(math.sqrt(pixels * aspect))
            if 0 < shape[0] <= height and 0 < shape[1] <= width:
                (rows, columns), y, x = shape, self.y, self.x
                break
        return Window(height=rows, width=columns, y=y, x=x)

    def part(self, height: int, width: int) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return the start and end of the region along rows and columns of the image."""
        return self.within(height, width).part(height, width)

    def _central(self, height: int, width: int) -> tuple[int, int]:
        least, most = self.aspect_ratio
        if width < least * height:
            return min(height, max(1, round(width / least))), width
        if width > most * height:
            return height, min(width, max(1, round(height * most)))
        return height, width


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledWindow(Window):
    """Window of the image after a resize of its shorter side to `shorter` pixels.

    Only the pixels that the window depends on are read. The graph resizes them.

    Notes
    -----
    Sizes and a centred position are rounded as in torchvision's ``Resize`` and ``CenterCrop``.
    """

    shorter: int
    """Pixels of the shorter side of the resized image."""
    reach: int = 1
    """Output pixels that the filter of the resize needs on each side."""

    def within(self, height: int, width: int) -> Window:
        """Return the pixels that the window depends on in an image of this size.

        ValueError if the window is larger than the resized image.
        """
        # An antialiased filter needs `reach` output pixels on each side of the part, or as many
        # image pixels if the image is enlarged.
        first, last = [], []
        for (start, stop), size, pixels in zip(
            self.part(height, width), (height, width), (self.height, self.width), strict=True
        ):
            reach = self.reach * max(1.0, (stop - start) / pixels)
            first.append(max(0, math.floor(start - reach)))
            last.append(min(size, math.ceil(stop + reach)))
        rows, columns = last[0] - first[0], last[1] - first[1]
        return Window.at(first[0], first[1], rows, columns, image=(height, width))

    def part(self, height: int, width: int) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return the start and end of the window along rows and columns of the image.

        Positions are in pixels from the outer edge of the first pixel. ValueError as in `within`.
        """
        shape = [self.shorter * side // min(height, width) for side in (height, width)]
        if self.height > shape[0] or self.width > shape[1]:
            raise ValueError(
                f"crop {self.height}x{self.width} is larger than the image of {height}x{width}, "
                f"resized to {shape[0]}x{shape[1]} (height x width): use a smaller crop, or leave "
                "such images out of the Index"
            )
        places = zip(
            (height, width), shape, (self.height, self.width), (self.y, self.x), strict=True
        )
        parts = []
        for size, resized, pixels, fraction in places:
            free, scale = resized - pixels, size / resized
            start = round(free / 2) if fraction is None else offset(free, fraction)
            parts.append((start * scale, (start + pixels) * scale))
        return parts[0], parts[1]


def _between(limits: tuple[float, float], fraction: float) -> float:
    return limits[0] + (limits[1] - limits[0]) * fraction
