"""The image of a FITS file, described by its header. Unusual images are decoded by astropy."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from astropy.io import fits
from numpy.typing import NDArray

from readers.fits.file import FitsFile
from readers.fits.hdus import names_of
from readers.fits.headers import HduName, Keywords
from readers.fits.plain_image import StoredImage
from readers.fits.planes import ImageShape
from readers.fits.tiles.image import TiledImage
from readers.fork_safe_lock import ForkSafeLock
from readers.window import Window

_BITPIX = (8, 16, 32, 64, -32, -64)
_KNOWN_IMAGES = 1024
"""Number of images to keep, some 4 kB each."""
_MOST_AT_ONCE = 64 << 20
"""Maximum number of bytes to fetch at once for astropy. By itself it reads small pieces."""
_hcompress = ForkSafeLock()
"""astropy's decoder of HCOMPRESS_1 is not thread-safe, but releases the GIL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitsImage:
    """An image, described by its header."""

    number: int
    """Number of its HDU."""
    names: tuple[str, int]
    """EXTNAME of its HDU, in capitals, and EXTVER."""
    keywords: Mapping[str, Any]
    """BITPIX, and BSCALE, BZERO and BLANK if the header has them."""
    shape: ImageShape
    image: TiledImage | StoredImage | None
    """None if astropy must decode it."""
    header_start: int
    """First byte of its header in the file; 0 in the primary HDU."""
    start: int
    """First byte of its data in the file."""
    stop: int
    """End of its data."""

    def span(self, window: Window | None, planes: Sequence[int]) -> tuple[int, int]:
        """Return the first byte and the end of the data that a window needs."""
        if isinstance(self.image, StoredImage):
            return self.image.span(window, planes)
        return self.start, self.stop

    def pixels(
        self, file: FitsFile, window: Window | None, planes: list[int], *, scaled: bool
    ) -> NDArray[Any]:
        """Return the pixels decoded by astropy, shape (planes, height, width)."""
        y, x, height, width = self.shape.region(window)
        spans = [self.span(window, [plane]) for plane in planes]
        spans = list(dict.fromkeys(spans))
        if sum(stop - start for start, stop in spans) <= _MOST_AT_ONCE:
            file.place.fetch(spans)
        with ExitStack() as stack:
            options = {"do_not_scale_image_data": not scaled}
            hdus, number = stack.enter_context(file.by_astropy(self.header_start, **options))
            hdu = hdus[number]
            if hdu.header.get("ZCMPTYPE", getattr(hdu, "compression_type", None)) == "HCOMPRESS_1":
                stack.enter_context(_hcompress)
            if ImageShape.of(hdu.shape) != self.shape:
                raise ValueError(f"the image has shape {hdu.shape}, expected {self.shape}")
            if window is None and planes == list(range(self.shape.planes)):
                return hdu.data.reshape(self.shape)
            inside = (slice(y, y + height), slice(x, x + width))[-len(hdu.shape) :]
            found = [
                hdu.section[(*np.unravel_index(plane, hdu.shape[:-2]), *inside)] for plane in planes
            ]
            return np.stack(found).reshape(len(planes), height, width)


def find_image(file: FitsFile, largest_tile: float = math.inf) -> FitsImage:
    """Describe the image of a file from its header, with astropy if the header is unusual.

    The latest descriptions are kept. Images with tiles of more than `largest_tile` pixels in the
    graph are left to astropy.
    """
    stamp = file.stamp
    kept = [] if stamp is None else _kept(stamp, file.wanted)
    if not kept:
        kept.append(_described(file))
        file.header_bytes += kept[0].start - kept[0].header_start
    found = kept[0]
    if isinstance(found.image, TiledImage) and found.image.sent_tile_pixels > largest_tile:
        return replace(found, image=None)
    return found


@lru_cache(maxsize=_KNOWN_IMAGES)
def _kept(*_: Any) -> list[FitsImage]:
    """Return the cached list of an image: empty, or with its description as the only entry."""
    return []


def is_described(stamp: Hashable | None, wanted: HduName | None) -> bool:
    """Return whether the description of an image is kept; `stamp` is the stamp of its file."""
    return stamp is not None and bool(_kept(stamp, wanted))


def _described(file: FitsFile) -> FitsImage:
    found = file.header()
    if found is not None:
        start, data, stop, *_ = extent = found.extent
        keywords, is_table = found.keywords, found.is_table
        return _image_of(found.number, extent.names, keywords, is_table, start, data, stop)
    with file.by_astropy(disable_image_compression=True) as (hdus, number):
        hdu = hdus[number]
        info, is_table = hdu.fileinfo(), isinstance(hdu, fits.BinTableHDU)
        header = hdu.header if is_table else _of_plain_image(hdu.header)
        start, data = info["hdrLoc"], info["datLoc"]
        return _image_of(number, names_of(hdu), header, is_table, start, data, data + hdu.size)


def _of_plain_image(header: fits.Header) -> Keywords:
    """Return the keywords that describe how a plain image is stored, like `Cards`."""
    names = ("BITPIX", "NAXIS", "BSCALE", "BZERO", "BLANK")
    cards = [card for card in header.cards if card.keyword.startswith(names)]
    keywords = [card.keyword for card in cards]
    for keyword in keywords:
        if keyword.startswith(("BITPIX", "NAXIS")) and keywords.count(keyword) > 1:
            raise ValueError(
                f"the header has {keyword} more than once, probably because an END card is damaged"
            )
    return Keywords((card.keyword, card.value) for card in cards)


def _image_of(
    number: int,
    names: tuple[str, int],
    header: Mapping[str, Any],
    is_table: bool,
    header_start: int,
    start: int,
    stop: int,
) -> FitsImage:
    letter = "Z" if is_table else ""
    axes = range(header[f"{letter}NAXIS"], 0, -1)
    shape = ImageShape.of([header[f"{letter}NAXIS{axis}"] for axis in axes])
    keywords = {name: header[name] for name in ("BSCALE", "BZERO", "BLANK") if name in header}
    if is_table and not keywords.get("BSCALE", 1):
        del keywords["BSCALE"]  # astropy ignores a BSCALE of 0 only for compressed images
    if is_table and "ZBLANK" in header:
        keywords.setdefault("BLANK", header["ZBLANK"])
    bitpix = keywords["BITPIX"] = header[f"{letter}BITPIX"]
    if bitpix not in _BITPIX:
        raise ValueError(f"{letter}BITPIX is {bitpix}, expected one of {_BITPIX}")
    stored = StoredImage(bitpix=bitpix, shape=shape, start=start)
    return FitsImage(
        number=number,
        names=names,
        keywords=keywords,
        shape=shape,
        image=TiledImage.of(header, start, stop) if is_table else stored,
        header_start=header_start,
        start=start,
        stop=stop,
    )
