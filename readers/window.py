"""Windows whose position is a fraction until the image size is known, and the pixels they need."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

HALO = {1: 1, 3: 14}
"""Pixels to read around the sampled positions and their neighbours, by order of the spline. Order 1
needs one, in case the graph rounds a position the other way. Order 3 needs one for the spline and
13 for its prefilter, whose influence falls by 0.268 per pixel: all pixels beyond 13 add 4e-8."""


class Box(NamedTuple):
    """Rectangular part of an image in pixels, rows first."""

    y: int
    x: int
    height: int
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Crop of fixed size at a relative position.

    The position is a fraction of the free rows and columns, so that it can be drawn without opening
    the file.
    """

    height: int
    """Rows, in pixels."""
    width: int
    """Columns, in pixels."""
    y: float | None = None
    """Fraction in [0, 1) of the free rows above the window; None for the centre."""
    x: float | None = None
    """Fraction in [0, 1) of the free columns left of the window; None for the centre."""
    angle: float = 0.0
    """Degrees by which the content is rotated about the window's centre, counterclockwise with rows
    counted upwards. If it is not 0, the graph resamples the window."""
    step: tuple[int, int] = (1, 1)
    """Rows and columns at whose multiples the window may begin, besides the last position."""
    zoom: float = 1.0
    """Factor above 0 by which the content is enlarged about the window's centre. If it is not 1,
    the graph resamples the window."""

    @classmethod
    def at(cls, y: int, x: int, height: int, width: int, *, image: tuple[int, int]) -> Window:
        """Return the window whose top-left pixel is (y, x) in an image of (height, width)."""
        # The middle of the fractions that `place` converts to this offset.
        return cls(
            height=height,
            width=width,
            y=(y + 0.5) / (image[0] - height + 1),
            x=(x + 0.5) / (image[1] - width + 1),
        )

    def part(self, height: int, width: int) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return the unturned window's start and end along rows and columns of such an image.

        They count pixels from the outer edge of the first one. ValueError as in `place`.
        """
        y, x = self.start(height, width)
        return (y, y + self.height), (x, x + self.width)

    def start(self, height: int, width: int) -> tuple[float, float]:
        """Return the unturned window's first row and column in an image of this size.

        They count from the centre of the first pixel. ValueError as in `place`.
        """
        return replace(self, angle=0.0, zoom=1.0).place(height, width)

    def within(self, height: int, width: int) -> Window:
        """Return the pixels to read from an image of this size, as a window that `place` accepts.

        It is the window itself or, if that is rotated or zoomed, all pixels that it needs.
        ValueError as in `place`.
        """
        if self.angle == 0 and self.zoom == 1:
            return self
        matrix, image = self.matrix(height, width), (height, width)
        return Window.at(*needed_box(matrix, (self.height, self.width), image, 1), image=image)

    def matrix(self, height: int, width: int) -> NDArray[np.float64]:
        """Return the matrix from pixels (x, y) of the window to those of an image of this size.

        Its shape is (2, 3); pixels are counted from the centre of the first one. ValueError if the
        window is neither rotated nor zoomed, and larger than the image.
        """
        y, x = self.start(height, width)
        middle = np.array([(self.width - 1) / 2, (self.height - 1) / 2])
        turn = self.turn()
        return np.column_stack((turn, middle + np.array([x, y]) - turn @ middle))

    def turn(self) -> NDArray[np.float64]:
        """Return the matrix, shape (2, 2), of the rotation and zoom about the centre.

        It maps (x, y) in the output to (x, y) in the image.
        """
        angle = np.deg2rad(self.angle)
        cos, sin = np.cos(angle), np.sin(angle)
        return np.array([[cos, sin], [-sin, cos]]) / self.zoom

    def place(self, height: int, width: int) -> tuple[int, int]:
        """Return the top-left pixel of the window in an image of this size.

        Parameters
        ----------
        height, width : int
            Size of the image in pixels.

        Returns
        -------
        tuple of int
            (y, x), row first, counted from 0. If a centred window leaves an odd number of pixels,
            it is nearer to the origin.

        Raises
        ------
        ValueError
            If the window is larger than the image or begins outside it, or if it is rotated or
            zoomed, as its pixels are then not pixels of the image.
        """
        if self.angle != 0 or self.zoom != 1:
            raise ValueError(
                f"a window rotated by {self.angle:g} degrees and zoomed by {self.zoom:g} cannot be "
                "cut out: read the pixels of within(height, width), and let the graph resample"
            )
        if self.height > height or self.width > width:
            msg = (
                f"crop {self.height}x{self.width} is larger than the image {height}x{width} "
                "(height x width): use a smaller crop, set outside='fill', or leave such images "
                "out of the Index"
            )
            raise ValueError(msg)
        y, x = self.step
        return offset(height - self.height, self.y, y), offset(width - self.width, self.x, x)


def offset(free: int, fraction: float | None, step: int = 1) -> int:
    """Return the position of a window that leaves `free` pixels; None for the centre.

    It is a multiple of `step`, or the last position. ValueError if the fraction is not in [0, 1).
    """
    if fraction is None:
        return free // 2
    if not 0 <= fraction < 1:
        raise ValueError(f"y and x of a window must be fractions in [0, 1), got {fraction}")
    return min(free, step * int(fraction * (-(-free // step) + 1)))


def needed_box(
    matrix: NDArray[np.float64], output: tuple[int, int], image: tuple[int, int], order: int
) -> Box:
    """Return the smallest box with all input pixels that the output depends on.

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
