"""Pictures of images for a contact sheet: colours according to the header, and captions."""

from __future__ import annotations

import re
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from dali_pipelines.cli.errors import one_line
from dali_pipelines.cli.show.sheet import Outline, Picture
from readers.index.classes import LABELS
from readers.messages import install

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import torch
    from astropy.visualization import ImageNormalize
    from numpy.typing import NDArray

    from readers.contract import Row
    from readers.fits.headers import Value

KEYS = ("TELESCOP", "INSTRUME", "WAVELNTH", "CONTENT", "T_OBS", "DATE-OBS")
"""Header keys that determine colours and captions."""

COLOURS = tuple(f"C{number}" for number in range(10))
"""Colours of classes and labels, by Matplotlib's names."""

MISSING = "missing: the sample has no such file"
"""Remark in the cell of a part without a file."""
LEFT_OUT = "left out: another file of the sample is rejected"
"""Remark in the cell of a file that is not at fault."""

BLANK = Picture(("",), None)
"""Empty cell beside one with a remark."""

Display = Literal["asinh", "linear", "log", "sqrt", "zscale"]
"""Mappings of values to colours, named as in astropy.visualization: a stretch between the 1st and
the 99.9th percentile, or a linear one over the interval of zscale."""
_STRETCHES = {
    "asinh": "AsinhStretch",
    "linear": "LinearStretch",
    "log": "LogStretch",
    "sqrt": "SqrtStretch",
    "zscale": "LinearStretch",
}
_DEEP = 1020
"""Photographs with larger values have 16 bits; brightened ones of 8 bits may exceed 255."""


class Sketch(NamedTuple):
    """An image in the size of its cell, without colours yet."""

    caption: tuple[str, ...]
    facts: Mapping[str, Value]
    """Values of `KEYS` from the header."""
    image: torch.Tensor
    """Shape (channels, height, width), first row at the bottom if there is one channel."""
    mask: NDArray[Any] | None = None
    """Mask of classes, shape (height, width), first row on top."""
    outlines: Sequence[Outline] = ()
    colours: str = "gray"
    """Matplotlib's name of the colours of one channel, unless it is one of AIA."""
    variable: str = ""
    """Name of the variable, if it is one of several."""


class Overlay(NamedTuple):
    """Mask and boxes to draw over an image."""

    mask: torch.Tensor | None = None
    """Classes, shape (height, width); 0 is not drawn."""
    boxes: Sequence[Sequence[float]] = ()
    """Boxes, each x1, y1, x2, y2 in pixels."""
    labels: Sequence[int | None] = ()
    """Labels of the boxes, None for a box without one."""
    classes: Sequence[str] = ()
    """Names of the labels."""

    @classmethod
    def of(
        cls,
        batch: Mapping[str, torch.Tensor],
        labels: str | None,
        classes: Sequence[str],
        frame: int = 0,
    ) -> Overlay:
        """Return the targets of the first sample of a batch, and of a frame of a clip.

        `labels` is the column of its labels, `classes` are the names of the classes of the Index.
        """

        def first(name: str, ndim: int) -> torch.Tensor:
            found = batch[name][0]
            return found[frame] if found.ndim > ndim else found

        mask = first("mask", 2) if "mask" in batch else None
        if "boxes" not in batch:
            return cls(mask)
        count = int(first("num_boxes", 0))
        found = first(labels, 1)[:count].tolist() if labels else [None] * count
        boxes = first("boxes", 2)[:count].tolist()
        return cls(mask, boxes, found, classes if labels in LABELS else ())


def sketched(
    file: Row,
    image: torch.Tensor,
    size: int,
    targets: Overlay,
    lines: Sequence[str] = (),
    *,
    has_header: bool = True,
    variable: str = "",
    first_on_top: bool = False,
) -> Sketch:
    """Make the Sketch of an image of a file, shape (channels, height, width).

    RGB has its first row on top, one channel at the bottom, unless it is `first_on_top`. An image
    larger than `size` pixels shrinks to that size. The Sketch shares no memory with the image. Its
    caption ends with `lines`. `has_header` is whether the file may have a header that describes the
    subject, `variable` the name of a variable.
    """
    from readers.header_scan import file_facts

    facts: Mapping[str, Value] = dict.fromkeys(KEYS)
    if has_header:
        (facts,) = file_facts(file.place, KEYS, file.hdu)
    caption = (
        file.name,
        subject(facts),
        *describe(image),
        *lines,
    )
    small = reduced(image, size).clone()
    is_rgb = len(image) == 3  # as in `coloured`
    upwards = not is_rgb and not first_on_top
    if first_on_top and not is_rgb:
        small = small.flip(1)
    mask = None if targets.mask is None else _reduced_mask(targets.mask, small.shape[1:], upwards)
    outlines = _outlines(targets, image.shape[1:], small.shape[1:], upwards)
    return Sketch(tuple(filter(None, caption)), facts, small, mask, outlines, variable=variable)


