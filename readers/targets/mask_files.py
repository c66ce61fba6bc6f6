"""Read a mask, or a part of it, as stored: encoded images, FITS, .npy."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from readers.places.contract import Place
from readers.quiet import without_warnings
from readers.window import Box, Window

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

    from readers.fits.headers import HduName

_NPY, _FITS = b"\x93NUMPY", (b"SIMPLE", b"\x1f\x8b")
_MODES = ("1", "L", "P", "I;16", "I;16B", "I;16L", "I;16N", "I", "F")
"""Pillow's modes with one channel."""
_SCALES = {"L;2": 85, "L;4": 17}
"""Factors by which Pillow stretches values to 8 bits, by its raw mode."""
_LOSSY_IN_TIFF = ("jpeg", "tiff_jpeg")
"""Lossy compressions of a TIFF, by Pillow's names."""
_MAY_BE_LOSSY = ("JPEG", "MPO", "JPEG2000", "AVIF", "DDS")
"""One-channel formats with a compression that is, or may be, lossy."""
_SAMPLE_FORMAT = 339
"""TIFF tag with the value 1 for unsigned and 2 for signed integers."""


def read_mask(
    place: Place, hdu: HduName | None, size: tuple[int, int], box: Box, *, of_classes: bool = True
) -> tuple[NDArray[Any], int]:
    """Read a part of a mask.

    Parameters
    ----------
    place : Place
        Unopened file. Its format is recognised by content.
    hdu : int, str or (str, int), optional
        HDU of a FITS file; by default the first HDU with an image.
    size : tuple of int
        Required (height, width) of the mask, in pixels.
    box : Box
        Part to read.
    of_classes : bool
        Whether to reject lossy compression, which invents values.

    Returns
    -------
    tuple of (ndarray, int)
        Stored values of any type and byte order, shape (height, width) of the box; and the number
        of bytes read.

    Raises
    ------
    Exception
        If the mask cannot be read, has another size, or has several channels.
    """
    with without_warnings:  # about odd headers
        with place:
            begin = place.read(0, 8)
            if begin.startswith(_NPY):
                return _read_npy(place, size, box)
            if not begin.startswith(_FITS):
                return _read_encoded(place, size, box, of_classes=of_classes)
        return _read_fits(place, hdu, size, box)


def _read_npy(place: Place, size: tuple[int, int], box: Box) -> tuple[NDArray[Any], int]:
    from readers.npy import StoredArray

    stored = StoredArray.of(place)
    if len(stored.shape) != 2:
        raise ValueError(f"has shape {stored.shape}, expected (height, width)")
    _check_size(stored.shape, size)
    rows, nbytes = stored.read_rows(place, box.y, box.height)
    return rows[:, box.x : box.x + box.width], nbytes


def _read_fits(
    place: Place, hdu: HduName | None, size: tuple[int, int], box: Box
) -> tuple[NDArray[Any], int]:
    from readers.fits.file import FitsFile
    from readers.fits.image import find_image
    from readers.fits.plain_image import StoredImage, is_of_other_sign, of_other_sign

    with FitsFile.at(place, hdu) as file:
        found = find_image(file)
        if found.shape.planes > 1:
            raise ValueError(f"has {found.shape.planes} planes, expected one")
        _check_size((found.shape.height, found.shape.width), size)
        whole = (box.height, box.width) == size
        window = None if whole else Window.at(*box, image=size)
        file.need(*found.span(window, [0]))
        other_sign = is_of_other_sign(found.keywords)
        if isinstance(found.image, StoredImage) and other_sign is not None:
            pixels, nbytes = found.image.values(file.place, window, 0)
            pixels = of_other_sign(pixels) if other_sign else pixels
            return pixels, file.input_bytes(nbytes)
        return found.pixels(file, window, [0], scaled=True)[0], file.input_bytes(0)


def _read_encoded(
    place: Place, size: tuple[int, int], box: Box, *, of_classes: bool
) -> tuple[NDArray[Any], int]:
    from PIL import Image, UnidentifiedImageError

    from readers.jpeg.exif import forget_xmp, turn_of
    from readers.jpeg.pixels import of_any_size
    from readers.jpeg.structure import structure_of

    encoded = place.read(0, place.nbytes)
    structure_of(encoded)  # raises DamagedError

    def read() -> NDArray[Any]:
        with Image.open(io.BytesIO(encoded)) as image:
            if of_classes and (kind := _lossy_kind(image)) is not None:
                raise ValueError(
                    f"is a {kind}, and lossy compression changes values to other classes: save the "
                    "masks as PNG, from their source, or set dtype='float32' if the values are not "
                    "classes"
                )
            if image.mode not in _MODES:
                raise ValueError(
                    f"has several channels (mode {image.mode}), expected one: convert colours to "
                    "class numbers, and save them as PNG"
                )
            forget_xmp(image)
            pixels = _stored_values(image)
            return turn_of(image).applied(pixels)

    try:
        pixels = of_any_size(read)
        _check_size(pixels.shape, size)
    except UnidentifiedImageError:
        raise OSError(
            "not a mask of a known format: expected an image with one channel that Pillow reads, "
            "FITS or .npy"
        ) from None
    return pixels[box.y : box.y + box.height, box.x : box.x + box.width], len(encoded)


