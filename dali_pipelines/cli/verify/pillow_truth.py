"""An encoded image as Pillow reads it: pixels, facts and complaints, for `verify`."""

from __future__ import annotations

import io
import warnings
from functools import partial

from dali_pipelines.cli.errors import one_line
from dali_pipelines.cli.full_decode import check_whole
from dali_pipelines.cli.verify.astropy_truth import Truth
from dali_pipelines.cli.verify.placed import Place
from readers.contract import Row
from readers.fits.headers import HduName
from readers.jpeg.by_pillow import displayed
from readers.jpeg.pixels import of_any_size
from readers.jpeg.reader import load
from readers.jpeg.sample_format import stored_bits

_GREY_LEVELS = 2
"""By which decoders of JPEG may differ."""


def by_pillow(row: Row, hdu: HduName | None, window: Place | None) -> Truth:
    """Decode an image, or a window of it, to RGB by Pillow alone, and look for damage in the file.

    The window is in the image as displayed. The HDU is for FITS alone.
    """
    truth = Truth(decoder="Pillow")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of odd EXIF data, e.g.
        try:
            of_any_size(partial(_decode, truth, row, window))
            check_whole(row)
        except Exception as error:  # Pillow raises many types on hostile input
            truth.values = None
            truth.complaint = one_line(f"{type(error).__name__}: {error}")
    return truth


def _decode(truth: Truth, row: Row, window: Place | None) -> None:
    import numpy as np
    from PIL import Image

    loaded = load(row.place, channels=3)
    truth.codec = loaded.format
    truth.tolerance = _GREY_LEVELS if loaded.format == "JPEG" else 0
    with row.place as place:
        encoded = place.read(0, place.nbytes)
    # Not by its path: Pillow 13 turns a TIFF twice that it can map.
    with Image.open(io.BytesIO(encoded)) as image:
        bits = stored_bits(encoded, image)
        values = displayed(image, 3, bits)
    if values.ndim == 2:
        values = np.stack((values, values, values), axis=-1)
    if bits > 8 and values.dtype == np.uint8:  # Pillow keeps 8 bits of 16-bit colours
        truth.tolerance = (2**bits - 1) / 255
        values = np.rint(values * truth.tolerance).astype(np.uint16)
    if window is not None:
        window.check(*values.shape[:2])
        y, x, height, width = window
        values = values[y : y + height, x : x + width]
    truth.shape, truth.dtype = values.shape, values.dtype.name
    truth.values = values.transpose(2, 0, 1).astype(np.float32)
