"""Which part of an image a sample shows, drawn for each row, and what the graph needs of that."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from numpy.typing import NDArray

from readers.contract import Reader, SampleSpec
from readers.sampling.draws import Draws, Pairs
from readers.sampling.graph_arrays import GRAPH_SPECS, graph_arrays
from readers.sampling.placement import (
    PLACEMENT_SPECS,
    Placement,
    PlacementOutput,
    check_size_known,
)
from readers.sampling.region import RandomRegion, ScaledWindow, check_ranges
from readers.sampling.row_window import Outside, RowWindow
from readers.values import check_number
from readers.window import Window

Flip = Literal["", "h", "v", "hv"]
"""Random flips: none, horizontal, vertical, or both independently."""

WindowMode = Literal["center", "random", "row"]
"""Places of windows: in the middle, anywhere, or where columns ``y`` and ``x`` of the Index give
their first row and column."""

ASPECT_RATIOS = (3 / 4, 4 / 3)
"""Default range of `Geometry.random_aspect_ratio`, that of torchvision and DALI."""

_BARELY = 1e-3
"""Degrees: a window that is turned by this needs the neighbours of its pixels, and nothing more."""

_ZOOMS = 1e-3, 1e3
"""Least and most `Geometry.zoom`."""


@dataclass(kw_only=True)
class Geometry:
    """Window, region, flips and turns of a sample.

    Raises
    ------
    ValueError
        If values make no sense, alone or together.
    """

    crop: tuple[int, int] | None = None
    """(height, width) of the window to cut, in pixels; None for the whole image."""
    window: WindowMode = "center"
    """Position of the window in the image."""
    outside: Outside = "reject"
    """Treatment of windows that are not wholly inside the image."""
    flip: Flip = ""
    """Axes that are flipped, each with probability 1/2."""
    rotate: float = 0.0
    """Windows are rotated by a random angle from -rotate to rotate degrees."""
    zoom: tuple[float, float] = (1.0, 1.0)
    """Windows are enlarged by a log-uniform random factor between these two."""
    random_area: tuple[float, float] | None = None
    """Regions have a random share of the image's area between these two."""
    random_aspect_ratio: tuple[float, float] = ASPECT_RATIOS
    """Their aspect ratio, width / height, is log-uniform between these two."""
    resize_shorter: int | None = None
    """The window is one of the image resized to so many pixels along its shorter side."""
    resize: tuple[int, int] | None = None
    """(height, width) in pixels to which the graph resizes the window or the region."""
    outputs: tuple[PlacementOutput, ...] = ()
    """Arrays of the `Placement` to send with each sample."""

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("window", self.window, get_args(WindowMode)),
            ("outside", self.outside, get_args(Outside)),
            ("flip", self.flip, get_args(Flip)),
        ):
            if value not in allowed:
                raise ValueError(f"{name} must be one of {allowed}, got {value!r}")
        if self.crop is not None and min(self.crop) < 1:
            raise ValueError(f"crop must be at least 1x1 (height x width), got {self.crop}")
        if self.random_area is not None:
            self._check_region(self.random_area)
        elif tuple(self.random_aspect_ratio) != ASPECT_RATIOS:
            raise ValueError("random_aspect_ratio needs random_area, such as (0.08, 1)")
        if self.window != "center" and self.crop is None:
            raise ValueError(f"window {self.window!r} needs a crop, the size of the window")
        if self.window == "row" and self.resize_shorter is not None:
            raise ValueError(
                "window 'row' is in the image itself, not in a resized one: leave out "
                "resize_shorter, and give crop and resize"
            )
        if self.window != "row" and self.outside == "shift":
            raise ValueError("outside='shift' is for window 'row': others are not moved")
        if self.outside == "fill" and (self.crop is None or self.resize_shorter is not None):
            raise ValueError(
                "outside='fill' is for windows of the image itself: give crop, and leave out "
                "random_area and resize_shorter"
            )
        if self.resize_shorter is not None:
            self._check_shorter(self.resize_shorter)
        self._check_turns()
        if isinstance(self.outputs, str) or not set(self.outputs) <= set(PLACEMENT_SPECS):
            known = ", ".join(PLACEMENT_SPECS)
            raise ValueError(f"outputs must be in a tuple, any of {known}, got {self.outputs!r}")

    def _check_region(self, area: tuple[float, float]) -> None:
        check_ranges(area, self.random_aspect_ratio)
        if self.crop is not None or self.window != "center" or self.resize_shorter is not None:
            raise ValueError(
                "random_area draws size and place of a region: leave out crop, window and "
                "resize_shorter, and give resize, the size of the output"
            )

    def _check_shorter(self, shorter: int) -> None:
        if self.crop is None:
            raise ValueError("resize_shorter needs a crop, the size of the window to cut after it")
        if min(self.crop) > shorter:
            raise ValueError(
                f"crop {self.crop[0]}x{self.crop[1]} is larger than an image whose shorter side is "
                f"resized to {shorter}: give a larger resize_shorter"
            )

    def _check_turns(self) -> None:
        check_number("rotate", self.rotate, 0, 180)
        least, most = _ZOOMS
        if not least <= self.zoom[0] <= self.zoom[1] <= most:
            raise ValueError(
                f"zoom must be (least, most), both from {least} to {most:g} (numbers overflow "
                f"beyond), got {self.zoom}"
            )
        if not self.is_turned:
            return
        if self.random_area is not None or self.resize_shorter is not None:
            raise ValueError(
                "rotate and zoom are for windows of the image itself: leave out random_area and "
                "resize_shorter, and give crop and resize"
            )
        if self.crop is None:
            raise ValueError(
                "rotate and zoom need a crop; it may have the size of the whole image, with "
                "window 'center'"
            )

    def check_reader(self, reader: Reader) -> None:
        """Raise ValueError if the Reader cannot read what the graph needs."""
        regions, name = getattr(reader, "regions", False), type(reader).__name__
        if self.is_resampled and not (regions or getattr(reader, "turns", False)):
            what = "rotate and zoom" if self.is_turned else "windows between pixels"
            raise ValueError(
                f"{what} need a Reader that reads what turned windows need; {name} has neither "
                "regions = True nor turns = True"
            )
        if (self.random_area is not None or self.resize_shorter is not None) and not regions:
            raise ValueError(
                "random_area and resize_shorter need a Reader that reads the pixels of "
                f"Window.within; {name} has no regions = True"
            )
        if self.outside == "fill" and not regions:
            raise ValueError(
                f"outside='fill' needs a Reader that reads the pixels of Window.within; {name} has "
                "no regions = True: give 'reject', or 'shift' for window 'row'"
            )
        check_size_known(reader, "outputs", self.outputs)

    @property
    def is_resampled(self) -> bool:
        """Whether pixels of windows lie between those of the image."""
        return self.is_turned

    @property
    def is_turned(self) -> bool:
        """Whether windows are rotated or zoomed."""
        return self.rotate != 0 or tuple(self.zoom) != (1, 1)

    def geometry_specs(self, reader: Reader) -> tuple[SampleSpec, ...]:
        """Return the specs of `geometry_arrays`."""
        placed = tuple(PLACEMENT_SPECS[name] for name in self.outputs)
        return (*self._graph_specs(reader), *placed)

    def _graph_specs(self, reader: Reader) -> tuple[SampleSpec, ...]:
        """Return the specs of what the graph needs."""
        turns = getattr(reader, "turns", False)
        names = ["part"] * (self.resize_shorter is not None)
        names += ["affine"] * (self.is_resampled and not turns)
        resizes = bool(names) or self.resize is not None
        names += ["inside"] * (self.outside == "fill" and not self.is_turned)
        names += ["nearest"] * (resizes and getattr(reader, "nearest", False))
        return tuple(GRAPH_SPECS[name] for name in names)

    def needs_placement(self, reader: Reader) -> bool:
        """Return whether `geometry_arrays` needs a placement."""
        return bool(self.outputs) or "nearest" in {spec.name for spec in self._graph_specs(reader)}

    def geometry_arrays(
        self,
        reader: Reader,
        window: Window | None,
        image: tuple[int, int],
        placement: Placement | None,
    ) -> dict[str, NDArray[Any]]:
        """Return what the graph needs to make the sample of what was read, and the `outputs`.

        Parameters
        ----------
        reader : Reader
            Reader of the sample.
        window : Window, optional
            The window that was read; None for the whole image, or a blank sample.
        image : tuple of int
            (height, width) of the image, as the Reader gives it; or of the blank sample.
        placement : Placement, optional
            What `placement` returns; needed if `needs_placement` says so.

        Returns
        -------
        dict
            Those of `readers.sampling.graph_arrays`, and what `PLACEMENT_SPECS` names.
        """
        found: dict[str, NDArray[Any]] = {
            PLACEMENT_SPECS[name].name: getattr(placement, name) for name in self.outputs
        }
        if names := {spec.name for spec in self._graph_specs(reader)}:
            found |= graph_arrays(names, window, image, placement)
        return found

    def placement(
        self, window: Window | None, image: tuple[int, int], flip: tuple[bool, bool]
    ) -> Placement:
        """Return where a sample is in its image; `flip` is left-right, and up-down."""
        resize = self.resize if self.resize_shorter is None else self.crop
        return Placement.of(window, image, resize, flip)

    @property
    def blank_shape(self) -> tuple[int, int] | None:
        """(height, width) of a blank sample for any image; None if that depends on the image."""
        return (1, 1) if self.random_area is not None else self.crop

    def largest_window(self) -> Window | None:
        """Return the window that needs most of a file, centred; None for the whole image."""
        window = self._of_size()
        # At 45 degrees a window needs the largest part of a file.
        angle = min(self.rotate, 45) if self.is_turned else _BARELY * self.is_resampled
        return window and replace(window, angle=angle, zoom=self.zoom[0])

    def check_size(self, height: int, width: int) -> None:
        """Raise ValueError if the window is larger than an image of this size."""
        if (window := self._of_size()) is not None:
            window.within(height, width).place(height, width)

    def _of_size(self, y: float | None = None, x: float | None = None) -> Window | None:
        if self.crop is None:
            return None
        height, width = self.crop
        if self.resize_shorter is not None:
            return ScaledWindow(height=height, width=width, y=y, x=x, shorter=self.resize_shorter)
        if self.outside == "fill":
            return RowWindow(height=height, width=width, y=y, x=x, outside="fill")
        return Window(height=height, width=width, y=y, x=x)

    def draw_window(
        self, seed: int, epoch: int, row: int, corner: tuple[float, float] | None = None
    ) -> Window | None:
        """Return the window of a row in an epoch; None for the whole image.

        `corner` is the first row and column that the Index gives, for window ``row``.
        """
        if self.random_area is not None:
            draws = Draws.of(seed, epoch, row)
            return RandomRegion(
                height=1,
                width=1,
                y=draws.y,
                x=draws.x,
                area=self.random_area,
                aspect_ratio=self.random_aspect_ratio,
                attempts=Pairs(seed, epoch, row),
            )
        window = self._placed(seed, epoch, row, corner)
        if window is None or not self.is_turned:
            return window
        draws, (least, most) = Draws.of(seed, epoch, row), self.zoom
        angle, zoom = (2 * draws.turn - 1) * self.rotate, least * (most / least) ** draws.zoom
        return replace(window, angle=angle, zoom=zoom)

    def _placed(
        self, seed: int, epoch: int, row: int, corner: tuple[float, float] | None
    ) -> Window | None:
        if self.window == "random":
            draws = Draws.of(seed, epoch, row)
            return self._of_size(draws.y, draws.x)
        if corner is None or self.crop is None:
            return self._of_size()
        (height, width), (top, left) = self.crop, corner
        return RowWindow(height=height, width=width, top=top, left=left, outside=self.outside)

    def draw_flips(self, seed: int, epoch: int, row: int) -> tuple[bool, bool]:
        """Return whether to flip a row left-right and up-down."""
        if not self.flip:
            return False, False
        draws = Draws.of(seed, epoch, row)
        return draws.horizontal and "h" in self.flip, draws.vertical and "v" in self.flip
