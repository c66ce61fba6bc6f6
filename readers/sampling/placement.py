"""The place in the image of a file that a sample shows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from readers.contract import Reader, SampleSpec
from readers.window import Window

PlacementOutput = Literal["window", "flip", "matrix"]
"""Outputs that say where a sample is, see `Placement`."""

PLACEMENT_SPECS: dict[PlacementOutput, SampleSpec] = {
    "window": SampleSpec(name="placed_window", dtype="float32", shape=(4,), unit="pixel"),
    "flip": SampleSpec(name="placed_flip", dtype="int32", shape=(2,)),
    "matrix": SampleSpec(name="placed_matrix", dtype="float64", shape=(2, 3), unit="pixel"),
}
"""Their arrays in a sample; Readers have arrays of their own that are named ``matrix``."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The place of a sample's output in the image of its file.

    Attributes of the names of `PlacementOutput` can be outputs of a pipeline.
    """

    image: tuple[int, int]
    """(height, width) of the image of the file, in pixels."""
    shape: tuple[int, int]
    """(height, width) of the output, in pixels."""
    window: NDArray[np.float32]
    """y, x, height and width in pixels of the part of the image that is shown; y and x are counted
    from the outer edge of the first pixel. The part of a rotated or zoomed window is that before it
    is turned about its centre."""
    flip: NDArray[np.int32]
    """1 if the output is flipped left-right, and up-down; else 0."""
    matrix: NDArray[np.float64]
    """Shape (2, 3): from pixels (x, y) of the output to those of the image, both counted from the
    centre of the first pixel, as NumPy and the WCS of astropy (``origin=0``) count."""

    @classmethod
    def of(
        cls,
        window: Window | None,
        image: tuple[int, int],
        resize: tuple[int, int] | None,
        flip: tuple[bool, bool],
    ) -> Placement:
        """Return the placement of a window of an image, after its resize and flips.

        Parameters
        ----------
        window : Window, optional
            None for the whole image.
        image : tuple of int
            (height, width) of the image.
        resize : tuple of int, optional
            (height, width) of the output; None for that of the window.
        flip : tuple of bool
            Whether it is flipped left-right, and up-down, after the resize.

        Raises
        ------
        ValueError
            If the window does not fit into the image.
        """
        rows, columns = ((0, image[0]), (0, image[1])) if window is None else window.part(*image)
        size = rows[1] - rows[0], columns[1] - columns[0]
        height, width = shape = resize or (round(size[0]), round(size[1]))
        scale = np.array([size[1] / width, size[0] / height])
        start = np.array([columns[0], rows[0]]) + scale / 2 - 0.5
        linear = np.diag(scale)
        last = np.array([width - 1, height - 1]) * flip
        start, linear = start + linear @ last, linear @ np.diag(np.where(flip, -1, 1))
        if window is not None and (window.angle != 0 or window.zoom != 1):
            turn = window.turn()
            centre = np.array([sum(columns), sum(rows)]) / 2 - 0.5
            start, linear = centre + turn @ (start - centre), turn @ linear
        return cls(
            image=image,
            shape=shape,
            window=np.array((rows[0], columns[0], *size), np.float32),
            flip=np.array(flip, np.int32),
            matrix=np.column_stack((linear, start)),
        )


def check_size_known(reader: Reader, what: str, names: Iterable[str]) -> None:
    """Raise ValueError if there are names of what needs `Sample.image_size`, and it lacks it."""
    known = getattr(reader, "regions", False) or getattr(reader, "turns", False)
    if (wanted := ", ".join(names)) and not known:
        raise ValueError(
            f"{what} {wanted} need a Reader whose Samples have image_size; {type(reader).__name__} "
            "has neither regions = True nor turns = True"
        )
