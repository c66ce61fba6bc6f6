"""A FITS image as astropy reads it: pixels, facts and complaints, for `verify`."""

from __future__ import annotations

import math
import warnings
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dali_pipelines.cli.errors import one_line
from dali_pipelines.cli.full_decode import unpacked_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from dali_pipelines.cli.verify.placed import Place
    from readers.contract import Row
    from readers.fits.headers import HduName


@dataclass(slots=True)
class Truth:
    """One image; what its decoder could not find out is None."""

    hdu: int | None = None
    codec: str | None = None
    """Tile compression (RICE_1, ...), or plain; or the format of an encoded image (JPEG, ...)."""
    shape: tuple[int, ...] | None = None
    """Of the window, or of the whole image."""
    dtype: str | None = None
    """Of the decoder's values."""
    values: NDArray[np.float32] | None = None
    """In its shape."""
    complaint: str = ""
    """Why there are no values; or that the file ends early, which astropy only warns of."""
    decoder: str = "astropy"
    """Name of who made the values."""
    tolerance: float = 0.0
    """By which others may differ from them."""


def by_astropy(row: Row, hdu: HduName | None, window: Place | None) -> Truth:
    """Decode an image, or a window of it, by astropy alone.

    By default the HDU is the first one that holds an image. Of an image of more than two axes the
    row must name the plane.
    """
    truth = Truth(hdu if isinstance(hdu, int) else None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            _decode(truth, row, hdu, window)
        except Exception as error:  # astropy raises many types on hostile input
            truth.values = None
            truth.complaint = one_line(f"{type(error).__name__}: {error}")
            return truth
    complaints = (one_line(warning.message) for warning in caught)
    truth.complaint = next((text for text in complaints if "truncated" in text), "")
    return truth


def _decode(truth: Truth, row: Row, name: HduName | None, window: Place | None) -> None:
    import numpy as np
    from astropy.io import fits

    with unpacked_file(row.place) as file, fits.open(file, memmap=False) as hdus:
        if hdus[0].header.get("SIMPLE") is False:  # astropy would go on for ever in a gzipped file
            raise ValueError("SIMPLE is F")
        if name is None:
            images = (n for n, hdu in enumerate(hdus) if hdu.is_image and hdu.shape)
            truth.hdu = next(images, None)
        else:
            truth.hdu = hdus.index_of(name)
        if truth.hdu is None:
            raise ValueError("no HDU holds an image")
        hdu = hdus[truth.hdu]
        if not (hdu.is_image and hdu.shape):
            raise ValueError(f"HDU {truth.hdu} holds no image")
        truth.codec = str(getattr(hdu, "compression_type", "plain"))
        _check_memory(hdu.shape)
        at = _plane(hdu.shape, row.plane)
        values = hdu.data[at] if window is None else _section(hdu, at, window)
        values = np.atleast_2d(values)
        truth.shape, truth.dtype = values.shape, values.dtype.name
        truth.values = np.asarray(values).astype(np.float32)
        with suppress(Exception):  # what follows may be anything; astropy warns where it is cut off
            len(hdus)


def _plane(shape: tuple[int, ...], plane: int | None) -> tuple[int, ...]:
    """Return the place of a plane along the axes before the last two."""
    import numpy as np

    axes = shape[:-2]
    if plane is None and math.prod(axes) > 1:
        raise ValueError(f"an image of shape {shape} has {math.prod(axes)} planes, none is named")
    return tuple(int(index) for index in np.unravel_index(plane or 0, axes)) if axes else ()


def _section(hdu: Any, at: tuple[int, ...], place: Place) -> NDArray[Any]:
    place.check(*(1, *hdu.shape)[-2:])
    y, x, height, width = place
    inside = (slice(y, y + height), slice(x, x + width))[-len(hdu.shape) :]
    return hdu.section[(*at, *inside)]


def _check_memory(shape: Sequence[int]) -> None:
    """Reject a header that asks for more than there is: the system would kill this process."""
    import psutil

    nbytes = 16 * math.prod(shape)  # stored and scaled, in 64 bits each
    if nbytes > psutil.virtual_memory().available:
        raise MemoryError(f"an image of shape {tuple(shape)} does not fit into memory")
