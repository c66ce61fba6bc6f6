"""Flags for what is done to each image: geometry and augmentation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dali_pipelines.cli.options import option

if TYPE_CHECKING:
    from readers.targets.contract import Target


@dataclass(frozen=True, kw_only=True)
class ImageFlags:
    """The part of an image that is shown, how it is changed, and by what chance."""

    mode: str = option(
        "train", "eval: all chance off, each epoch from the first row", choices=("train", "eval")
    )
    seed: int = option(0, "order, windows and flips follow from it")
    crop: tuple[int, ...] | None = option(
        None, "window to cut, height and width or one number", type=int, nargs="+", metavar="PIXELS"
    )
    window: str = option("center", "where the window is", choices=("center", "random", "row"))
    outside: str = option(
        "reject",
        "windows that are not wholly inside the image; shift is for rows",
        choices=("reject", "fill", "shift"),
    )
    missing: float | None = option(
        None, "value of filled pixels, before mean and std (default: NaN)", type=float
    )
    flip: str = option("", "flip at random: h, v or hv", choices=("", "h", "v", "hv"))
    rotate: float = option(0.0, "turn the window at random, by so many degrees at most either way")
    zoom: tuple[float, ...] = option(
        (1.0, 1.0), "enlarge it at random", type=float, nargs=2, metavar=("LEAST", "MOST")
    )
    random_area: tuple[float, ...] | None = option(
        None,
        "fits, jpeg: in place of a crop, a region of a random share of the image, such as 0.08 1, "
        "to be resized",
        type=float,
        nargs=2,
        metavar=("LEAST", "MOST"),
    )
    random_aspect_ratio: tuple[float, ...] | None = option(
        None,
        "width by height of such a region (default: 3/4 to 4/3)",
        type=float,
        nargs=2,
        metavar=("LEAST", "MOST"),
    )
    resize_shorter: int | None = option(
        None,
        "fits, jpeg: resize the shorter side to this before the crop",
        type=int,
        metavar="PIXELS",
    )
    resize: tuple[int, ...] | None = option(
        None,
        "size after the crop or region, height and width or one",
        type=int,
        nargs="+",
        metavar="PIXELS",
    )
    ragged: str | None = option(
        None,
        "images of several sizes in a batch: as a list, or padded to the largest (default: an "
        "error)",
        choices=("list", "pad"),
    )

    def __post_init__(self) -> None:
        names = ("rotate", "zoom", "random_area", "random_aspect_ratio", "missing")
        check_finite(self, names)
        if self.missing is not None and self.outside != "fill":  # aia_pipeline has another one
            raise ValueError(f"--missing is for --outside=fill, got --outside={self.outside}")

    def image_settings(self) -> dict[str, Any]:
        """Return the keywords for the pipeline factory, but the seed."""
        pairs = {name: pair(name, getattr(self, name)) for name in ("crop", "resize")}
        ratio = self.random_aspect_ratio
        return {
            "mode": self.mode,
            **pairs,
            **({} if ratio is None else {"random_aspect_ratio": tuple(ratio)}),
            "window": self.window,
            "outside": self.outside,
            **({} if self.missing is None else {"missing": self.missing}),
            "flip": self.flip,
            "rotate": self.rotate,
            "zoom": tuple(self.zoom),
            "random_area": self.random_area and tuple(self.random_area),
            "resize_shorter": self.resize_shorter,
            "ragged": self.ragged,
        }


@dataclass(frozen=True, kw_only=True)
class TargetFlags:
    """Masks and boxes, which follow the geometry of each image."""

    mask: str | None = option(
        None, "column of the Index with the file of each image's mask", metavar="COLUMN"
    )
    boxes: str | None = option(
        None, "column with lists of boxes, each x1, y1, x2, y2", metavar="COLUMN"
    )
    labels: str | None = option(None, "column with lists of their labels", metavar="COLUMN")

    def targets(self) -> dict[str, Target]:
        """Return the targets for the pipeline factory, by the names of their outputs.

        Raises
        ------
        ValueError
            If there are labels without boxes.
        """
        from readers import Boxes, Mask

        if self.labels is not None and self.boxes is None:
            raise ValueError("--labels are those of --boxes: give both")
        found: dict[str, Target] = {}
        if self.mask is not None:
            found["mask"] = Mask(self.mask)
        if self.boxes is not None:
            found["boxes"] = Boxes(self.boxes, labels=self.labels)
        return found


def check_finite(flags: object, names: Iterable[str]) -> None:
    """Raise ValueError if one of these flags holds a number that is not finite."""
    for name in names:
        value = getattr(flags, name)
        numbers = value if isinstance(value, list | tuple) else (value or 0.0,)
        if not all(map(math.isfinite, numbers)):
            raise ValueError(f"--{name} must be finite, got {value}")


def pair(name: str, value: Sequence[int] | None) -> tuple[int, int] | None:
    """Return (height, width) of a flag that takes one number or two; or raise ValueError."""
    if value is None:
        return None
    if isinstance(value, int):
        value = (value,)
    if len(value) not in (1, 2):
        raise ValueError(f"--{name} takes one number or two (height width), got {len(value)}")
    return value[0], value[-1]
