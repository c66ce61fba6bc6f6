"""Position of a crop: chosen as a fraction, converted to pixels when the image size is known."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A crop of fixed size at a relative position.

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
    counted upwards. Only for Readers whose graph resamples."""
    zoom: float = 1.0
    """Factor above 0 by which the content is enlarged about the window's centre. Likewise."""

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
            If the window is larger than the image; or rotated or zoomed, since its pixels are then
            not pixels of the image.
        """
        if self.angle != 0 or self.zoom != 1:
            raise ValueError(
                f"a window rotated by {self.angle:g} degrees and zoomed by {self.zoom:g} cannot be "
                "cut out: use a Reader whose graph resamples, such as AiaReader"
            )
        if self.height > height or self.width > width:
            msg = (
                f"crop {self.height}x{self.width} is larger than the image {height}x{width} "
                "(height x width): use a smaller crop, or leave such images out of the Index"
            )
            raise ValueError(msg)
        return _offset(height - self.height, self.y), _offset(width - self.width, self.x)


def _offset(free: int, fraction: float | None) -> int:
    return free // 2 if fraction is None else int(fraction * (free + 1))
