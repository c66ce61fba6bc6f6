"""What astropy makes of a FITS image, for scripts/verify.py: pixels, facts and complaints."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from _refusal import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from _placed import Place
    from numpy.typing import NDArray


@dataclass(slots=True)
class Truth:
    """One image; what its decoder could not tell is None."""

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


def by_astropy(path: str, hdu: int | None, place: Place | None) -> Truth:
    """Decode an image, or a window of it, by astropy alone.

    Parameters
    ----------
    path : str
        The file.
    hdu : int, optional
        HDU that holds the image; by default the first one that does.
    place : Place, optional
        The whole image if None.
    """
    truth = Truth(hdu)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            _decode(truth, path, place)
        except Exception as error:  # astropy raises many types on hostile input
            truth.values = None
            truth.complaint = one_line(f"{type(error).__name__}: {error}")
            return truth
    complaints = (one_line(warning.message) for warning in caught)
    truth.complaint = next((text for text in complaints if "truncated" in text), "")
    return truth


def _decode(truth: Truth, path: str, place: Place | None) -> None:
    import numpy as np
    from astropy.io import fits

    # astropy leaves a file open that it cannot read, if it opened it.
    with open(path, "rb") as file, fits.open(file, memmap=False) as hdus:
        if truth.hdu is None:
            images = (n for n, hdu in enumerate(hdus) if hdu.is_image and hdu.shape)
            truth.hdu = next(images, None)
        if truth.hdu is None:
            raise ValueError("no HDU holds an image")
        hdu = hdus[truth.hdu]
        if not (hdu.is_image and hdu.shape):
            raise ValueError(f"HDU {truth.hdu} holds no image")
        truth.codec = str(getattr(hdu, "compression_type", "plain"))
        _check_memory(hdu.shape)
        values = hdu.data if place is None else _section(hdu, place)
        truth.shape, truth.dtype = values.shape, values.dtype.name
        truth.values = np.asarray(values).astype(np.float32)


def _section(hdu: Any, place: Place) -> NDArray[Any]:
    place.check(*hdu.shape[-2:])
    y, x, height, width = place
    planes = (0,) * (len(hdu.shape) - 2)
    return hdu.section[(*planes, slice(y, y + height), slice(x, x + width))]


def _check_memory(shape: Sequence[int]) -> None:
    """Refuse a header that asks for more than there is: the system would kill this process."""
    import psutil

    nbytes = 16 * math.prod(shape)  # stored and scaled, in 64 bits each
    if nbytes > psutil.virtual_memory().available:
        raise MemoryError(f"an image of shape {tuple(shape)} does not fit into memory")
