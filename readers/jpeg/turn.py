"""Turns of images for display by EXIF orientation."""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray

Box = tuple[int, int, int, int]
"""(y, x, height, width) in pixels."""


class Turn(NamedTuple):
    """Display order of stored rows and columns."""

    transposed: bool = False
    """True if stored rows are displayed as columns."""
    bottom_first: bool = False
    """True if the last stored row is displayed first."""
    right_first: bool = False
    """True if the last stored column is displayed first."""

    @classmethod
    def of(cls, orientation: int) -> Turn:
        """Return the turn for a value of the EXIF tag Orientation."""
        return cls(
            orientation in (5, 6, 7, 8), orientation in (3, 4, 6, 7), orientation in (2, 3, 7, 8)
        )

    def applied(self, pixels: NDArray[Any]) -> NDArray[Any]:
        """Return stored pixels, shape (height, width, ...), as displayed."""
        pixels = pixels[::-1] if self.bottom_first else pixels
        pixels = pixels[:, ::-1] if self.right_first else pixels
        return pixels.swapaxes(0, 1) if self.transposed else pixels

    def stored(self, box: Box, height: int, width: int) -> Box:
        """Convert a box of the displayed image to the stored image, whose size is passed."""
        y, x, rows, columns = box
        if self.transposed:
            y, x, rows, columns = x, y, columns, rows
        return self._reversed((y, x, rows, columns), height, width)

    def displayed(self, box: Box, height: int, width: int) -> Box:
        """Convert a box of the stored image, whose size is passed, to the displayed image."""
        y, x, rows, columns = self._reversed(box, height, width)
        return (x, y, columns, rows) if self.transposed else (y, x, rows, columns)

    def _reversed(self, box: Box, height: int, width: int) -> Box:
        y, x, rows, columns = box
        y = height - y - rows if self.bottom_first else y
        return y, width - x - columns if self.right_first else x, rows, columns
