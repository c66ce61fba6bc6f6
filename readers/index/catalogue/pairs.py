"""Pairs of objects and the images that show them, by pixels or by positions on the sky."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from readers.index.arrow import pa
from readers.index.catalogue.headers import ImageFacts, image_facts, plain
from readers.index.catalogue.images import Images, Named
from readers.index.catalogue.sky import Sky

Sizes = NDArray[np.int64]
Progress = Callable[[Sequence[int]], Iterable[int]]
"""Wraps the numbers of images, to report progress."""


class Pairs(NamedTuple):
    """Objects on or near images, sorted by image, then by object."""

    images: NDArray[np.int64]
    """Number of the image, shape (n,)."""
    objects: NDArray[np.int64]
    """Row of the catalogue, shape (n,)."""
    positions: NDArray[np.float64]
    """(y, x) in pixels from the middle of the first pixel, shape (n, 2)."""
    sizes: Sizes
    """Height and width of the image, shape (n, 2)."""
    bad: dict[int, str]
    """Reason why an image was left out, by its number."""


class _Found:
    """Collects pairs, image after image."""

    def __init__(self) -> None:
        self._images: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
        self._objects: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
        self._positions: list[NDArray[np.float64]] = [np.empty((0, 2))]
        self._sizes: list[Sizes] = [np.empty((0, 2), np.int64)]
        self.bad: dict[int, str] = {}

    def add(
        self,
        image: int,
        size: tuple[int, int],
        objects: NDArray[np.int64],
        positions: NDArray[np.float64],
    ) -> None:
        self._images.append(np.full(len(objects), image))
        self._sizes.append(np.tile(np.array(size, np.int64), (len(objects), 1)))
        self._objects.append(objects)
        self._positions.append(positions)

    def pairs(self) -> Pairs:
        return Pairs(
            np.concatenate(self._images),
            np.concatenate(self._objects),
            np.concatenate(self._positions),
            np.concatenate(self._sizes),
            self.bad,
        )


def pixel_pairs(
    positions: NDArray[np.float64], names: Named, images: Images, progress: Progress
) -> Pairs:
    """Return the pairs of objects whose pixels are known.

    Parameters
    ----------
    positions : ndarray, shape (n, 2)
        (y, x), NaN for objects without a position.
    names : Named
        The image of each object.
    images : Images
        The images; with integer columns ``height`` and ``width`` they are not opened.
    progress : callable
        See `Progress`.
    """
    has_position = np.asarray(np.isfinite(positions).all(axis=1))
    wanted = {number: names.objects(number) for number in range(len(images.images))}
    wanted = {number: each for number, each in wanted.items() if len(each)}
    found = _Found()
    known = _known_sizes(images)
    facts = (
        image_facts(
            [images.images[number] for number in wanted], with_wcs=False, places=images.places
        )
        if known is None
        else (ImageFacts(*known[number], None) for number in wanted)
    )
    for number, image in zip(progress(list(wanted)), facts, strict=True):
        if isinstance(image, str):
            found.bad[number] = image
            continue
        objects = wanted[number]
        objects = objects[has_position[objects]]
        found.add(number, (image.height, image.width), objects, positions[objects])
    return found.pairs()


def sky_pairs(
    ra: NDArray[np.float64],
    dec: NDArray[np.float64],
    names: Named | None,
    images: Images,
    margin: tuple[float, float],
    progress: Progress,
) -> Pairs:
    """Return the pairs of objects whose position on the sky is known.

    Parameters
    ----------
    ra, dec : ndarray, shape (n,)
        Degrees, ICRS, NaN for objects without a position.
    names : Named, optional
        The image of each object; by default all images are searched.
    images : Images
        The images; each is opened.
    margin : (float, float)
        Rows and columns around an image in which objects count, too.
    progress : callable
        See `Progress`.
    """
    has_position = np.isfinite(ra)
    sky = Sky(ra, dec)
    wanted: dict[int, NDArray[np.int64] | None] = dict.fromkeys(range(len(images.images)))
    if names is not None:
        rows = {number: names.objects(number) for number in wanted}
        wanted = {number: each[has_position[each]] for number, each in rows.items() if len(each)}
    found = _Found()
    facts = image_facts(
        [images.images[number] for number in wanted], with_wcs=True, places=images.places
    )
    for number, image in zip(progress(list(wanted)), facts, strict=True):
        if isinstance(image, str):
            found.bad[number] = image
            continue
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")  # positions that a projection cannot show
                objects, positions = sky.on_image(image, margin, wanted[number])
        except Exception as error:  # astropy raises many types on odd coordinates
            found.bad[number] = f"its sky coordinates cannot be used: {plain(error)}"
            continue
        found.add(number, (image.height, image.width), objects, positions)
    return found.pairs()


def _known_sizes(images: Images) -> list[tuple[int, int]] | None:
    """Return the sizes of all images from the table; None if it lacks some."""
    table = images.table
    for name in ("height", "width"):
        if name not in table.column_names or not pa.types.is_integer(table[name].type):
            return None
        if table[name].null_count:
            return None
    first = np.unique(images.numbers, return_index=True)[1]
    height, width = (table[name].to_numpy()[first].tolist() for name in ("height", "width"))
    return list(zip(height, width, strict=True))
