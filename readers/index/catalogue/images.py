"""The images of an Index, their HDUs, and the objects of a catalogue that name them."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from readers.errors import ReadError
from readers.index.arrow import pa
from readers.index.catalogue.tables import Objects
from readers.index.schema import holds_text, whole_numbers
from readers.places.opener import LOCAL, Places
from readers.values import is_integer

ImageKey = tuple[str, int]
"""Path and HDU; -1 for the first HDU with an image, or a file without HDUs."""


@dataclass(frozen=True)
class Images:
    """The images of a table. Rows that differ only in their plane are one image."""

    table: pa.Table
    """Table with a row for each image or plane."""
    images: list[ImageKey]
    """The images, in the order of their first rows."""
    numbers: NDArray[np.int64]
    """Number of the image of each row of the table."""
    places: Places = LOCAL
    """Opens their files."""

    @classmethod
    def of(cls, table: pa.Table, places: Places = LOCAL) -> Images:
        """Return the images of a table."""
        has_hdus = "hdu" in table.column_names
        hdus = whole_numbers(table["hdu"]) if has_hdus else np.full(len(table), -1)
        found: dict[ImageKey, int] = {}
        named = zip(table["path"].to_pylist(), hdus.tolist(), strict=True)
        numbers = [found.setdefault(image, len(found)) for image in named]
        return cls(table, list(found), np.array(numbers, np.int64), places)

    @cached_property
    def files(self) -> dict[str, list[int]]:
        """Numbers of the images of each file, by path."""
        files = defaultdict(list)
        for number, (path, _) in enumerate(self.images):
            files[path].append(number)
        return dict(files)

    def name(self, number: int) -> str:
        """Return the path of an image, and its HDU if it is known."""
        path, hdu = self.images[number]
        return path if hdu < 0 else f"{path} HDU {hdu}"


@dataclass(frozen=True)
class Named:
    """Groups of objects that name the same image or file."""

    groups: NDArray[np.int64]
    """Number of the group that each object names, -1 for none."""
    of_images: NDArray[np.int64]
    """Number of the group of each image."""

    @cached_property
    def _sorted(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        order = np.argsort(self.groups, kind="stable")
        return order, self.groups[order]

    def objects(self, image: int) -> NDArray[np.int64]:
        """Return the row numbers of the objects that name an image, in ascending order."""
        order, groups = self._sorted
        start, stop = np.searchsorted(groups, self.of_images[image] + np.array([0, 1]))
        return order[start:stop]

    def check_unique(self, objects: Objects, images: Images) -> None:
        """Raise ValueError if pixels of a file could belong to several HDUs."""
        used, counts = np.unique(self.of_images, return_counts=True)
        several = used[(counts > 1) & np.isin(used, self.groups)]
        for number in np.flatnonzero(np.isin(self.of_images, several))[:1].tolist():
            path, _ = images.images[number]
            hdus = [str(images.images[each][1]) for each in images.files[path]]
            raise ValueError(
                f"{objects.name} has no column 'hdu', and {path} has images in HDUs "
                f"{', '.join(hdus)}: add the column, or choose one HDU by Index.where"
            )


def naming_columns(objects: Objects, images: Images) -> tuple[str, ...]:
    """Return the names of the columns of a catalogue that name images.

    They are ``path`` or ``path`` and ``hdu``; for images of one file also only ``hdu``.
    """
    if "path" in objects.names:
        return ("path", "hdu") if "hdu" in objects.names else ("path",)
    one_file = len(images.files) == 1
    return ("hdu",) if one_file and "hdu" in objects.names else ()


def with_named_hdus(objects: Objects, images: Images) -> Images:
    """Return the images; if the table has no HDUs, with the HDUs in the catalogue."""
    if "hdu" not in naming_columns(objects, images) or "hdu" in images.table.column_names:
        return images
    hdus = defaultdict(set)
    for file, hdu in zip(_files(objects, images).tolist(), _hdus(objects).tolist(), strict=True):
        hdus[file].add(hdu)
    paths = {path: number for number, path in enumerate(images.files)}
    rows, numbers = [], []
    for row, path in enumerate(images.table["path"].to_pylist()):
        for hdu in sorted(hdus[paths[path]] - {-1}):
            rows.append(row)
            numbers.append(hdu)
    if not rows:
        raise ValueError(f"column 'hdu' of {objects.name} is empty for all images")
    table = images.table.take(pa.array(rows, pa.int64()))
    table = table.add_column(1, "hdu", pa.array(numbers, pa.int64()))
    return Images.of(table, images.places)


def named(objects: Objects, images: Images) -> Named | None:
    """Return the images that the objects name; None if the catalogue has no column for them.

    Raises
    ------
    ValueError
        If several files have the same name, or no object names a file.
    """
    columns = naming_columns(objects, images)
    if not columns:
        return None
    files = _files(objects, images)
    numbers = {path: number for number, path in enumerate(images.files)}
    if "hdu" not in columns:
        return Named(files, np.array([numbers[path] for path, _ in images.images], np.int64))
    groups = {(numbers[path], hdu): each for each, (path, hdu) in enumerate(images.images)}
    wanted = zip(files.tolist(), _hdus(objects).tolist(), strict=True)
    of_objects = np.array([groups.get(image, -1) for image in wanted], np.int64)
    return Named(of_objects, np.arange(len(images.images)))


def _hdus(objects: Objects) -> NDArray[np.int64]:
    column = objects.column("hdu")
    if not (pa.types.is_integer(column.type) or pa.types.is_null(column.type)):
        raise ValueError(
            f"column 'hdu' of {objects.name} is {column.type}, expected numbers of HDUs, 0 for the "
            "primary HDU"
        )
    return whole_numbers(column)


def _files(objects: Objects, images: Images) -> NDArray[np.int64]:
    """Return the number of the file that each object names, -1 for none."""
    if "path" not in naming_columns(objects, images):
        return np.zeros(len(objects), np.int64)
    column = objects.column("path")
    if not holds_text(column) and not pa.types.is_dictionary(column.type):
        raise ValueError(f"column 'path' of {objects.name} is {column.type}, expected text")
    chunked = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
    encoded = chunked.unify_dictionaries() if pa.types.is_dictionary(column.type) else chunked
    encoded = encoded.dictionary_encode().combine_chunks()
    found = _Files(images)
    numbers = [found.number(objects, text) for text in encoded.dictionary.to_pylist()]
    if numbers and max(numbers) < 0:
        raise ValueError(
            f"column 'path' of {objects.name} names none of the images: its first value is "
            f"{encoded.dictionary[0].as_py()!r}, an image is {images.images[0][0]!r}; rename the "
            "column if it has another meaning"
        )
    codes = encoded.indices.fill_null(len(numbers)).to_numpy()
    return np.array([*numbers, -1], np.int64)[codes]


class _Files:
    """Files by path, and by base name."""

    def __init__(self, images: Images) -> None:
        self._paths = {os.path.abspath(path): each for each, path in enumerate(images.files)}
        self._names = defaultdict(list)
        for path in images.files:
            self._names[os.path.basename(path)].append(path)
        self._numbers = {path: each for each, path in enumerate(images.files)}

    def number(self, objects: Objects, text: str) -> int:
        """Return the number of the file of this path or base name, -1 for none."""
        path = os.path.normpath(os.path.join(objects.folder, text))
        if path in self._paths:
            return self._paths[path]
        several = self._names.get(os.path.basename(text), [])
        if len(several) > 1:
            raise ValueError(
                f"column 'path' of {objects.name} has {text!r}, and {len(several)} images have "
                f"this name, e.g. {several[0]} and {several[1]}: write whole paths in the column"
            )
        return self._numbers[several[0]] if several else -1


# ---- Rows for several HDUs of a file -------------------------------------------------------------


def with_hdus(
    table: pa.Table, hdus: int | str | Sequence[int | str], places: Places
) -> tuple[pa.Table, dict[str, str]]:
    """Return the table with a row for each of these HDUs of each file, in a new column ``hdu``.

    `hdus` are numbers, and EXTNAMEs with ``*`` for any characters. Also return the errors of files
    that are left out, by path: they cannot be read, or lack one of the HDUs.

    Raises
    ------
    ValueError
        If the table has a column ``hdu``, `hdus` are not HDUs, or no file is left.
    """
    from readers.fits.metadata import image_metadata

    if "hdu" in table.column_names:
        raise ValueError(
            "leave out hdus=, as the images have a column 'hdu': choose HDUs by Index.where"
        )
    wanted = list(hdus) if isinstance(hdus, Sequence) and not isinstance(hdus, str) else [hdus]
    if not wanted or not all(isinstance(one, str) or is_integer(one, 0) for one in wanted):
        raise ValueError(f"hdus must be 0 or more, an EXTNAME, or several of these, got {hdus!r}")
    bad: dict[str, str] = {}
    rows, numbers = [], []
    for row, path in enumerate(table["path"].to_pylist()):
        try:
            found = image_metadata(places.at(path), hdus=wanted)
        except ReadError as error:
            bad[path] = error.reason
            continue
        rows += [row] * len(found)
        numbers += [facts["hdu"] for facts in found]
    if not rows:
        path, reason = next(iter(bad.items()))
        raise ValueError(
            f"none of {len(bad)} files can be read and has these HDUs, the first: {path}: {reason}"
        )
    return table.take(pa.array(rows)).add_column(1, "hdu", pa.array(numbers, pa.int64())), bad


def not_searched(images: Images) -> str:
    """Return a hint if the first file has more images than the searched one; otherwise ''."""
    from readers.fits.metadata import ALL, image_metadata

    path, hdu = images.images[0]
    if hdu >= 0:
        return ""
    try:
        numbers = [str(facts["hdu"]) for facts in image_metadata(images.places.at(path), hdu=ALL)]
    except ReadError:  # reported in another message
        return ""
    if len(numbers) == 1:
        return ""
    return (
        f"only the first image of each file was searched, but {path} has images in HDUs "
        f"{', '.join(numbers)}: set hdus= to search others, by numbers or EXTNAMEs"
    )
