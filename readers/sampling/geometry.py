"""The part of an image in a sample, drawn for each row, and the arrays that the graph needs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from numpy.typing import NDArray

from readers.contract import Reader, SampleSpec
from readers.sampling.draws import Draws, RandomPairs
from readers.sampling.graph_arrays import GRAPH_SPECS, graph_arrays
from readers.sampling.placement import (
    PLACEMENT_SPECS,
    Placement,
    PlacementOutput,
    check_size_known,
)
from readers.sampling.region import RandomRegion, ScaledWindow
from readers.sampling.row_window import Outside, RowWindow
from readers.values import check_number
from readers.window import Window

Flip = Literal["", "h", "v", "hv"]
"""Random flips: none, horizontal, vertical, or both independently."""

WindowMode = Literal["center", "random", "row"]
"""Position of windows: in the middle, random, or by columns ``y`` and ``x`` of the Index (first row
and column)."""

Interpolation = Literal["bilinear", "nearest", "bicubic", "lanczos"]
"""Filter of a resize; ``nearest`` also applies to turned windows and windows between pixels."""

REACH = {"bilinear": 1, "nearest": 1, "bicubic": 2, "lanczos": 3}
"""Pixels that a filter needs on each side: of the output, or of the image if this is enlarged."""

ASPECT_RATIOS = (3 / 4, 4 / 3)
"""Default range of `Geometry.random_aspect_ratio`, as in torchvision and DALI."""

_BARELY = 1e-3
"""An angle in degrees, so small that a window only needs the direct neighbours of its pixels."""

_ZOOMS = 1e-3, 1e3
"""Smallest and largest `Geometry.zoom`."""


@dataclass(kw_only=True)
class Geometry:
    """Window, region, flips and turns of a sample.

    Raises
    ------
    ValueError
        If a value is invalid or contradicts another.
    """

    crop: tuple[int, int] | None = None
    """(height, width) of the window, in pixels; None for the whole image."""
    window: WindowMode = "center"
    """Position of the window in the image."""
    grid: tuple[int, int] | None = None
    """Random windows begin at multiples of these rows and columns; None for any position."""
    outside: Outside = "reject"
    """Treatment of windows that are not wholly inside the image."""
    flip: Flip = ""
    """Axes to flip at random, independently of each other."""
    flip_probability: float = 0.5
    """Probability of each flip."""
    rotate: float = 0.0
    """Largest rotation of a window in degrees. Angles are drawn from -rotate to rotate."""
    zoom: tuple[float, float] = (1.0, 1.0)
    """Range of the random enlargement of windows, log-uniform."""
    random_area: tuple[float, float] | None = None
    """Range of the area of random regions, as a share of the image's area."""
    random_aspect_ratio: tuple[float, float] = ASPECT_RATIOS
    """Range of the aspect ratio, width / height, of random regions, log-uniform."""
    resize_shorter: int | None = None
    """Pixels of the shorter side of the image after a resize, before the window is cut."""
    resize: tuple[int, int] | None = None
    """(height, width) in pixels to which the graph resizes the window or region."""
    interpolation: Interpolation = "bilinear"
    """Filter of the resize."""
    outputs: tuple[PlacementOutput, ...] = ()
    """Arrays of the `Placement` to send with each sample."""

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("window", self.window, get_args(WindowMode)),
            ("outside", self.outside, get_args(Outside)),
            ("flip", self.flip, get_args(Flip)),
            ("interpolation", self.interpolation, get_args(Interpolation)),
        ):
            if value not in allowed:
                raise ValueError(f"{name} must be one of {allowed}, got {value!r}")
        check_number("flip_probability", self.flip_probability, 0, 1)
        if self.crop is not None and min(self.crop) < 1:
            raise ValueError(f"crop must be at least 1x1 (height x width), got {self.crop}")
        if self.random_area is not None:
            self._check_region(self.random_area)
        elif tuple(self.random_aspect_ratio) != ASPECT_RATIOS:
            raise ValueError("random_aspect_ratio needs random_area, such as (0.08, 1)")
        if self.window != "center" and self.crop is None:
            raise ValueError(f"window {self.window!r} needs a crop, the size of the window")
        if self.grid is not None:
            self._check_grid(self.grid)
        if self.window == "row" and self.resize_shorter is not None:
            raise ValueError(
                "window 'row' needs positions in the image itself, not in a resized one: leave out "
                "resize_shorter, and set crop and resize"
            )
        if self.window != "row" and self.outside == "shift":
            raise ValueError("outside='shift' needs window 'row': other windows are not moved")
        if self.outside == "fill" and (self.crop is None or self.resize_shorter is not None):
            raise ValueError(
                "outside='fill' needs windows of the image itself: set crop, and leave out "
                "random_area and resize_shorter"
            )
        if self.resize_shorter is not None:
            self._check_shorter(self.resize_shorter)
        self._check_turns()
        if isinstance(self.outputs, str) or not set(self.outputs) <= set(PLACEMENT_SPECS):
            known = ", ".join(PLACEMENT_SPECS)
            raise ValueError(f"outputs must be a tuple with any of {known}, got {self.outputs!r}")

    def _check_grid(self, grid: tuple[int, int]) -> None:
        if self.crop is None or self.window != "random" or self.resize_shorter is not None:
            raise ValueError(
                "grid is for random windows of the image itself: set window='random' and crop, and "
                "leave out resize_shorter"
            )
        if not all(1 <= step <= size for step, size in zip(grid, self.crop, strict=True)):
            raise ValueError(
                f"grid must be from 1x1 to the crop, {self.crop[0]}x{self.crop[1]} (height x "
                f"width), got {grid}: with a larger grid some pixels would never be in a window"
            )

    def _check_region(self, area: tuple[float, float]) -> None:
        if not 0 < area[0] <= area[1] <= 1:
            raise ValueError(f"random_area must be (least, most), from above 0 to 1, got {area}")
        ratio = self.random_aspect_ratio
        if not 0 < ratio[0] <= ratio[1] < math.inf:
            raise ValueError(
                f"random_aspect_ratio must be (least, most), both above 0, got {ratio}"
            )
        if self.crop is not None or self.window != "center" or self.resize_shorter is not None:
            raise ValueError(
                "random_area draws the size and position of a region: leave out crop, window and "
                "resize_shorter, and set resize, the size of the output"
            )

    def _check_shorter(self, shorter: int) -> None:
        if self.crop is None:
            raise ValueError("resize_shorter needs a crop, the window to cut after the resize")
        if min(self.crop) > shorter:
            raise ValueError(
                f"crop {self.crop[0]}x{self.crop[1]} is larger than resize_shorter={shorter}, the "
                "shorter side of resized images: set a smaller crop or a larger resize_shorter"
            )

    def _check_turns(self) -> None:
        check_number("rotate", self.rotate, 0, 180)
        least, most = _ZOOMS
        if not least <= self.zoom[0] <= self.zoom[1] <= most:
            raise ValueError(
                f"zoom must be (least, most), both from {least} to {most:g}, got {self.zoom}"
            )
        if not self.is_turned:
            return
        if self.random_area is not None or self.resize_shorter is not None:
            raise ValueError(
                "rotate and zoom need windows of the image itself: leave out random_area and "
                "resize_shorter, and set crop and resize"
            )
        if self.crop is None:
            raise ValueError(
                "rotate and zoom need a crop: for the whole image set crop to its size, with "
                "window 'center'"
            )

    def check_reader(self, reader: Reader) -> None:
        """Raise ValueError if the Reader does not support these settings."""
        regions, name = getattr(reader, "regions", False), type(reader).__name__
        if self.is_resampled and not (regions or getattr(reader, "turns", False)):
            what = "rotate and zoom" if self.is_turned else "windows between pixels"
            raise ValueError(
                f"{what} need a Reader with regions = True or turns = True, but {name} has neither"
            )
        if (self.random_area is not None or self.resize_shorter is not None) and not regions:
            raise ValueError(
                "random_area and resize_shorter need a Reader with regions = True, but "
                f"{name} is without"
            )
        if self.outside == "fill" and not regions:
            raise ValueError(
                f"outside='fill' needs a Reader with regions = True, but {name} is without: set "
                "outside='reject', or 'shift' for window 'row'"
            )
        check_size_known(reader, "outputs", self.outputs)
        if self._takes_nearest:
            check_size_known(reader, "interpolation", ("nearest",))

    @property
    def _takes_nearest(self) -> bool:
        resizes = self.resize is not None or self.resize_shorter is not None
        return self.interpolation == "nearest" and (resizes or self.is_resampled)

    @property
    def is_resampled(self) -> bool:
        """Whether pixels of windows are at positions between pixels of the image."""
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
        """Return the specs of the arrays that the graph needs."""
        turns = getattr(reader, "turns", False)
        names = ["part"] * (self.resize_shorter is not None)
        names += ["affine"] * (self.is_resampled and not turns)
        resizes = bool(names) or self.resize is not None
        names += ["inside"] * (self.outside == "fill" and not self.is_turned)
        is_nearest = self.interpolation == "nearest" or getattr(reader, "nearest", False)
        names += ["nearest"] * (resizes and is_nearest)
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
        """Return the arrays that the graph needs to make the sample, and the `outputs`.

        Parameters
        ----------
        reader : Reader
            Reader of the sample.
        window : Window, optional
            Window that was read; None for the whole image or a blank sample.
        image : tuple of int
            `Sample.image_size` of the Reader, or (height, width) of a blank sample.
        placement : Placement, optional
            Result of `placement`; required if `needs_placement` is True.

        Returns
        -------
        dict
            Arrays of `readers.sampling.graph_arrays` and of `PLACEMENT_SPECS`.
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
        """Return the placement of a sample in its image.

        `flip` is whether the sample is flipped left-right, and up-down.
        """
        resize = self.resize if self.resize_shorter is None else self.crop
        return Placement.of(window, image, resize, flip)

    @property
    def blank_shape(self) -> tuple[int, int] | None:
        """(height, width) of blank samples; None if it depends on the image."""
        return (1, 1) if self.random_area is not None else self.crop

    def largest_window(self) -> Window | None:
        """Return the centred window that needs the most pixels; None for the whole image."""
        window = self._of_size()
        # A window needs the most pixels at 45 degrees.
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
            own: Any = {"shorter": self.resize_shorter, "reach": REACH[self.interpolation]}
            return ScaledWindow(height=height, width=width, y=y, x=x, **own)
        step = self.grid or (1, 1)
        if self.outside == "fill":
            return RowWindow(height=height, width=width, y=y, x=x, step=step, outside="fill")
        return Window(height=height, width=width, y=y, x=x, step=step)

    def draw_window(
        self, seed: int, epoch: int, row: int, corner: tuple[float, float] | None = None
    ) -> Window | None:
        """Return the window of a row in an epoch; None for the whole image.

        `corner` is the first row and column from the Index, for window ``row``.
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
                attempts=RandomPairs(seed, epoch, row),
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
        across, down = Draws.of(seed, epoch, row).flips(self.flip_probability)
        return across and "h" in self.flip, down and "v" in self.flip
