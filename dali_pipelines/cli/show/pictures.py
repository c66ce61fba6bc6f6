"""Pictures of images for a contact sheet: colours by what the header says, and captions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from dali_pipelines.cli.errors import one_line
from dali_pipelines.cli.show.sheet import Outline, Picture

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch
    from numpy.typing import NDArray

    from readers.contract import Row
    from readers.fits.headers import Value

KEYS = ("TELESCOP", "INSTRUME", "WAVELNTH", "CONTENT", "T_OBS", "DATE-OBS")
"""Header keys that a picture is coloured and described by."""

COLOURS = tuple(f"C{number}" for number in range(10))
"""Of classes and labels, by Matplotlib's names."""

MISSING = "missing: the sample has no such file"
"""Remark in a cell of a part without file."""
LEFT_OUT = "left out: another file of the sample is rejected"
"""Remark in a cell of a file that is not at fault."""

_DEEP = 1020
"""Photographs with larger values have 16 bits: those of 8 exceed 255 when they are brightened."""

_SIGNED = ("MAGNETOGRAM", "DOPPLERGRAM")
"""CONTENT of HMI whose values have a sign: 0 is in the middle of their colours."""


class Targets(NamedTuple):
    """Mask and boxes to draw over an image."""

    mask: torch.Tensor | None = None
    """Classes, shape (height, width); 0 is not drawn."""
    boxes: Sequence[Sequence[float]] = ()
    """Each x1, y1, x2, y2 in pixels."""
    labels: Sequence[int | None] = ()
    """None for a box without a label."""

    @classmethod
    def of(cls, batch: Mapping[str, torch.Tensor], labels: str | None) -> Targets:
        """Return the targets of the first sample of a batch; `labels` names its labels."""
        mask = batch["mask"][0] if "mask" in batch else None
        if "boxes" not in batch:
            return cls(mask)
        count = int(batch["num_boxes"][0])
        found = batch[labels][0, :count].tolist() if labels else [None] * count
        return cls(mask, batch["boxes"][0, :count].tolist(), found)


def image_picture(
    file: Row, image: torch.Tensor, size: int, targets: Targets, lines: Sequence[str] = ()
) -> Picture:
    """Make the picture of an image of a file, shape (channels, height, width).

    It has one channel, first row at the bottom if the file is FITS; or it is RGB from 0 to 255, or
    to 65535, first row on top. If it is larger than `size` pixels, it shrinks to that. `lines` end
    the caption.
    """
    from readers.header_scan import file_facts

    (facts,) = file_facts(file.place, KEYS, file.hdu)
    caption = (
        file.name,
        subject(facts),
        *describe(image),
        *lines,
    )
    pixels = coloured(reduced(image, size), facts)
    upwards = len(image) != 3  # as `coloured` has it
    if targets.mask is not None:
        pixels = _masked(pixels, targets.mask, upwards)
    outlines = _outlines(targets, image.shape[1:], pixels.shape[:2], upwards)
    return Picture(tuple(filter(None, caption)), pixels, outlines=outlines)


def _masked(pixels: NDArray[Any], mask: torch.Tensor, upwards: bool) -> NDArray[Any]:
    """Lay the classes of a mask over a picture, each in a colour of its own."""
    import numpy as np
    from matplotlib.colors import to_rgb

    rows, columns = (
        (np.arange(cells) * 2 + 1) * pixels_of // (2 * cells)
        for cells, pixels_of in zip(pixels.shape[:2], mask.shape, strict=True)
    )
    classes = mask.numpy()[:: -1 if upwards else 1][rows][:, columns]
    colours = np.array([to_rgb(color) for color in COLOURS]) * 255
    over = (pixels + colours[classes.astype(np.int64) % len(COLOURS)]) / 2
    return np.where((classes != 0)[..., None], over, pixels).astype(np.uint8)


def _outlines(
    targets: Targets, image: Sequence[int], picture: Sequence[int], upwards: bool
) -> list[Outline]:
    """Return the boxes in pixels of a picture, which may be smaller than the image."""
    down, across = picture[0] / image[0], picture[1] / image[1]
    outlines = []
    for (x1, y1, x2, y2), label in zip(targets.boxes, targets.labels, strict=True):
        top = image[0] - y2 if upwards else y1
        text = "" if label is None else str(label)
        color = COLOURS[(label or 0) % len(COLOURS)]
        place = x1 * across, top * down, (x2 - x1) * across, (y2 - y1) * down
        outlines.append(Outline(*place, text, color))
    return outlines


def missing_picture(part: str) -> Picture:
    """Return the cell of a part that has no file."""
    return Picture((f"part {part}", "-"), None, MISSING)


def left_out_picture(file: Row) -> Picture:
    """Return the cell of a file whose sample is rejected for another one."""
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
    """Describe the subject of an image and its time, to the second, as far as they are known.

    ``AIA 171 2015-01-01T00:00:25Z``, or ``HMI magnetogram`` and a time.
    """
    channel = _aia_channel(facts)
    name = f"AIA {channel}" if channel is not None else ""
    if _is_hmi(facts):
        name = f"HMI {str(facts['CONTENT'] or '').lower()}"
    time = re.sub(r"(:\d\d)\.\d+", r"\1", str(facts["T_OBS"] or facts["DATE-OBS"] or ""))
    return " ".join(filter(None, (name, time)))


def reduced(image: torch.Tensor, size: int) -> torch.Tensor:
    """Shrink to the size of a cell, each pixel the mean of the area that it covers."""
    from torch.nn.functional import interpolate

    height, width = image.shape[1:]
    largest = max(height, width)
    if largest <= size:
        return image
    shape = max(1, height * size // largest), max(1, width * size // largest)
    return interpolate(image[None], size=shape, mode="area")[0]


def coloured(image: torch.Tensor, facts: Mapping[str, Value]) -> NDArray[Any]:
    """Return RGB, first row on top, of an image of shape (channels, height, width).

    SunPy's colours where the channel is one of AIA, grey for all else; from the 1st to the 99.9th
    percentile, or as far from 0 on both sides for values that have a sign.
    """
    import matplotlib
    import numpy as np
    import sunpy.visualization.colormaps  # noqa: F401  registers them with Matplotlib

    values = image.numpy()
    if len(values) == 3:  # a photograph
        if values.max() > _DEEP:
            values = values / 257
        return values.transpose(1, 2, 0).clip(0, 255).astype(np.uint8)
    plane = values[0, ::-1]
    finite = plane[np.isfinite(plane)]
    if _is_hmi(facts) and facts["CONTENT"] in _SIGNED:
        high = np.percentile(np.abs(finite), 99.9) if finite.size else 1
        low = -high
    else:
        low, high = np.percentile(finite, (1, 99.9)) if finite.size else (0, 1)
    scaled = np.ma.masked_invalid((plane - low) / max(high - low, 1e-30))
    name = f"sdoaia{_aia_channel(facts)}"
    colours = matplotlib.colormaps[name if name in matplotlib.colormaps else "gray"]
    return colours.with_extremes(bad="0.5")(scaled.clip(0, 1), bytes=True)[..., :3]


def _aia_channel(facts: Mapping[str, Value]) -> int | None:
    """Return the wavelength of an AIA image in angstrom."""
    wavelength = facts["WAVELNTH"]
    is_aia = facts["TELESCOP"] == "SDO/AIA" and isinstance(wavelength, int | float)
    return int(wavelength) if is_aia else None  # type: ignore[arg-type]


def _is_hmi(facts: Mapping[str, Value]) -> bool:
    return str(facts["INSTRUME"]).startswith("HMI")
