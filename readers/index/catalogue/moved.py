"""Warning about samples of several files with different sky coordinates."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from readers.index.catalogue.headers import ImageFacts, image_facts
from readers.index.catalogue.images import ImageKey, Images
from readers.index.schema import part_names
from readers.messages import printable

_COMPARED = 16
"""Maximum number of images to compare: each file takes reading a header, or a request."""
_ALIGNED = 1.0
"""Largest allowed distance between files of a sample, in pixels."""


def moved_parts(images: Images, shown: NDArray[np.int64]) -> str:
    """Return a warning if two files of a sample have different sky coordinates; otherwise ''.

    All files of a sample get the same window of pixels. Files without sky coordinates, such as
    masks, are not compared, nor are files of another size, which pipelines reject.

    `shown` are the numbers of images that show an object. Only some are compared.
    """
    found = np.unique(shown)
    for number in found[:: max(1, len(found) // _COMPARED)].tolist():
        for part, file in _files(images, number):
            pair = [images.images[number], file]
            one, other = image_facts(pair, with_wcs=True, places=images.places)
            if isinstance(one, str) or isinstance(other, str):
                continue
            if (pixels := _distance(one, other)) > _ALIGNED:
                return (
                    f"the files of a sample differ in sky coordinates, but get the same window: "
                    f"{printable(images.name(number))} and part {part!r}, {printable(file[0])}, "
                    f"are up to {pixels:.3g} pixels away: resample the files onto one grid, e.g. "
                    "with the package reproject"
                )
    return ""


def _files(images: Images, number: int) -> Iterator[tuple[str, ImageKey]]:
    """Yield part, path and HDU of the other files in the first row of an image, if known."""
    row, known = int(np.argmax(images.numbers == number)), images.table.column_names
    for part in part_names(images.table):
        path = images.table[f"path_{part}"][row].as_py()
        if f"hdu_{part}" in known:
            hdu = images.table[f"hdu_{part}"][row].as_py()
        else:
            hdu = None if "hdu" in known else -1
        if None not in (path, hdu) and (path, hdu) != images.images[number]:
            yield part, (path, hdu)


def _distance(one: ImageFacts, other: ImageFacts) -> float:
    """Return the largest distance in pixels between the middles and corners of two images."""
    from astropy.wcs.utils import pixel_to_pixel

    if (one.height, one.width) != (other.height, other.width):
        return 0.0
    y, x = np.array([[0, 0, 1, 1, 0.5], [0, 1, 0, 1, 0.5]])
    y, x = y * (one.height - 1), x * (one.width - 1)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # positions that a projection cannot show
            found = pixel_to_pixel(one.wcs, other.wcs, x, y)
    except Exception:  # astropy raises many types, e.g. where an iteration does not converge
        return np.inf
    return float(np.nan_to_num(np.hypot(found[0] - x, found[1] - y), nan=np.inf).max())
