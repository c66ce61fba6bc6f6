"""The part of an image that an affine resampling needs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

HALO = {1: 1, 3: 14}
"""Pixels to read around the sampled positions and their neighbours, by order of the spline. Order 1
needs one, in case the graph rounds a position the other way. Order 3 needs one for the spline, and
13 for its prefilter, whose influence falls by 0.268 per pixel: all pixels beyond 13 add 4e-8."""


class Box(NamedTuple):
    """Part of an image, in pixels, rows first."""

    y: int
    x: int
    height: int
    width: int


def needed_box(
    matrix: NDArray[np.float64], output: tuple[int, int], image: tuple[int, int], order: int
) -> Box:
    """Return the smallest box with all pixels of the input on which the output depends.

    Parameters
    ----------
    matrix : ndarray, shape (2, 3), float64
        From pixels (x, y) of the output to those of the input.
    output, image : tuple of int
        (height, width) of output and input, in pixels.
    order : {1, 3}
        Order of the spline.

    Returns
    -------
    Box
        Inside the input. One pixel at its edge if the output is entirely outside.
    """
    height, width = output
    x, y = np.array([[0, width - 1, 0, width - 1], [0, 0, height - 1, height - 1]], np.float64)
    # The extremes of an affine map of a rectangle are at its corners.
    corners = matrix @ np.stack((x, y, np.ones(4)))
    last = np.array([image[1] - 1, image[0] - 1])
    first = np.clip(np.floor(corners.min(axis=1)) - HALO[order], 0, last).astype(int)
    final = np.clip(np.ceil(corners.max(axis=1)) + HALO[order], 0, last).astype(int)
    width, height = (final - first + 1).tolist()
    return Box(int(first[1]), int(first[0]), height, width)
