"""Arrays of a sample with which the graph maps the pixels that were read to the window."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from readers.contract import SampleSpec
from readers.sampling.placement import Placement
from readers.sampling.row_window import RowWindow
from readers.window import Window

GRAPH_SPECS = {
    "part": SampleSpec(name="part", dtype="float32", shape=(4,), unit="pixel"),
    "affine": SampleSpec(name="affine", dtype="float32", shape=(2, 3)),
    "inside": SampleSpec(name="inside", dtype="int32", shape=(4,), unit="pixel"),
    "nearest": SampleSpec(name="nearest", dtype="float64", shape=(10,), unit="pixel"),
}
"""``part``: y and x of the start, then of the end, of the part to resize, in the pixels that were
read. ``affine``: matrix from (x, y) of the window to the pixels that were read. Both count pixels
from the outer edge of the first pixel, as in DALI.

``inside``: y and x of the window relative to its part inside the image (0 or less), then height and
width of this part. ``affine`` then maps from the part.

``nearest``: matrix of the `Placement`, row by row; first row and column that were read; height and
width of the image."""


def graph_arrays(
    names: Collection[str],
    window: Window | None,
    image: tuple[int, int],
    placement: Placement | None,
) -> dict[str, NDArray[Any]]:
    """Return arrays of `GRAPH_SPECS`, see `readers.sampling.geometry.Geometry.geometry_arrays`.

    ValueError if the window does not fit into the image.
    """
    found: dict[str, NDArray[Any]] = {}
    top, left = (0, 0) if window is None else window.within(*image).place(*image)
    if "nearest" in names and placement is not None:
        rest = top, left, *placement.image
        found["nearest"] = np.concatenate((placement.matrix.reshape(-1), rest))
    if "part" in names:
        ends = ((0, image[0]), (0, image[1])) if window is None else window.part(*image)
        part = np.array(ends) - [[top], [left]]
        found["part"] = part.T.reshape(-1).astype(np.float32)
    y, x, *size = 0, 0, *image
    if "inside" in names:
        if isinstance(window, RowWindow):
            y, x, *size = window.inside(*image)
        found["inside"] = np.array((-y, -x, *size), np.int32)
    if "affine" in names:
        matrix = np.eye(2, 3) if window is None else window.matrix(*image)
        matrix[:, 2] += matrix[:, :2] @ (x, y)
        # From pixel centres to edges, on both sides.
        matrix[:, 2] += 0.5 - matrix[:, :2] @ (0.5, 0.5) - (left, top)
        found["affine"] = matrix.astype(np.float32)
    return found
