"""Windows that may reach beyond the image: placed by a row of the Index, or larger than it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from readers.window import Box, Window, offset

Outside = Literal["reject", "fill", "shift"]
"""Treatment of windows that are not wholly inside the image: reject them, fill missing pixels with
a value, or shift windows of rows inside."""

_ROUNDING = 1e-6
"""Positions at most this many pixels from a pixel are rounded to the pixel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowWindow(Window):
    """Window that may have a position from the row of the Index, and may exceed the image.

    Without a position from the row it is placed like `readers.window.Window`. Along an axis that is
    longer in the window than in the image, the image is in the middle. If the number of missing
    pixels is odd, one more is missing at the end, as in torchvision's ``CenterCrop``.
    """

    top: float | None = None
    """First row, in pixels of the image; None for the position `y`."""
    left: float | None = None
    """First column, in pixels of the image; None for the position `x`."""
    outside: Outside = "reject"
    """Treatment of a window that is not wholly inside the image."""

    def start(self, height: int, width: int) -> tuple[float, float]:
        """Return the first row and column, shifted inside if `outside` is ``shift``.

        ValueError if the position is not finite, if the window has no pixel of an image of this
        size, or if the window is not wholly inside and `outside` is ``reject``.
        """
        place = self._given(height, width)
        limits = height - self.height, width - self.width
        if all(0 <= first <= limit for first, limit in zip(place, limits, strict=True)):
            return place
        if self.outside == "reject":
            named = self._named(height, width, "is not inside")
            raise ValueError(f"{named}: leave the row out, or set outside='fill' or 'shift'")
        if _is_empty(self._inside(place, (height, width))):
            raise ValueError(f"{self._named(height, width, 'is outside')}: leave the row out")
        if self.outside == "fill":
            return place
        if min(limits) < 0:
            raise ValueError(
                f"crop {self.height}x{self.width} is larger than the image {height}x{width} "
                "(height x width), so outside='shift' cannot move it inside: use a smaller crop, "
                "outside='fill', or leave the row out"
            )
        top, left = (min(max(a, 0), limit) for a, limit in zip(place, limits, strict=True))
        return top, left

    def within(self, height: int, width: int) -> Window:
        """Return the pixels to read: the part of the window inside the image, with neighbours.

        ValueError as in `start`.
        """
        if self.angle != 0 or self.zoom != 1:
            return Window.within(self, height, width)
        y, x = self.start(height, width)
        top, left = max(0, math.floor(y)), max(0, math.floor(x))
        bottom = min(height, math.ceil(y) + self.height)
        right = min(width, math.ceil(x) + self.width)
        return Window.at(top, left, bottom - top, right - left, image=(height, width))

    def place(self, height: int, width: int) -> tuple[int, int]:
        """Return the top-left pixel; ValueError if between pixels, turned, or not inside."""
        if self.angle != 0 or self.zoom != 1:
            return Window.place(self, height, width)
        own = self.within(height, width)
        if (own.height, own.width) != (self.height, self.width):
            raise ValueError(
                f"{self._named(height, width, 'cannot be cut out of')}: read the pixels of "
                "within(height, width), and let the graph resample or fill them"
            )
        return own.place(height, width)

    def inside(self, height: int, width: int) -> Box:
        """Return the part of the unturned window that is inside an image of this size.

        The part is in pixels of the window. ValueError as in `start`.
        """
        return self._inside(self.start(height, width), (height, width))

    def _inside(self, place: tuple[float, float], image: tuple[int, int]) -> Box:
        parts = []
        for first, size, pixels in zip(place, image, (self.height, self.width), strict=True):
            start, last = max(0, math.ceil(-first)), min(pixels - 1, math.floor(size - 1 - first))
            parts.append((start, last - start + 1))
        (y, rows), (x, columns) = parts
        return Box(y, x, rows, columns)

    def _given(self, height: int, width: int) -> tuple[float, float]:
        steps = self.step
        y = _first(height - self.height, self.y, steps[0]) if self.top is None else self.top
        x = _first(width - self.width, self.x, steps[1]) if self.left is None else self.left
        if not (math.isfinite(y) and math.isfinite(x)):
            raise ValueError(f"columns y and x must be finite, got {y} and {x}: leave the row out")
        return _snapped(y), _snapped(x)

    def _named(self, height: int, width: int, what: str) -> str:
        place = "" if self.top is None else f" at y {self.top}, x {self.left}"
        return (
            f"the window of {self.height}x{self.width} (height x width){place} {what} the image of "
            f"{height}x{width}"
        )


def _first(free: int, fraction: float | None, step: int) -> int:
    """Return the position of a window that leaves `free` pixels; pixels are missing if negative."""
    return -(-free // 2) if free < 0 else offset(free, fraction, step)


def _snapped(place: float) -> float:
    return round(place) if abs(place - round(place)) < _ROUNDING else place


def _is_empty(box: Box) -> bool:
    return box.height < 1 or box.width < 1
