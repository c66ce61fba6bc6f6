"""The image of an open FITS file: what its header says, and its pixels as astropy decodes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from astropy.io import fits
from numpy.typing import NDArray

from readers.fits.file import FitsFile
from readers.fits.headers import Words
from readers.fits.plain_image import StoredImage
from readers.fits.planes import ImageShape, place_of
from readers.fits.rice_tiles import RiceImage
from readers.window import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class FitsImage:
    """An image in an open file."""

    file: FitsFile
    number: int
    """Of its HDU."""
    words: Mapping[str, Any]
    """BITPIX, BSCALE, BZERO and BLANK, the last three where there are any."""
    shape: ImageShape
    image: RiceImage | StoredImage | None
    """None if astropy shall decode it."""
    header_bytes: int
    start: int
    """Of its data, in bytes from the start of the file."""
    stop: int
    """Behind them."""

    def span(self, window: Window | None, planes: Sequence[int]) -> tuple[int, int]:
        """Give where the first byte lies that is needed, and where the last one ends."""
        if isinstance(self.image, StoredImage):
            return self.image.span(window, planes)
        return self.start, self.stop

    def pixels(self, window: Window | None, planes: list[int], *, scaled: bool) -> NDArray[Any]:
        """Decode by astropy, shape (planes, height, width)."""
        y, x, height, width = self.shape.place(window)
        with self.file.by_astropy(do_not_scale_image_data=not scaled) as (hdus, number):
            hdu = hdus[number]
            if ImageShape.of(hdu.shape) != self.shape:
                raise ValueError(f"the image has shape {hdu.shape}, expected {self.shape}")
            if window is None and planes == list(range(self.shape.planes)):
                return hdu.data.reshape(self.shape)
            inside = (slice(y, y + height), slice(x, x + width))[-len(hdu.shape) :]
            places = (place_of(plane, hdu.shape[:-2]) for plane in planes)
            found = [hdu.section[(*place, *inside)] for place in places]
            return np.stack(found).reshape(len(planes), height, width)


def find_image(file: FitsFile) -> FitsImage:
    """Describe the image of a file by its header, or by astropy if that is unusual."""
    return _by_header(file) or _by_astropy(file)


def _by_header(file: FitsFile) -> FitsImage | None:
    """Describe an image by its header alone, or give None if that is unusual."""
    found = file.header()
    if found is None:
        return None
    place = found.start, found.stop
    return _described(file, found.number, found.words, found.is_table, len(found.text), *place)


def _by_astropy(file: FitsFile) -> FitsImage:
    with file.by_astropy(disable_image_compression=True) as (hdus, number):
        hdu = hdus[number]
        header, info = hdu.header, hdu.fileinfo()
        is_table = isinstance(hdu, fits.BinTableHDU)
        if not is_table:
            header = _of_plain_image(header)
        start = info["datLoc"]
        place = start - info["hdrLoc"], start, start + hdu.size
        return _described(file, number, header, is_table, *place)


def _of_plain_image(header: fits.Header) -> Words:
    """Return the keywords that tell how a plain image is stored, as `ImageHeader` does."""
    names = ("BITPIX", "NAXIS", "BSCALE", "BZERO", "BLANK")
    cards = [card for card in header.cards if card.keyword.startswith(names)]
    keywords = [card.keyword for card in cards]
    for keyword in keywords:
        # After a damaged END two headers look like one, whose data begin elsewhere.
        if keyword.startswith(("BITPIX", "NAXIS")) and keywords.count(keyword) > 1:
            raise ValueError(f"the header has {keyword} more than once")
    return Words((card.keyword, card.value) for card in cards)


def _described(
    file: FitsFile,
    number: int,
    header: Mapping[str, Any],
    is_table: bool,
    header_bytes: int,
    start: int,
    stop: int,
) -> FitsImage:
    letter = "Z" if is_table else ""
    axes = range(header[f"{letter}NAXIS"], 0, -1)
    shape = ImageShape.of([header[f"{letter}NAXIS{axis}"] for axis in axes])
    words = {name: header[name] for name in ("BSCALE", "BZERO", "BLANK") if name in header}
    if is_table and "ZBLANK" in header:
        words.setdefault("BLANK", header["ZBLANK"])
    bitpix = words["BITPIX"] = header[f"{letter}BITPIX"]
    stored = StoredImage(bitpix=bitpix, shape=shape, start=start)
    return FitsImage(
        file=file,
        number=number,
        words=words,
        shape=shape,
        image=RiceImage.of(header, start, stop) if is_table else stored,
        header_bytes=header_bytes,
        start=start,
        stop=stop,
    )
