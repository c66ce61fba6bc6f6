"""Which part of a file an affine resampling needs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

HALO = {1: 1, 3: 14}
"""Pixels to read around the places that are asked for and their neighbours, by the order of the
spline. For 1 that is one, in case the graph rounds a place to the other side. For 3 it is one that
the spline needs, and the reach of its prefilter, which has no end, but falls by 0.268 a pixel: what
lies beyond 13 adds 4e-8."""


class Box(NamedTuple):
    """Part of an image, in pixels, rows first."""

    y: int
    x: int
    height: int
    width: int


def needed_box(
    matrix: NDArray[np.float64], output: tuple[int, int], image: tuple[int, int], order: int
) -> Box:
    """Return the smallest box that holds each pixel of the input that the output depends on.

    Parameters
    ----------
    matrix : ndarray, shape (2, 3), float64
        From pixels (x, y) of the output to those of the input.
    output, image : tuple of int
        (height, width) of output and input, in pixels.
    order : {1, 3}
        Of the spline.

    Returns
    -------
    Box
        Inside the input. One pixel of its edge, where the output lies outside altogether.
    """
    height, width = output
    x, y = np.array([[0, width - 1, 0, width - 1], [0, 0, height - 1, height - 1]], np.float64)
    # An affine map of a rectangle reaches farthest in its corners.
    corners = matrix @ np.stack((x, y, np.ones(4)))
    last = np.array([image[1] - 1, image[0] - 1])
    first = np.clip(np.floor(corners.min(axis=1)) - HALO[order], 0, last).astype(int)
    final = np.clip(np.ceil(corners.max(axis=1)) + HALO[order], 0, last).astype(int)
    width, height = (final - first + 1).tolist()
    return Box(int(first[1]), int(first[0]), height, width)
