"""Samples of several files whose pixels show different parts of the sky."""

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
"""Number of images whose files are compared: each takes a header, or a request."""
_ALIGNED = 1.0
"""Largest distance in pixels between files of a sample."""


def moved_parts(images: Images, shown: NDArray[np.int64]) -> str:
    """Return a warning if a file of a sample has other sky coordinates than the first, or ''.

    All files of a sample get the same window of pixels. Files without sky coordinates, such as
    masks, are not compared, and neither are files of another size, which no pipeline accepts.

    Parameters
    ----------
    images : Images
        The images; each row of their table may have several files.
    shown : ndarray of int
        Numbers of images that show an object; some of them are compared.
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
                    f"the files of a sample have other sky coordinates: pixels of "
                    f"{printable(images.name(number))} are up to {pixels:.3g} pixels away in part "
                    f"{part!r}, {printable(file[0])}, and one window is cut out of all of them: "
                    "resample them onto one grid, e.g. with the package reproject"
                )
    return ""


def _files(images: Images, number: int) -> Iterator[tuple[str, ImageKey]]:
    """Yield the files of the first row of an image whose HDU is known, and their parts."""
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
