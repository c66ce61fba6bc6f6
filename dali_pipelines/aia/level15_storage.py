"""Storage of level 1.5 images: int16, keywords about pixels, compression."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from readers.contract import Row
from readers.errors import ReadError

if TYPE_CHECKING:
    from astropy.io.fits import HDUList, Header

Dtype = Literal["int16", "float32"]
Compression = Literal["rice", "none"]

BLANK = -32768
"""Value of missing pixels in int16, as in JSOC's files."""

_TILE_ROWS = 16
"""Rows of a RICE_1 tile. With one row, astropy takes a third longer to write a frame."""
_ROWS = 64
"""Rows that are rounded at a time, and stay in the cache of a core."""
_KEYWORDS = ("BLANK", "CHECKSUM", "DATASUM")
"""Keywords about the stored bytes that `Header.strip` does not remove."""


def without_storage(header: Header) -> Header:
    """Remove keywords about the storage of level 1 pixels."""
    header.strip()
    for key in _KEYWORDS:
        header.remove(key, ignore_missing=True)
    return header


class StoredPixels(NamedTuple):
    """Pixels in their stored form."""

    pixels: NDArray[Any]
    low: float
    """Lowest pixel; NaN if all pixels are missing."""
    high: float
    """Highest pixel."""
    holes: bool
    """True if some pixels are missing."""

    def set_limits(self, header: Header) -> None:
        """Update DATAMIN and DATAMAX of a header, if it has them."""
        for key, value in (("DATAMIN", self.low), ("DATAMAX", self.high)):
            if key in header and np.isfinite(value):
                header[key] = int(value) if self.pixels.dtype == np.int16 else value


def stored_pixels(row: Row, pixels: NDArray[np.float32], dtype: Dtype) -> StoredPixels:
    """Convert pixels to the stored dtype: int16 is rounded, halves away from 0, and NaN is BLANK.

    Raises
    ------
    ReadError
        If the pixels do not fit into int16.
    """
    low, high = (float(extreme.reduce(pixels, axis=None)) for extreme in (np.fmin, np.fmax))
    holes = bool(np.isnan(pixels.min()))
    if dtype == "float32":
        return StoredPixels(pixels, low, high, holes)
    if low <= BLANK + 0.5 or high >= -BLANK - 0.5:
        raise ReadError(
            row.name,
            f"its pixels range from {low:g} to {high:g}, beyond int16: store them as float32",
            row=row.number,
        )
    rounded = np.empty(pixels.shape, np.int16)
    for top in range(0, len(pixels), _ROWS):
        band = pixels[top : top + _ROWS]
        if holes:
            band = np.where(np.isnan(band), np.float32(BLANK), band)
        # The conversion truncates towards 0.
        rounded[top : top + _ROWS] = (band + np.copysign(np.float32(0.5), band)).astype(np.int16)
    low, high = (float(np.fix(end + np.copysign(0.5, end))) for end in (low, high))
    return StoredPixels(rounded, low, high, holes)


def hdu_list(
    pixels: NDArray[Any], header: Header, compress: Compression, quantize_level: float
) -> HDUList:
    """Make the HDUs: the image in HDU 0, or compressed in HDU 1 after an empty one."""
    from astropy.io import fits

    if compress == "none":
        return fits.HDUList([fits.PrimaryHDU(pixels, header)])
    image = fits.CompImageHDU(
        pixels,
        header,
        compression_type="RICE_1",
        tile_shape=(min(_TILE_ROWS, pixels.shape[0]), pixels.shape[1]),
        quantize_level=quantize_level,
        quantize_method=fits.hdu.compressed.SUBTRACTIVE_DITHER_1,
        dither_seed=fits.hdu.compressed.DITHER_SEED_CHECKSUM,
    )
    return fits.HDUList([fits.PrimaryHDU(), image])
