"""An encoded image as Pillow reads it: pixels, facts and complaints, for `verify`."""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING, Any

from dali_pipelines.cli.errors import one_line
from dali_pipelines.cli.full_decode import check_whole
from dali_pipelines.cli.verify.astropy_truth import Truth
from dali_pipelines.cli.verify.placed import Place
from readers.contract import Row
from readers.fits.hdus import HduName
from readers.jpeg.sample_format import sample_bits

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL import Image

_EXACT = ("PNG", "BMP", "PPM")
_GREY_LEVELS = 2
"""By which decoders of other formats may differ."""


def by_pillow(row: Row, hdu: HduName | None, window: Place | None) -> Truth:
    """Decode an image, or a window of it, to RGB by Pillow alone, and look for damage in the file.

    The window lies in the image as displayed. The HDU is for FITS alone.
    """
    truth = Truth(decoder="Pillow")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of odd EXIF data, e.g.
        try:
            _decode(truth, row, window)
            check_whole(row)
        except Exception as error:  # Pillow raises many types on hostile input
            truth.values = None
            truth.complaint = one_line(f"{type(error).__name__}: {error}")
    return truth


def _decode(truth: Truth, row: Row, window: Place | None) -> None:
    import numpy as np
    from PIL import Image, ImageOps

    with row.place as place:
        encoded = place.read(0, place.nbytes)
    # Not by its path: Pillow 13 turns a TIFF twice that it can map.
    with Image.open(io.BytesIO(encoded)) as image:
        truth.codec = image.format
        bits = sample_bits(encoded, image, 3)
        truth.tolerance = 0 if image.format in _EXACT else _GREY_LEVELS
        image.load()  # a PNG may have metadata after its pixels
        for name in ("xmp", "XML:com.adobe.xmp"):  # only EXIF has the orientation
            image.info.pop(name, None)
        values = _rgb(ImageOps.exif_transpose(image))
        if bits == 16 and values.dtype == np.uint8:  # Pillow keeps 8 bits of 16-bit colours
            values, truth.tolerance = values.astype(np.uint16) * 257, 257
    if window is not None:
        window.check(*values.shape[:2])
        y, x, height, width = window
        values = values[y : y + height, x : x + width]
    truth.shape, truth.dtype = values.shape, values.dtype.name
    truth.values = values.transpose(2, 0, 1).astype(np.float32)


def _rgb(image: Image.Image) -> NDArray[Any]:
    """Return the pixels as uint8 or uint16, shape (height, width, 3)."""
    import numpy as np

    if not image.mode.startswith("I"):
        return np.asarray(image.convert("RGB"))
    gray = np.asarray(image).astype(np.uint16)  # of 16 bits, perhaps in big-endian order
    return np.stack((gray, gray, gray), axis=-1)
