"""Position of a sample in the image of its file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from readers.contract import Reader, SampleSpec
from readers.window import Window

PlacementOutput = Literal["window", "flip", "matrix"]
"""Outputs with the position of a sample, see `Placement`."""

PLACEMENT_SPECS: dict[PlacementOutput, SampleSpec] = {
    "window": SampleSpec(name="placed_window", dtype="float32", shape=(4,), unit="pixel"),
    "flip": SampleSpec(name="placed_flip", dtype="int32", shape=(2,)),
    "matrix": SampleSpec(name="placed_matrix", dtype="float64", shape=(2, 3), unit="pixel"),
}
"""Arrays of these outputs in a sample. Some Readers have another array named ``matrix``."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Position of a sample's output in the image of its file.

    The attributes in `PlacementOutput` can be outputs of a pipeline.
    """

    image: tuple[int, int]
    """(height, width) of the image of the file, in pixels."""
    shape: tuple[int, int]
    """(height, width) of the output, in pixels."""
    window: NDArray[np.float32]
    """y, x, height and width of the part of the image in the output, in pixels. y and x count from
    the outer edge of the first pixel. For a rotated or zoomed window this is the part before the
    turn about its centre."""
    flip: NDArray[np.int32]
    """Whether the output is flipped left-right, and up-down: 1 or 0 each."""
    matrix: NDArray[np.float64]
    """Matrix, shape (2, 3), from pixels (x, y) of the output to pixels of the image. Both count
    from the centre of the first pixel, as in NumPy and astropy's WCS (``origin=0``)."""

    @classmethod
    def of(
        cls,
        window: Window | None,
        image: tuple[int, int],
        resize: tuple[int, int] | None,
        flip: tuple[bool, bool],
    ) -> Placement:
        """Return the placement of a window after its resize and flips.

        Parameters
        ----------
        window : Window, optional
            Window; None for the whole image.
        image : tuple of int
            (height, width) of the image.
        resize : tuple of int, optional
            (height, width) of the output; None for the size of the window.
        flip : tuple of bool
            Whether the output is flipped left-right and up-down, after the resize.

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
    """Raise ValueError if `names` is not empty and the Reader's Samples lack `image_size`."""
    known = getattr(reader, "regions", False) or getattr(reader, "turns", False)
    if (wanted := ", ".join(names)) and not known:
        raise ValueError(
            f"{what} {wanted} need a Reader with regions = True or turns = True, but "
            f"{type(reader).__name__} has neither"
        )
