"""Nearest-neighbour sampling of an image by a placement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from readers.sampling.placement import Placement
from readers.window import Box

TO_NEAREST = 0.5 + 2.0**-20
"""Offset that rounds ties up, even if positions are inexact by some 1e-7 pixels."""
_BLOCK_PIXELS = 1 << 18
"""Output pixels to process at a time."""


@dataclass(frozen=True, slots=True)
class NearestPixels:
    """The nearest image pixel for each pixel of a sample.

    Of two pixels at the same distance it is the one further right, or further down, in the image.
    For a resize this is ``floor((x + 0.5) * scale)``, as in PyTorch's ``nearest-exact``. Pillow and
    OpenCV only differ at such ties.
    """

    placement: Placement
    box: Box
    """Part of the image that contains all nearest pixels; one pixel if all are outside."""

    @classmethod
    def of(cls, placement: Placement) -> NearestPixels:
        """Find the part of the image that a placement needs."""
        last = np.array(placement.shape[::-1]) - 1
        corners = np.array([[0, last[0], 0, last[0]], [0, 0, last[1], last[1]], [1, 1, 1, 1]])
        # The extremes of an affine map of a rectangle are at its corners.
        found = _nearest(placement.matrix @ corners)
        limit = np.array(placement.image[::-1]) - 1
        x, y = np.clip(found.min(axis=1), 0, limit).tolist()
        to_x, to_y = np.clip(found.max(axis=1), 0, limit).tolist()
        return cls(placement, Box(y, x, to_y - y + 1, to_x - x + 1))

    def take(self, part: NDArray[Any], outside: float) -> NDArray[Any]:
        """Return the sample.

        Parameters
        ----------
        part : ndarray
            Pixels of `box`.
        outside : number
            Value of pixels of the sample that are outside the image.

        Returns
        -------
        ndarray
            Array with the shape of the placement and the type of `part`.
        """
        matrix, (height, width) = self.placement.matrix, self.placement.shape
        if matrix[0, 1] or matrix[1, 0]:
            return self._take_turned(part, outside)
        x = _nearest(matrix[0, 0] * np.arange(width) + matrix[0, 2])
        y = _nearest(matrix[1, 1] * np.arange(height) + matrix[1, 2])
        rows, columns = _inside(y, self.placement.image[0]), _inside(x, self.placement.image[1])
        y, x = y[rows] - self.box.y, x[columns] - self.box.x
        found = part[_slice_or(y)][:, _slice_or(x)]
        if found.shape == (height, width):
            return np.ascontiguousarray(found)
        sample = np.full((height, width), outside, part.dtype)
        sample[rows, columns] = found
        return sample

    def _take_turned(self, part: NDArray[Any], outside: float) -> NDArray[Any]:
        matrix, (height, width) = self.placement.matrix, self.placement.shape
        sample = np.full((height, width), outside, part.dtype)
        columns = matrix[:, :1] * np.arange(width)
        step = max(1, _BLOCK_PIXELS // width)
        for first in range(0, height, step):
            lines = np.arange(first, min(first + step, height))
            starts = matrix[:, 1:2] * lines + matrix[:, 2:]
            x, y = _nearest(starts[:, :, None] + columns[:, None, :])
            inside = (x >= 0) & (x < self.placement.image[1])
            inside &= (y >= 0) & (y < self.placement.image[0])
            block = sample[first : first + step]
            block[inside] = part[y[inside] - self.box.y, x[inside] - self.box.x]
        return sample


def _nearest(positions: NDArray[np.float64]) -> NDArray[np.intp]:
    return np.floor(positions + TO_NEAREST).astype(np.intp)


def _inside(indices: NDArray[np.intp], size: int) -> slice:
    """Return the slice of monotonic indices that are in [0, size)."""
    inside = np.flatnonzero((indices >= 0) & (indices < size))
    return slice(int(inside[0]), int(inside[-1]) + 1) if len(inside) else slice(0, 0)


def _slice_or(indices: NDArray[np.intp]) -> slice | NDArray[np.intp]:
    """Return the indices as a slice if they are consecutive, upwards or downwards."""
    if not len(indices):
        return slice(0, 0)
    first, last = int(indices[0]), int(indices[-1])
    step = 1 if last >= first else -1
    if abs(last - first) + 1 != len(indices) or not (np.diff(indices) == step).all():
        return indices
    stop = last + step
    return slice(first, None if stop < 0 else stop, step)
