"""Planes of an image: slices along all axes but its last two, counted in C order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from readers.values import is_integer
from readers.window import Window

Planes = int | Sequence[int] | Literal["all"]
"""One plane, several (the channels of the image), or all."""


class ImageShape(NamedTuple):
    """The shape of an image with any number of axes."""

    planes: int
    """Product of all axes but the last two in NumPy's order (in FITS: NAXIS3, NAXIS4, ...)."""
    height: int
    """1 for a one-dimensional image."""
    width: int

    @classmethod
    def of(cls, axes: Sequence[int]) -> ImageShape:
        """Return the shape of an image with these axes, in NumPy's order (fastest last).

        ValueError if there is no axis, or an axis is empty.
        """
        height, width = (1, *axes)[-2:]
        if not axes or min(axes) < 1:
            raise ValueError(f"the image has shape {tuple(axes)}, expected at least one pixel")
        return cls(math.prod(axes[:-2]), height, width)

    def region(self, window: Window | None) -> tuple[int, int, int, int]:
        """Return (y, x, height, width) of a window; of a whole plane without a window."""
        if window is None:
            return 0, 0, self.height, self.width
        y, x = window.place(self.height, self.width)
        return y, x, window.height, window.width

    def chosen(self, planes: Planes | None, expected: int | None = None) -> list[int]:
        """Return the numbers of the requested planes; None means the only plane.

        With "all", the image must have the `expected` number of planes, if this is set. ValueError
        if the image lacks a plane, or if it has several planes and `planes` is None.
        """
        if planes is None:
            if self.planes > 1:
                raise ValueError(
                    f"the image has {self.planes} planes of {self.height}x{self.width} pixels: "
                    "choose by a column 'plane' of the Index (dali-pipelines index --planes all "
                    "makes one row per plane), or set planes to one number, several, or 'all'"
                )
            return [0]
        if planes == "all":
            if expected is not None and self.planes != expected:
                raise ValueError(
                    f"the image has {self.planes} planes, expected {expected}: leave it out of the "
                    "Index, or set planes to the numbers wanted"
                )
            return list(range(self.planes))
        numbers = [planes] if isinstance(planes, int) else list(planes)
        for number in numbers:
            if not 0 <= number < self.planes:
                raise ValueError(
                    f"there is no plane {number}, the image has {self.planes} (counted from 0)"
                )
        return numbers


def check_num_planes(planes: Planes | None, num_planes: int | None) -> None:
    """Raise ValueError if num_planes is set without planes "all"."""
    if num_planes is not None and not (isinstance(planes, str) and planes == "all"):
        raise ValueError(
            f"num_planes={num_planes!r} needs planes='all', got planes={planes!r}: leave out "
            "num_planes"
        )


def plane_numbers(planes: Any) -> int | tuple[int, ...]:
    """Convert a setting `planes` to Python integers. Raises ValueError."""
    try:
        several = np.ndim(planes) > 0
    except ValueError:  # a ragged list
        several = True
    numbers = tuple(planes) if several else (planes,)
    if not numbers or not all(is_integer(number, 0) for number in numbers):
        raise ValueError(
            f'planes must be one or several integers from 0 on, or "all", got {planes!r}'
        )
    return tuple(map(int, numbers)) if several else int(numbers[0])
