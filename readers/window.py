"""Windows: crops whose position is relative until the image size is known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

HALO = {1: 1, 3: 14}
"""Pixels to read around the sampled positions, by order of the spline. Order 1 needs one pixel, in
case the graph rounds a position differently. Order 3 needs one for the spline and 13 for its
prefilter: the influence of a pixel falls by a factor of 0.268 per pixel of distance, so all pixels
beyond 13 add 4e-8."""


class Box(NamedTuple):
    """Rectangular part of an image in pixels, rows first."""

    y: int
    x: int
    height: int
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Crop of fixed size at a relative position.

    The position is a fraction of the free rows and columns, that is, of those that the window does
    not cover. So it can be drawn before the file is opened.
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
    """Rotation of the content about the window's centre in degrees, counterclockwise with rows
    counted upwards. Unless it is 0, the graph resamples the window."""
    step: tuple[int, int] = (1, 1)
    """The window begins at a multiple of these rows and columns, or at the last position."""
    zoom: float = 1.0
    """Enlargement of the content about the window's centre, above 0. Unless it is 1, the graph
    resamples the window."""

    @classmethod
    def at(cls, y: int, x: int, height: int, width: int, *, image: tuple[int, int]) -> Window:
        """Return the window whose top-left pixel is (y, x) in an image of (height, width)."""
        # The middle of all fractions that `place` converts to this position.
        return cls(
            height=height,
            width=width,
            y=(y + 0.5) / (image[0] - height + 1),
            x=(x + 0.5) / (image[1] - width + 1),
        )

    def part(self, height: int, width: int) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return start and end of the unturned window along rows and columns of an image.

        Positions are in pixels from the outer edge of the first pixel. ValueError as in `place`.
        """
        y, x = self.start(height, width)
        return (y, y + self.height), (x, x + self.width)

    def start(self, height: int, width: int) -> tuple[float, float]:
        """Return the first row and column of the unturned window in an image of this size.

        Positions are in pixels from the centre of the first pixel. ValueError as in `place`.
        """
        return replace(self, angle=0.0, zoom=1.0).place(height, width)

    def within(self, height: int, width: int) -> Window:
        """Return the pixels to read from an image of this size, as a window for `place`.

        This is the window itself. If it is rotated or zoomed, it is the box of all pixels that the
        window needs. ValueError as in `place`.
        """
        if self.angle == 0 and self.zoom == 1:
            return self
        matrix, image = self.matrix(height, width), (height, width)
        return Window.at(*needed_box(matrix, (self.height, self.width), image, 1), image=image)

    def matrix(self, height: int, width: int) -> NDArray[np.float64]:
        """Return the matrix from pixels (x, y) of the window to pixels of an image of this size.

        The shape is (2, 3). Positions count from the centre of the first pixel. ValueError if the
        unturned window is larger than the image.
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
            (y, x), row first, counted from 0. A centred window that leaves an odd number of pixels
            is nearer to the origin.

        Raises
        ------
        ValueError
            If the window is larger than the image, begins outside the image, or is rotated or
            zoomed.
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
    """Return the position of a window that leaves `free` pixels; the centre without a fraction.

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
    """Return the smallest box with all pixels of the image that the output depends on.

    Parameters
    ----------
    matrix : ndarray, shape (2, 3), float64
        Matrix from pixels (x, y) of the output to pixels of the image.
    output, image : tuple of int
        (height, width) of the output and of the image, in pixels.
    order : {1, 3}
        Order of the spline.

    Returns
    -------
    Box
        Box inside the image. One pixel at its edge if the output is entirely outside.
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
