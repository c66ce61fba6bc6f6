"""Pictures of recordings: waveforms, and features as images of bands over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dali_pipelines.cli.show.pictures import KEYS, Sketch, describe
from dali_pipelines.cli.show.sheet import Picture

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import torch
    from numpy.typing import NDArray

    from readers.contract import Row

_PAPER, _AXIS, _INK = 237, 200, (31, 119, 180)
"""Colours of a waveform."""


def pictured(
    file: Row, batch: Mapping[str, torch.Tensor], size: int, lines: Sequence[str] = ()
) -> Picture | Sketch:
    """Return a picture of the first recording of a batch, or a sketch of one of its features.

    Channels are below each other. `lines` end the caption.
    """
    import torch

    length = int(batch["length"][0])
    begins = f"from {float(batch['start'][0]):.6g} s: "
    if "audio" in batch:
        samples = batch["audio"][0]
        extent = f"{_channels(len(samples))}{length} samples"
        caption = file.name, begins + extent, describe(samples[:, None])[1], *lines
        return Picture(caption, _waveform(samples.numpy(), size))
    features = batch["features"][0, ..., :length]
    extent = f"{_channels(len(features))}{features.shape[1]} bands, {length} frames"
    # The first row of a sketch is at the bottom, as the lowest band is.
    image = features.flip(0).reshape(1, -1, length)
    shown = torch.nn.functional.interpolate(image[None], size=(size, size), mode="area")[0]
    caption = file.name, begins + extent, describe(image)[1], *lines
    return Sketch(caption, dict.fromkeys(KEYS), shown, colours="viridis")


def _channels(count: int) -> str:
    return f"{count} channels, " if count > 1 else ""


def _waveform(samples: NDArray[np.float32], size: int) -> NDArray[np.uint8]:
    """Draw the least and the largest sample of each column, shape (rows, columns, 3)."""
    import numpy as np

    channels, count = samples.shape
    columns, rows = min(size, count), max(3, size // channels)
    starts = np.arange(columns) * count // columns
    low, high = (
        bound.reduceat(samples, starts, axis=1)[:, np.newaxis] for bound in (np.minimum, np.maximum)
    )
    loudest = max(float(np.abs(samples).max()), 1e-9)
    # From the upper edge, where the loudest sample is, to the lower one, in the middle of rows.
    levels = loudest * (1 - (2 * np.arange(rows)[:, np.newaxis] + 1) / rows)
    half = loudest / rows
    is_inked = (low <= levels + half) & (high >= levels - half)
    pixels = np.full((channels, rows, columns, 3), _PAPER, np.uint8)
    pixels[:, rows // 2] = _AXIS
    pixels[is_inked] = _INK
    return pixels.reshape(channels * rows, columns, 3)