def drawn(
    cells: Iterable[Picture | Sketch], display: Display | None, *, same_range: bool = False
) -> list[Picture]:
    """Return the pictures of cells, with colours for all sketches.

    With `same_range` images of one channel of AIA, one quantity of HMI or one variable share a
    range of values, and so do all other images. `coloured` describes `display`.
    """
    cells = list(cells)
    groups: dict[object, list[Sketch]] = {}
    for cell in cells:
        if same_range and isinstance(cell, Sketch):
            groups.setdefault(_kind(cell), []).append(cell)
    norms = {
        kind: norm_of([each.image for each in group], group[0].facts, display)
        for kind, group in groups.items()
    }
    pictures = []
    for cell in cells:
        if isinstance(cell, Sketch):
            norm = norms.get(_kind(cell))
            pixels = coloured(cell.image, cell.facts, display, norm, cell.colours)
            if cell.mask is not None:
                pixels = _masked(pixels, cell.mask)
            cell = Picture(cell.caption, pixels, outlines=cell.outlines)
        pictures.append(cell)
    return pictures


def _kind(sketch: Sketch) -> object:
    """Return a key that is equal for images with comparable values."""
    content = sketch.facts["CONTENT"] if _is_hmi(sketch.facts) else None
    return _aia_channel(sketch.facts), content, sketch.variable, len(sketch.image)


def _reduced_mask(mask: torch.Tensor, shape: Sequence[int], upwards: bool) -> NDArray[Any]:
    """Return the class in the middle of each pixel of a picture."""
    import numpy as np

    rows, columns = (
        (np.arange(cells) * 2 + 1) * pixels_of // (2 * cells)
        for cells, pixels_of in zip(shape, mask.shape, strict=True)
    )
    return np.nan_to_num(mask.numpy()[:: -1 if upwards else 1][rows][:, columns])


def _masked(pixels: NDArray[Any], classes: NDArray[Any]) -> NDArray[Any]:
    """Lay the classes of a mask over a picture, each in its own colour."""
    import numpy as np
    from matplotlib.colors import to_rgb

    colours = np.array([to_rgb(color) for color in COLOURS]) * 255
    over = (pixels + colours[classes.astype(np.int64) % len(COLOURS)]) / 2
    return np.where((classes != 0)[..., None], over, pixels).astype(np.uint8)


def _outlines(
    targets: Overlay, image: Sequence[int], picture: Sequence[int], upwards: bool
) -> list[Outline]:
    """Return the boxes in pixels of a picture; the picture may be smaller than the image."""
    down, across = picture[0] / image[0], picture[1] / image[1]
    outlines = []
    for (x1, y1, x2, y2), label in zip(targets.boxes, targets.labels, strict=True):
        top = image[0] - y2 if upwards else y1
        is_named = label is not None and 0 <= label < len(targets.classes)
        text = "" if label is None else targets.classes[label] if is_named else str(label)
        color = COLOURS[(label or 0) % len(COLOURS)]
        place = x1 * across, top * down, (x2 - x1) * across, (y2 - y1) * down
        outlines.append(Outline(*place, text, color))
    return outlines


def missing_picture(part: str) -> Picture:
    """Return the cell of a part that has no file."""
    return Picture((f"part {part}", "-"), None, MISSING)


def left_out_picture(file: Row) -> Picture:
    """Return the cell of a file if another file of its sample is rejected."""
    return Picture((file.name, "left out"), None, LEFT_OUT)


def rejected_picture(file: Row, reason: str) -> Picture:
    """Make the cell of a file that could not be read."""
    return Picture((file.name, "rejected"), None, one_line(reason))


def describe(image: torch.Tensor) -> tuple[str, str]:
    """Return lines about an image, shape (channels, height, width): its size, and its range."""
    values = image[~image.isnan()]
    empty = image.numel() - len(values)
    return (
        "x".join(map(str, image.shape[1:])) + (f", {empty} NaN" if empty else ""),
        f"{values.min():.5g} to {values.max():.5g}" if len(values) else "no values",
    )


