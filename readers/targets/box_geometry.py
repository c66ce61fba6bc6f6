"""Convert boxes of an image to boxes of a sample: check, move, and cut them at the edges.

Boxes are arrays of shape (n, 4), float64: x1, y1, x2, y2 in pixels from the outer edge of the first
pixel, as in COCO and torchvision.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from readers.sampling.placement import Placement

Boxes = NDArray[np.float64]

_ROUNDING = 1e-9
"""Relative tolerance, because boxes inside the sample lose area by rounding."""
_THIN = 1e-6
"""Boxes that are at most this wide or high, in pixels, inside the sample are dropped."""

_FARTHEST = 1e9
"""Largest coordinate in pixels. Beyond it areas overflow and rotations are inexact."""


def check_boxes(boxes: Boxes, image: tuple[int, int]) -> None:
    """Raise ValueError for the first box that cannot be in an image of (height, width)."""
    height, width = image
    x1, y1, x2, y2 = boxes.T
    for bad, reason in (
        (~np.isfinite(boxes).all(axis=1), "is not finite"),
        (
            (np.abs(boxes) > _FARTHEST).any(axis=1),
            f"reaches beyond {_FARTHEST:g} pixels: cut it at the edges of the image",
        ),
        (
            (x2 < x1) | (y2 < y1),
            "is inverted: expected x1, y1, x2, y2; for x, y, width, height set x2 = x + width",
        ),
        (
            (x2 <= 0) | (y2 <= 0) | (x1 >= width) | (y1 >= height),
            f"is outside the image of {height}x{width} pixels (height x width)",
        ),
    ):
        if bad.any():
            number = int(np.argmax(bad))
            values = ", ".join(f"{value:g}" for value in boxes[number])
            raise ValueError(f"box {number} ({values}) {reason}")


def placed_boxes(boxes: Boxes, placement: Placement) -> Boxes:
    """Return the boxes in coordinates of the sample. They may reach beyond the sample.

    A rotated box becomes the smallest box with its four corners.
    """
    matrix, start = placement.matrix[:, :2], placement.matrix[:, 2]
    corners = boxes[:, [[0, 1], [2, 1], [2, 3], [0, 3]]]
    # The matrix maps pixel centres of the sample to pixel centres of the image.
    moved = (corners - (start + 0.5)) @ np.linalg.inv(matrix).T + 0.5
    return np.concatenate((moved.min(axis=1), moved.max(axis=1)), axis=1)


def cut_boxes(
    boxes: Boxes, shape: tuple[int, int], min_area: float, min_visible: float
) -> tuple[Boxes, NDArray[np.intp]]:
    """Cut boxes at the edges of a sample.

    Parameters
    ----------
    boxes : ndarray, shape (n, 4)
        Result of `placed_boxes`.
    shape : tuple of int
        (height, width) of the sample.
    min_area : float
        Least remaining area of a box, in pixels.
    min_visible : float
        Least remaining share of a box's area.

    Returns
    -------
    tuple of ndarray
        Remaining boxes in order, and their numbers.
    """
    height, width = shape
    cut = np.clip(boxes, 0, [width, height, width, height])
    sides = cut[:, 2:] - cut[:, :2]
    area, whole = sides.prod(axis=1), (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
    enough = np.maximum(min_area, min_visible * whole) * (1 - _ROUNDING)
    kept = np.flatnonzero((sides > _THIN).all(axis=1) & (area >= enough))
    return cut[kept], kept
