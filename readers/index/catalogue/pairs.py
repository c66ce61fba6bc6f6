"""Pairs of an object and an image that shows it, by pixels or by positions on the sky."""

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
Located = tuple[NDArray[np.int64], NDArray[np.float64]]
"""Rows of the catalogue, shape (n,), and their (y, x) in an image, shape (n, 2)."""


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


def pixel_pairs(
    positions: NDArray[np.float64], names: Named, images: Images, progress: Progress
) -> Pairs:
    """Return the pairs of objects with known pixels.

    `positions` are (y, x), shape (n, 2), NaN for objects without a position. `names` has the image
    of each object. Images are opened unless there are integer columns ``height`` and ``width``.
    """
    has_position = np.asarray(np.isfinite(positions).all(axis=1))
    wanted = {number: names.objects(number) for number in range(len(images.images))}
    wanted = {number: each for number, each in wanted.items() if len(each)}
    if (known := _known_sizes(images)) is None:
        keys = [images.images[number] for number in wanted]
        facts = image_facts(keys, with_wcs=False, places=images.places)
    else:
        facts = (ImageFacts(*known[number], None) for number in wanted)

    def locate(number: int, _: ImageFacts) -> Located:
        objects = wanted[number]
        objects = objects[has_position[objects]]
        return objects, positions[objects]

    return _collected(progress(list(wanted)), facts, locate)


def sky_pairs(
    ra: NDArray[np.float64],
    dec: NDArray[np.float64],
    names: Named | None,
    images: Images,
    margin: tuple[float, float],
    progress: Progress,
) -> Pairs:
    """Return the pairs of objects with known positions on the sky. Each image is opened.

    `ra` and `dec` are in degrees, ICRS, shape (n,), NaN for objects without a position. `names` has
    the image of each object; by default all images are searched. `margin` is the number of rows and
    columns around an image in which objects are found, too.
    """
    has_position = np.isfinite(ra)
    sky = Sky(ra, dec)
    wanted: dict[int, NDArray[np.int64] | None] = dict.fromkeys(range(len(images.images)))
    if names is not None:
        rows = {number: names.objects(number) for number in wanted}
        wanted = {number: each[has_position[each]] for number, each in rows.items() if len(each)}
    keys = [images.images[number] for number in wanted]
    facts = image_facts(keys, with_wcs=True, places=images.places)

    def locate(number: int, image: ImageFacts) -> Located | str:
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")  # positions that a projection cannot show
                return sky.on_image(image, margin, wanted[number])
        except Exception as error:  # astropy raises many types on odd coordinates
            return f"its sky coordinates cannot be used: {plain(error)}"

    return _collected(progress(list(wanted)), facts, locate)


def _collected(
    numbers: Iterable[int],
    facts: Iterable[ImageFacts | str],
    locate: Callable[[int, ImageFacts], Located | str],
) -> Pairs:
    """Return the pairs of all images. `locate` returns the pairs of an image, or an error."""
    none = np.empty(0, np.int64)
    parts = [(none, none, np.empty((0, 2)), np.empty((0, 2), np.int64))]
    bad: dict[int, str] = {}
    for number, image in zip(numbers, facts, strict=True):
        found = image if isinstance(image, str) else locate(number, image)
        if isinstance(image, str) or isinstance(found, str):
            bad[number] = str(found)
            continue
        objects, positions = found
        sizes = np.tile(np.array([image.height, image.width]), (len(objects), 1))
        parts.append((np.full(len(objects), number), objects, positions, sizes))
    of_images, objects, positions, sizes = map(np.concatenate, zip(*parts, strict=True))
    return Pairs(of_images, objects, positions, sizes, bad)


def _known_sizes(images: Images) -> list[tuple[int, int]] | None:
    """Return the sizes of all images from the table; None if one is missing."""
    table = images.table
    for name in ("height", "width"):
        if name not in table.column_names or not pa.types.is_integer(table[name].type):
            return None
        if table[name].null_count:
            return None
    first = np.unique(images.numbers, return_index=True)[1]
    height, width = (table[name].to_numpy()[first].tolist() for name in ("height", "width"))
    return list(zip(height, width, strict=True))