def subject(facts: Mapping[str, Value]) -> str:
    """Describe the subject of an image, and its time to the second, as far as they are known.

    ``AIA 171 2015-01-01T00:00:25Z``, or ``HMI magnetogram`` and a time.
    """
    channel = _aia_channel(facts)
    name = f"AIA {channel}" if channel is not None else ""
    if _is_hmi(facts):
        name = f"HMI {str(facts['CONTENT'] or '').lower()}"
    time = re.sub(r"(:\d\d)\.\d+", r"\1", str(facts["T_OBS"] or facts["DATE-OBS"] or ""))
    return " ".join(filter(None, (name, time)))


def reduced(image: torch.Tensor, size: int) -> torch.Tensor:
    """Shrink to the size of a cell; each pixel is the mean of the area that it covers."""
    from torch.nn.functional import interpolate

    height, width = image.shape[1:]
    largest = max(height, width)
    if largest <= size:
        return image
    shape = max(1, height * size // largest), max(1, width * size // largest)
    return interpolate(image[None], size=shape, mode="area")[0]


def coloured(
    image: torch.Tensor,
    facts: Mapping[str, Value],
    display: Display | None = None,
    norm: ImageNormalize | None = None,
    colours: str = "gray",
) -> NDArray[Any]:
    """Return RGB, first row on top, of an image of shape (channels, height, width).

    An image of one channel has these `colours`, or SunPy's if it is a channel of AIA. With
    `display` None, values are linear, and RGB is 0 to 255, or to 65535. `norm` maps values to the
    range 0 to 1; by default it is `norm_of` the image.
    """
    import matplotlib
    import numpy as np

    values = image.numpy()
    is_rgb = len(values) == 3
    if is_rgb and display is None:
        values = values / 257 if values.max() > _DEEP else values
        return values.transpose(1, 2, 0).clip(0, 255).astype(np.uint8)
    norm = norm or norm_of([image], facts, display)
    if is_rgb:
        return np.rint(norm(values).transpose(1, 2, 0).clip(0, 1) * 255).astype(np.uint8)
    channel = _aia_channel(facts)
    has_colours = channel is not None and _has_sunpy_colours()
    name = f"sdoaia{channel}" if has_colours else colours
    palette = matplotlib.colormaps[name if name in matplotlib.colormaps else colours]
    plane = norm(np.ma.masked_invalid(values[0, ::-1]))
    return palette.with_extremes(bad="0.5")(plane, bytes=True)[..., :3]


def norm_of(
    images: Sequence[torch.Tensor], facts: Mapping[str, Value], display: Display | None
) -> ImageNormalize:
    """Return the mapping of the values of some images to colours.

    The curve of asinh turns from linear to logarithmic at half the distance from the 16th to the
    84th percentile: the noise, if most pixels show the sky. Values of HMI with a sign, as in
    magnetograms, are linear, with equal limits on both sides of 0.
    """
    import numpy as np
    from astropy import visualization

    finite = np.concatenate([image[image.isfinite()].numpy() for image in images])
    if not finite.size:
        return visualization.ImageNormalize(vmin=0, vmax=1)
    if _is_hmi(facts) and finite.min() < 0:
        high = float(np.percentile(np.abs(finite), 99.9))
        return visualization.ImageNormalize(vmin=-high, vmax=high)
    interval = visualization.AsymmetricPercentileInterval(1, 99.9)
    if display == "zscale":
        interval = visualization.ZScaleInterval()
    low, high = map(float, interval.get_limits(finite))
    settings = {}
    if display == "asinh" and low < high:
        below, above = np.percentile(finite, (16, 84))
        settings["a"] = float(np.clip((above - below) / 2 / (high - low), 1e-4, 1))
    stretch = getattr(visualization, _STRETCHES[display or "linear"])(**settings)
    return visualization.ImageNormalize(vmin=low, vmax=high, stretch=stretch)


@cache
def _has_sunpy_colours() -> bool:
    """Return whether SunPy could register its colour tables with Matplotlib; print why not."""
    try:
        import sunpy.visualization.colormaps  # noqa: F401
    except ModuleNotFoundError as error:
        reason = f"SunPy has their colours ({error}): {install('aia')}"
    except (ImportError, OSError, RuntimeError) as error:  # it cannot make a folder
        reason = f"SunPy has their colours, but cannot be imported: {one_line(error)}"
    else:
        return True
    print(f"Frames of AIA are gray. {reason}", file=sys.stderr)
    return False


def _aia_channel(facts: Mapping[str, Value]) -> int | None:
    """Return the wavelength of an AIA image in angstrom."""
    wavelength = facts["WAVELNTH"]
    is_aia = facts["TELESCOP"] == "SDO/AIA" and isinstance(wavelength, int | float)
    return int(wavelength) if is_aia else None  # type: ignore[arg-type]


def _is_hmi(facts: Mapping[str, Value]) -> bool:
    return str(facts["INSTRUME"]).startswith("HMI")
