"""First rows and columns of windows around positions, and which of them are kept."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from readers.sampling.row_window import Outside


class Corners(NamedTuple):
    """First row and column of windows in images, and what becomes of them; shape (n,) each."""

    y: NDArray[np.int64] | NDArray[np.float64]
    """First row, counted from 0, also where it is outside; exact with `subpixel`."""
    x: NDArray[np.int64] | NDArray[np.float64]
    """First column, as `y`."""
    overlaps: NDArray[np.bool_]
    """Whether the window shows a part of the image."""
    kept: NDArray[np.bool_]
    """Whether it makes a row."""


def corners_of(
    positions: NDArray[np.float64],
    images: NDArray[np.int64],
    size: tuple[int, int],
    outside: Outside,
    *,
    subpixel: bool,
) -> Corners:
    """Return the corners of windows with positions in their middle.

    Parameters
    ----------
    positions : ndarray, shape (n, 2)
        (y, x) in pixels, counted from the middle of the first pixel.
    images : ndarray, shape (n, 2)
        Height and width of the image of each position.
    size : (int, int)
        Height and width of all windows.
    outside : {"reject", "fill", "shift"}
        Keep windows that are wholly inside, that overlap the image, or whose position is on it.
    subpixel : bool
        Whether a window begins at a fraction of a pixel, so that the position is exactly in its
        middle; else where that of `astropy.nddata.Cutout2D` begins.
    """
    shape = np.array(size)
    # Far from all images, and too far for an integer: whatever overlaps none.
    near = np.clip(positions, -shape - 2, images + shape + 2)
    first = near - (shape - 1) / 2 if subpixel else np.ceil(near - shape / 2).astype(np.int64)
    inside = (first >= 0) & (first + shape <= images)
    # Numbers of the first and last row of the window that lie between the image's first and last.
    start = np.ceil(np.maximum(-first, 0))
    stop = np.floor(np.minimum(images - first, shape) - 1)
    overlaps = start <= stop
    on_image = (positions >= -0.5) & (positions < images - 0.5) & (images >= shape)
    kept = {"reject": inside, "fill": overlaps, "shift": on_image}[outside]
    y, x = first.T
    return Corners(y, x, np.asarray(overlaps.all(axis=1)), np.asarray(kept.all(axis=1)))