def _lossy_kind(image: ImageFile) -> str | None:
    """Return the format if the compression of an image may be lossy; otherwise None."""
    if image.format in _MAY_BE_LOSSY:
        return image.format
    in_tiff = image.format == "TIFF" and image.info.get("compression") in _LOSSY_IN_TIFF
    return "TIFF with JPEG compression" if in_tiff else None


def _stored_values(image: ImageFile) -> NDArray[Any]:
    """Return the values in the file, without the changes that Pillow makes."""
    decoder, raw = _encoding(image)
    if decoder == "libtiff" and raw.endswith(("BS", "BF")):  # Pillow 13 swaps the bytes
        raise ValueError(
            "is a compressed big-endian TIFF of signed integers or floats, which Pillow reads "
            "wrong: save it without compression"
        )
    if decoder.startswith("ppm"):
        _check_maxval(image)
    tags: Any = getattr(image, "tag_v2", None)  # None unless TIFF
    sample_format = None if tags is None else tags.get(_SAMPLE_FORMAT, (1,))[0]
    image.load()
    pixels = np.asarray(image)
    if tags is not None and image.mode in ("1", "L") and raw.endswith(("I", "IR")):
        pixels = ~pixels  # Pillow inverts WhiteIsZero TIFFs of up to 8 bits
    if raw[:3] in _SCALES:
        return pixels // _SCALES[raw[:3]]
    if sample_format == 1 and image.mode == "I":
        return pixels.view(np.uint32)
    return pixels.view(np.int8) if sample_format == 2 and image.mode == "L" else pixels


def _check_maxval(image: ImageFile) -> None:
    """Raise ValueError if Pillow would stretch the values of a PGM."""
    args = image.tile[0].args
    if isinstance(args, tuple) and args[1] not in (255, 65535):
        raise ValueError(
            f"is a PGM of maxval {args[1]}, which Pillow stretches to 255 or 65535: save it with "
            "maxval 255 or 65535, or as PNG"
        )


def _encoding(image: ImageFile) -> tuple[str, str]:
    """Return Pillow's names of the decoder and the stored format, before the image is loaded."""
    if not image.tile:
        return "", ""
    args = image.tile[0].args
    raw = args[0] if isinstance(args, tuple) else args
    return image.tile[0].codec_name, raw if isinstance(raw, str) else ""


def _check_size(found: tuple[int, ...], size: tuple[int, int]) -> None:
    if tuple(found) != size:
        (height, width), (rows, columns) = found, size
        raise ValueError(
            f"has {height}x{width} pixels, but the displayed image has {rows}x{columns} (height x "
            "width): a mask must have the size of its image"
        )


def of_type(pixels: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Convert values to another type in native byte order; ValueError if a value does not fit."""
    kind, wanted = pixels.dtype, np.dtype(dtype)
    if kind.kind not in "biuf":
        raise ValueError(f"has values of type {kind}, expected numbers")
    # NumPy casts all integers to float64, and rounds those beyond 2**53.
    is_rounded = kind.kind in "iu" and kind.itemsize == 8 and wanted.kind == "f"
    if np.can_cast(kind, wanted) and not is_rounded:
        return pixels.astype(wanted, copy=False)
    if kind.kind == "f" and wanted.kind != "f":
        raise ValueError(
            f"has {kind.name}, but the dtype of the Mask is {dtype!r}: set dtype='float32'"
        )
    if kind.kind == "f":
        largest = float(np.max(np.abs(pixels), initial=0, where=np.isfinite(pixels)))
        if largest > float(np.finfo(wanted).max):
            raise ValueError(
                f"has values up to {largest:g}, too large for dtype {dtype!r}: set dtype='float64'"
            )
    else:
        low, high = int(pixels.min()), int(pixels.max())
        least, most = _range_of(wanted)
        if low < least or high > most:
            limits = [(one, np.iinfo(one)) for one in ("int32", "int64")]
            fitting = [one for one, limit in limits if limit.min <= low and high <= limit.max]
            raise ValueError(
                f"has values from {low} to {high}, but dtype {dtype!r} only has {least} to {most}"
                + "".join(f": set dtype={one!r}" for one in fitting[:1])
            )
    return pixels.astype(wanted)


def _range_of(kind: np.dtype[Any]) -> tuple[int, int]:
    """Return the range of integers that a type represents exactly, least and largest."""
    if kind.kind == "f":
        most = 1 << (np.finfo(kind).nmant + 1)
        return -most, most
    limits = np.iinfo(kind)
    return int(limits.min), int(limits.max)
