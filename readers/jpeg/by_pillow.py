"""Decode images with Pillow and send them as PNM, which DALI decodes to the same values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from readers.jpeg.exif import forget_xmp, turn_of
from readers.jpeg.sample_format import values_of

_GRAY = ("1", "L", "LA")
_PHOTOMETRIC, _SAMPLE_FORMAT = 262, 339
"""Numbers of TIFF tags."""


def displayed(image: Image.Image, channels: int, bits: int) -> NDArray[Any]:
    """Decode an image that Pillow has opened, and apply its EXIF orientation.

    Parameters
    ----------
    image : PIL.Image.Image
        Opened image, not yet decoded.
    channels : {3, 1}
        RGB or gray. Gray of a colour JPEG is the stored luma.
    bits : int
        Bits per sample in the file, see `readers.jpeg.sample_format.stored_bits`.

    Returns
    -------
    ndarray
        Shape (height, width), or (height, width, 3) for colours with 3 channels; uint8, or uint16
        for gray of more than 8 bits.

    Raises
    ------
    OSError
        If the black and white levels of the values are unknown.
    """
    if channels == 1:
        image.draft("L", None)
    forget_xmp(image)
    image.load()
    _check_values(image)
    return turn_of(image).applied(_values(image, channels, bits))


def _values(image: Image.Image, channels: int, bits: int) -> NDArray[Any]:
    if image.mode.startswith("I"):  # 16 bits, perhaps big-endian
        pixels = np.asarray(image).astype(np.uint16)
        # Pillow shifts gray JPEG 2000 to the left; DALI does not shift colours.
        return pixels >> max(0, 16 - bits) if image.format == "JPEG2000" else pixels
    if image.mode == "LAB":
        image = _to_srgb(image)
    if image.mode in _GRAY:
        return np.asarray(image.convert("L"))
    image = image.convert("RGB")
    return np.asarray(image if channels == 3 else image.convert("L"))


def _check_values(image: Image.Image) -> None:
    """Raise OSError if black and white levels are unknown, or if Pillow converts values wrongly.

    Pillow reads signed bytes as unsigned, and inverts a TIFF with 0 as white only up to 8 bits.
    """
    tags = getattr(image, "tag_v2", {})
    if 2 in values_of(tags, _SAMPLE_FORMAT):
        what = "signed samples"
    elif image.mode == "F":
        what = "floats"
    elif image.mode == "I" and image.format != "PPM":  # PPM has 16 bits
        what = "integers of 32 bits"
    elif image.mode.startswith("I;16") and values_of(tags, _PHOTOMETRIC)[0] == 0:
        what = "more than 8 bits with 0 as white"
    else:
        return
    raise OSError(
        f"a {image.format} of {what} is not decoded, because its values of black and white are "
        "unknown: save it as unsigned integers of 8 or 16 bits, or write a Reader"
    )


def _to_srgb(image: Image.Image) -> Image.Image:
    from PIL import ImageCms

    lab, srgb = (ImageCms.createProfile(space) for space in ("LAB", "sRGB"))
    converted = ImageCms.profileToProfile(image, lab, srgb, outputMode="RGB")
    assert converted is not None  # None is for conversions in place
    return converted


def pnm(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the bytes of a PGM or PPM with the pixels of `displayed`."""
    kind, (height, width) = "P5" if pixels.ndim == 2 else "P6", pixels.shape[:2]
    header = f"{kind} {width} {height} {np.iinfo(pixels.dtype).max}\n".encode()
    values = pixels.astype(">u2") if pixels.dtype == np.uint16 else np.ascontiguousarray(pixels)
    return np.concatenate((np.frombuffer(header, np.uint8), values.reshape(-1).view(np.uint8)))
