"""Sizes and sky coordinates (WCS) of images, from their headers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from readers.errors import ReadError
from readers.index.catalogue.images import ImageKey
from readers.index.file_facts import in_threads
from readers.index.scan import SUFFIXES
from readers.places.opener import LOCAL, Places

if TYPE_CHECKING:
    from astropy.wcs import WCS

    from readers.fits.hdus import FoundHdu

_THREADS = 16
"""Number of headers that are read concurrently, for files from a network."""
_OTHERS = (*SUFFIXES["jpeg"], *SUFFIXES["npy"])
"""Suffixes of images that are not FITS."""
_LOOKUP = re.compile(rb"-TAB|(?:CPDIS|CQDIS|DP|DQ|D2IMDIS)[12] *=|AXISCORR *=")
"""Keywords of distortions that are in separate HDUs, e.g. of HST. astropy reads these HDUs."""
_SKY = re.compile(
    rb"[A-Z_]+\d|[AB]P?_(ORDER|DMAX)|(WCS|RADE|DATE|MJD|OBSGEO)|(LON|LAT)POLE|EQUINOX|EPOCH|AXISCORR"
)
"""Keywords that may affect sky coordinates. astropy parses only these, which is faster."""
_REFERENCE = ("CRVAL1", "CRVAL2", "CRPIX1", "CRPIX2")


@dataclass(frozen=True)
class ImageFacts:
    """Size and sky coordinates of an image, from its header."""

    height: int
    """Height in pixels."""
    width: int
    """Width in pixels."""
    wcs: WCS | None
    """Sky coordinates of its pixels: two celestial axes, columns first; None if not needed."""


def image_facts(
    images: Sequence[ImageKey], *, with_wcs: bool, places: Places = LOCAL
) -> Iterator[ImageFacts | str]:
    """Yield the size and WCS of each image, in order, or the reason why it has none.

    Notes
    -----
    Threads read the headers; this thread parses each WCS, as astropy is not thread-safe.
    """
    headers = in_threads(partial(_header, places), images, _THREADS)
    for (path, hdu), header in zip(images, headers, strict=True):
        try:
            yield _facts(places, path, hdu, header, with_wcs=with_wcs)
        except ReadError as error:
            yield plain(error.reason)


def plain(reason: object) -> str:
    """Return the message of a wcslib error without its references to source code."""
    return " ".join(re.sub(r"ERROR \d+ in .*?\.c:", "", str(reason), flags=re.DOTALL).split())


def _header(places: Places, image: ImageKey) -> FoundHdu | None:
    """Read a header; return None if the file is not FITS, or if astropy must read it."""
    from readers.fits.file import FitsFile

    path, hdu = image
    if path.lower().endswith(_OTHERS):
        return None
    try:
        with FitsFile.at(places.at(path), None if hdu < 0 else hdu) as file:
            return file.header()
    except Exception:  # of many types, on odd headers: `_by_astropy` reports the error
        return None


def _facts(
    places: Places, path: str, hdu: int, header: FoundHdu | None, *, with_wcs: bool
) -> ImageFacts:
    if path.lower().endswith(_OTHERS):
        if with_wcs:
            raise ReadError(path, "it has no sky coordinates, as it is not a FITS file")
        return ImageFacts(*_size(places, path), None)
    from readers.fits.file import read_errors

    wanted = None if hdu < 0 else hdu
    with read_errors(path, wanted, None):
        if header is None or (with_wcs and _LOOKUP.search(header.text)):
            found = _by_astropy(places, path, wanted, with_wcs=with_wcs)
        else:
            found = _of_header(header, with_wcs=with_wcs)
        if with_wcs and found.wcs is None:
            raise ValueError("its header has no sky coordinates" + _in_primary(places, path))
        return found


def _in_primary(places: Places, path: str) -> str:
    """Return the reason why an image lacks CTYPE: it is missing, or only in the primary header."""
    from readers.fits.file import FitsFile
    from readers.fits.hdus import HeaderReader

    with FitsFile.at(places.at(path), 0) as file:
        text = HeaderReader(file.place).read(0)
    if not any(text.startswith(b"CTYPE1  =", at) for at in range(0, len(text), 80)):
        return " (CTYPE is missing)"
    return (
        ", only HDU 0 has them: copy their cards (CTYPE, CRVAL, CRPIX, CD, ...) into the header of "
        "the image, or use pixels, by x and y"
    )


def _of_header(header: FoundHdu, *, with_wcs: bool) -> ImageFacts:
    from astropy.io import fits

    from readers.fits.planes import ImageShape

    letter = "Z" if header.is_table else ""
    keywords = header.keywords
    axes = [keywords[f"{letter}NAXIS{n}"] for n in range(keywords[f"{letter}NAXIS"], 0, -1)]
    _, height, width = ImageShape.of(axes)
    if not with_wcs:
        return ImageFacts(height, width, None)
    cards = (header.text[at : at + 80] for at in range(0, len(header.text), 80))
    of_sky = fits.Header.fromstring(b"".join(filter(_SKY.match, cards)))
    return ImageFacts(height, width, _celestial(of_sky, None))


def _by_astropy(places: Places, path: str, hdu: int | None, *, with_wcs: bool) -> ImageFacts:
    from readers.fits.file import open_image, open_images
    from readers.fits.planes import ImageShape

    with ExitStack() as stack:
        hdus, number = stack.enter_context(open_image(places.at(path), hdu))
        _, height, width = ImageShape.of(hdus[number].shape)
        if not with_wcs:
            return ImageFacts(height, width, None)
        header = hdus[number].header
        if _LOOKUP.search(header.tostring().encode()):
            # Also HDUs after the image.
            hdus, _ = stack.enter_context(open_images(places.at(path)))
        return ImageFacts(height, width, _celestial(header, hdus))


def _celestial(header: Any, hdus: Any) -> WCS | None:
    """Return the WCS of a header; None without CTYPE. ValueError if it cannot be used."""
    from astropy.wcs import WCS

    for key in _REFERENCE:  # astropy would use 0 for other values
        if not isinstance(header.get(key, 0), int | float):
            raise ValueError(f"{key} of its header is {header[key]!r}, expected a number")
    wcs = WCS(header, hdus)
    wcs.wcs.set()  # to check it
    if not wcs.has_celestial:
        kinds = ", ".join(filter(None, wcs.wcs.ctype))
        if not kinds:
            return None
        raise ValueError(f"its header has no sky coordinates (CTYPE is {kinds})")
    if {wcs.wcs.lng, wcs.wcs.lat} != {0, 1}:
        raise ValueError("its sky coordinates are not along its first two axes")
    return wcs if wcs.naxis == 2 else wcs.celestial


def _size(places: Places, path: str) -> tuple[int, int]:
    """Return the height and width of an encoded image or an array."""
    if path.lower().endswith(SUFFIXES["npy"]):
        from readers.npy import StoredArray

        try:
            with places.at(path) as place:
                height, width = StoredArray.of(place).shape[:2]
        except (OSError, ValueError) as error:
            raise ReadError(path, str(error)) from error
        return height, width
    from readers.jpeg.reader import JpegReader, load

    image = load(places.at(path), JpegReader.channels)
    return image.height, image.width
