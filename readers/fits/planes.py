"""Which planes of an image are read: those before its last two axes, counted in C order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from readers.window import Window

Planes = int | Sequence[int] | Literal["all"]
"""One plane, several, which become the channels of the image, or all."""


class ImageShape(NamedTuple):
    """The shape of an image, whatever its number of axes."""

    planes: int
    """Product of all axes but the last two in NumPy's order (NAXIS3, NAXIS4, ... in that of FITS).
    """
    height: int
    """1 for a one-dimensional image."""
    width: int

    @classmethod
    def of(cls, axes: Sequence[int]) -> ImageShape:
        """Take the axes in NumPy's order, the fastest last.

        Raises
        ------
        ValueError
            If one of them is empty.
        """
        height, width = (1, *axes)[-2:]
        if not axes or min(axes) < 1:
            raise ValueError(f"the image has shape {tuple(axes)}, expected at least one pixel")
        return cls(math.prod(axes[:-2]), height, width)

    def place(self, window: Window | None) -> tuple[int, int, int, int]:
        """Return (y, x, height, width) of a window, or of a whole plane."""
        if window is None:
            return 0, 0, self.height, self.width
        y, x = window.place(self.height, self.width)
        return y, x, window.height, window.width

    def chosen(self, planes: Planes | None, expected: int | None = None) -> list[int]:
        """Return the numbers of the planes that are asked for.

        Parameters
        ----------
        planes : int, tuple of int, "all" or None
            None for the only one.
        expected : int, optional
            How many planes the image must have for "all".

        Raises
        ------
        ValueError
            If it has no such planes, or several and none is asked for.
        """
        if planes is None:
            if self.planes > 1:
                raise ValueError(
                    f"the image has {self.planes} planes of {self.height}x{self.width} pixels: "
                    "say which by a column 'plane' of the Index (scripts/index.py --planes all "
                    "makes a row of each), or by planes, a number, several, or 'all'"
                )
            return [0]
        if planes == "all":
            if expected is not None and self.planes != expected:
                raise ValueError(
                    f"the image has {self.planes} planes, expected {expected} as in the others: "
                    "leave it out of the Index, or name the planes"
                )
            return list(range(self.planes))
        numbers = [planes] if isinstance(planes, int) else list(planes)
        for number in numbers:
            if not 0 <= number < self.planes:
                raise ValueError(
                    f"there is no plane {number}, the image has {self.planes} (from 0 on)"
                )
        return numbers


def place_of(plane: int, axes: Sequence[int]) -> tuple[int, ...]:
    """Return the place of a plane along all axes but the last two, which are not given."""
    place: list[int] = []
    for size in reversed(axes):
        plane, along = divmod(plane, size)
        place.insert(0, along)
    return tuple(place)
