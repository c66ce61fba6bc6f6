"""The integers that FITS images mean, which may be of another type than those they store."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from readers.contract import Row, Sample
from readers.fits.image import FitsImage
from readers.fits.plain_image import plan_of_pixels
from readers.fits.reader import FitsReader, scaling_of
from readers.window import Window

_MEANT: dict[tuple[int, float], str] = {
    (8, 0): "uint8",
    (8, -128): "int8",
    (16, 0): "int16",
    (16, 1 << 15): "uint16",
    (32, 0): "int32",
    (32, 1 << 31): "int64",
    (64, 0): "int32",
}
"""By BITPIX and BZERO, where BSCALE is 1."""
STORED = {"int8": "uint8", "uint16": "int16", "int64": "int32"}
"""Types in which others are stored."""
OFFSETS = {"int8": -128, "uint16": 1 << 15, "int64": 1 << 31}
"""Differences between the values that are meant and the integers that are stored."""


def meant(found: FitsImage) -> str:
    """Return the element type of an image's values: integers as they are meant, else float32.

    Integers of 64 bits are int32; `read` rejects those that are none.
    """
    bitpix = found.keywords["BITPIX"]
    scaling = scaling_of({**found.keywords, "BITPIX": 32 if bitpix == 64 else bitpix})
    if scaling is None or bitpix < 0:
        return "float32"
    bscale, bzero, blank = scaling
    return _MEANT.get((bitpix, bzero), "float32") if bscale == 1 and blank != blank else "float32"


def read_wide(reader: FitsReader, found: FitsImage, row: Row, window: Window | None) -> Sample:
    """Read integers of 64 bits as such of 32 bits; ValueError if they do not fit."""
    size = found.shape.height, found.shape.width
    window = window and window.within(*size)
    pixels = found.pixels(window, reader.chosen(row, found.shape), scaled=False)
    narrow = pixels.astype(np.int32)
    if (narrow != pixels).any():
        raise ValueError("values of 64 bits do not fit int32: give dtype 'float32'")
    payload, plans = plan_of_pixels(narrow)
    arrays: dict[str, NDArray[Any]] = {
        "shape": np.zeros((*pixels.shape[1:], 0), np.uint8),
        "payload": payload,
        "plan": plans.reshape(-1),
        "scaling": np.tile(np.array((1, 0, math.nan)), len(pixels)),
    }
    return Sample(arrays, image_size=size)
