"""The table of cutouts: a row for each object of a catalogue on each image that shows it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from readers.index.arrow import pa
from readers.index.catalogue.images import (
    Images,
    Named,
    named,
    naming_columns,
    not_searched,
    with_hdus,
    with_named_hdus,
)
from readers.index.catalogue.moved import moved_parts
from readers.index.catalogue.pairs import Pairs, Progress, pixel_pairs, sky_pairs
from readers.index.catalogue.tables import ROW, Objects
from readers.index.rows.windows import CORNERS, Windows, pixel_pair, with_windows
from readers.index.versions import with_versions
from readers.messages import printable
from readers.places.opener import LOCAL, Places
from readers.places.storage import Storage
from readers.sampling.row_window import Outside
from readers.values import check_bool, is_integer

logger = logging.getLogger(__name__)

_ON_NONE = "on no image"


@dataclass(frozen=True, kw_only=True)
class Cutouts:
    """The settings of `readers.index.table.Index.cutouts`."""

    size: int | Sequence[int]
    x: str = "x"
    y: str = "y"
    ra: str = "ra"
    dec: str = "dec"
    origin: int = 0
    outside: Outside = "reject"
    subpixel: bool = False
    columns: Sequence[str] | Mapping[str, str] | None = None
    hdus: int | str | Sequence[int | str] | None = None

    def __post_init__(self) -> None:
        pixel_pair("size", self.size)
        for name in (self.x, self.y, self.ra, self.dec):
            if not isinstance(name, str):
                raise TypeError(f"x, y, ra and dec must be names of columns, got {name!r}")
        if self.outside not in get_args(Outside):
            raise ValueError(
                f"outside must be {', '.join(map(repr, get_args(Outside)))}, got {self.outside!r}"
            )
        check_bool("subpixel", self.subpixel)
        if not is_integer(self.origin) or self.origin not in (0, 1):
            raise ValueError(
                "origin must be 0 or 1, the number of the first pixel in the columns of pixels, "
                f"got {self.origin!r}"
            )

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of the windows, in pixels."""
        return pixel_pair("size", self.size)

    def check(self, objects: Objects) -> None:
        """Raise KeyError if the catalogue lacks a required column."""
        objects.check(list(self.columns or ()))
        for names, is_given in zip((self._pixels, self._sky), self._given, strict=True):
            if is_given:
                objects.check(names)
        if not any(self._given) and not any(map(objects.has, (self._pixels, self._sky))):
            objects.check_either(self._pixels, self._sky)

    @property
    def _pixels(self) -> tuple[str, str]:
        return self.x, self.y

    @property
    def _sky(self) -> tuple[str, str]:
        return self.ra, self.dec

    @property
    def _given(self) -> tuple[bool, bool]:
        """Whether the user named columns of pixels, and columns of positions on the sky."""
        return self._pixels != (Cutouts.x, Cutouts.y), self._sky != (Cutouts.ra, Cutouts.dec)

    def apply(
        self,
        table: pa.Table,
        objects: Objects,
        progress: Progress = iter,
        places: Places = LOCAL,
    ) -> tuple[pa.Table | None, SkippedObjects]:
        """Return the table of the cutouts, or None if there are none; and the objects left out.

        `progress` wraps the list of the opened images, e.g. tqdm.
        """
        self.check(objects)
        table, bad_files = (table, {}) if self.hdus is None else with_hdus(table, self.hdus, places)
        images = with_named_hdus(objects, Images.of(table, places))
        names = named(objects, images)
        kept = _kept_columns(objects, images, self.columns)
        is_of_sky = not self._uses_pixels(objects, names, images)
        if is_of_sky:
            has_position, pairs = self._by_sky(objects, names, images, progress)
        else:
            # Without names, all objects are on the only image.
            names = names or Named(np.zeros(len(objects), np.int64), np.zeros(1, np.int64))
            has_position, pairs = self._by_pixels(objects, names, images, progress)
        corners = corners_of(
            pairs.positions, pairs.sizes, self.shape, self.outside, subpixel=self.subpixel
        )
        why = self._why_not(has_position, names, pairs)
        why[pairs.objects[corners.overlaps]] = self._at_edge
        why[pairs.objects[corners.kept]] = ""
        bad = bad_files | {images.name(n): reason for n, reason in pairs.bad.items()}
        made = None
        if is_of_sky and (moved := moved_parts(images, pairs.images[corners.kept])):
            logger.warning("%s", moved)
        if corners.kept.any():
            windows = Windows(self.shape, self.outside)
            made = with_windows(_table(images, kept, pairs, corners), windows)
        hint = not_searched(images) if _ON_NONE in why else ""
        if is_of_sky and not len(pairs.objects):
            hint = "; ".join(filter(None, [hint, self._where(objects)]))
        return made, SkippedObjects.of(why, bad, hint)

    def _where(self, objects: Objects) -> str:
        """Return the ranges of the positions: they reveal hours, radians and swapped columns."""
        ranges = []
        for name in self._sky:
            degrees = objects.degrees(name)
            if (known := degrees[np.isfinite(degrees)]).size:
                ranges.append(f"{name} from {known.min():.6g} to {known.max():.6g}")
        return f"the catalogue has {' and '.join(ranges)} in degrees" if ranges else ""

    def _by_pixels(
        self, objects: Objects, names: Named, images: Images, progress: Progress
    ) -> tuple[NDArray[np.bool_], Pairs]:
        """Return a mask of the objects with a position, and their pairs with images."""
        positions = np.stack([objects.pixels(self.y), objects.pixels(self.x)], -1) - self.origin
        has_position = np.asarray(np.isfinite(positions).all(axis=1))
        return has_position, pixel_pairs(positions, names, images, progress)

    def _by_sky(
        self, objects: Objects, names: Named | None, images: Images, progress: Progress
    ) -> tuple[NDArray[np.bool_], Pairs]:
        """Return a mask of the objects with a position, and their pairs with images."""
        ra, dec = objects.degrees(self.ra), objects.degrees(self.dec)
        has_position = np.isfinite(ra) & (np.abs(dec) <= 90)
        ra, dec = np.where(has_position, ra, np.nan), np.where(has_position, dec, np.nan)
        return has_position, sky_pairs(ra, dec, names, images, self.shape, progress)

    def _uses_pixels(self, objects: Objects, names: Named | None, images: Images) -> bool:
        """Return whether to use pixels of images, not positions on the sky."""
        if self._given == (False, True) or not objects.has(self._pixels):
            return False
        if names is None and len(images.images) > 1:
            if objects.has(self._sky) and self._given != (True, False):
                return False
            raise ValueError(
                f"{objects.name} has pixels {self.x!r} and {self.y!r}, but there are "
                f"{len(images.images)} images: add a column 'path' with the image of each object"
            )
        if names is not None:
            names.check_unique(objects, images)
        return True

    def _why_not(
        self, has_position: NDArray[np.bool_], names: Named | None, pairs: Pairs
    ) -> NDArray[np.object_]:
        """Return for each object the reason why it is on no image."""
        why = np.full(len(has_position), _ON_NONE, object)
        if names is not None:
            why[~np.isin(names.groups, names.of_images)] = (
                "of a file or HDU that is not among the images"
            )
            skipped = names.of_images[list(pairs.bad)]
            why[np.isin(names.groups, skipped)] = "on an image that was left out"
        why[~has_position] = "without a position"
        return why

    @property
    def _at_edge(self) -> str:
        """Reason why an object at the edge of an image makes no row."""
        window = "{}x{}".format(*self.shape)
        if self.outside == "shift":
            return f"beside an image, or on one that is smaller than the window of {window}"
        return f"with a window of {window} that crosses an edge"


def cutout_table(
    table: pa.Table, objects: Objects, settings: Cutouts, storage: Storage
) -> pa.Table:
    """Return the table of the cutouts of images, see `readers.index.table.Index.cutouts`."""
    files = with_versions(table, storage)
    made, skipped = settings.apply(files, objects, places=Places(storage))
    if made is None:
        raise ValueError(f"no object makes a row: {skipped.message()}")
    if skipped:
        logger.warning("%s", skipped.message())
    return made


def _kept_columns(
    objects: Objects, images: Images, columns: Sequence[str] | Mapping[str, str] | None
) -> pa.Table:
    """Return the columns of the catalogue to keep, and `ROW`."""
    if "offset" in images.table.column_names:
        raise ValueError("the images are in containers, but cutouts need files: unpack the images")
    if clashes := {*CORNERS, ROW} & set(images.table.column_names):
        raise ValueError(
            f"the images already have columns {', '.join(sorted(clashes))}, which cutouts add: "
            "rename or drop these columns"
        )
    kept = objects.kept(columns, without=naming_columns(objects, images))
    taken = {*images.table.column_names, *CORNERS, ROW, "path", "hdu", "plane"}
    if twice := [name for name in kept.column_names if name in taken]:
        renamed = columns if isinstance(columns, Mapping) else {}
        old = next((old for old, new in renamed.items() if new in twice), twice[0])
        raise ValueError(
            f"{objects.name} has columns {', '.join(twice)}, and so have the images or windows: "
            "set columns= to the columns to keep, as a mapping to rename them, e.g. "
            f"{{{old!r}: 'catalogue_{old}'}}"
        )
    columns_of = dict(zip(kept.column_names, kept.columns, strict=True))
    return pa.table(columns_of | {ROW: np.arange(len(objects))})  # even if no other column is kept


def _table(images: Images, kept: pa.Table, pairs: Pairs, corners: Corners) -> pa.Table:
    """Return the rows of the pairs to keep, at least one."""
    made = np.flatnonzero(corners.kept)
    rows, places = _rows_of(images, pairs.images[made])
    made = made[places]
    result = images.table.take(pa.array(rows))
    result = result.append_column("y", pa.array(corners.y[made]))
    result = result.append_column("x", pa.array(corners.x[made]))
    chosen = kept.take(pa.array(pairs.objects[made]))
    for name in chosen.column_names:
        result = result.append_column(name, chosen[name])
    return result


def _rows_of(
    images: Images, of_pairs: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return a row of the table of images for each pair and plane, and the pair of each."""
    starts = np.searchsorted(of_pairs, images.numbers, "left")
    counts = np.searchsorted(of_pairs, images.numbers, "right") - starts
    rows = np.repeat(np.arange(len(images.numbers)), counts)
    firsts = np.cumsum(counts) - counts
    return rows, np.arange(len(rows)) - np.repeat(firsts - starts, counts)


# ---- Windows around positions --------------------------------------------------------------------


class Corners(NamedTuple):
    """First row and column of windows in images, and masks of windows; shape (n,) each."""

    y: NDArray[np.int64] | NDArray[np.float64]
    """First row, counted from 0. It may be outside the image, and a fraction with `subpixel`."""
    x: NDArray[np.int64] | NDArray[np.float64]
    """First column, like `y`."""
    overlaps: NDArray[np.bool_]
    """Whether the window shows a part of the image."""
    kept: NDArray[np.bool_]
    """Whether the window makes a row."""


def corners_of(
    positions: NDArray[np.float64],
    images: NDArray[np.int64],
    size: tuple[int, int],
    outside: Outside,
    *,
    subpixel: bool,
) -> Corners:
    """Return the corners of windows that are centred on positions.

    Parameters
    ----------
    positions : ndarray, shape (n, 2)
        (y, x) in pixels, counted from the middle of the first pixel.
    images : ndarray, shape (n, 2)
        Height and width of the image of each position.
    size : (int, int)
        Height and width of all windows.
    outside : {"reject", "fill", "shift"}
        Windows to keep: wholly inside the image, overlapping it, or with a position on it.
    subpixel : bool
        Begin a window at a fraction of a pixel, so that the position is exactly in its middle.
        Otherwise it begins at the same pixel as in `astropy.nddata.Cutout2D`.
    """
    shape = np.array(size)
    # Move distant positions closer, so that they fit into integers, but not onto an image.
    near = np.clip(positions, -shape - 2, images + shape + 2)
    first = near - (shape - 1) / 2 if subpixel else np.ceil(near - shape / 2).astype(np.int64)
    inside = (first >= 0) & (first + shape <= images)
    # First and last row, or column, of the window that are inside the image.
    start = np.ceil(np.maximum(-first, 0))
    stop = np.floor(np.minimum(images - first, shape) - 1)
    overlaps = start <= stop
    on_image = (positions >= -0.5) & (positions < images - 0.5) & (images >= shape)
    kept = {"reject": inside, "fill": overlaps, "shift": on_image}[outside]
    y, x = first.T
    return Corners(y, x, np.asarray(overlaps.all(axis=1)), np.asarray(kept.all(axis=1)))


# ---- Objects and images without a row ------------------------------------------------------------

_LISTED = 5
"""Maximum number of rows and images that the message names."""


@dataclass(frozen=True)
class SkippedObjects:
    """Objects without a row, by reason, and images that were left out."""

    count: int
    """Number of objects in the catalogue."""
    objects: Mapping[str, NDArray[np.int64]]
    """Rows of the catalogue, counted from 0, by reason."""
    images: Mapping[str, str]
    """Reason why an image was left out, by its name."""
    hint: str = ""
    """Remedy for objects on no image."""

    @classmethod
    def of(
        cls, why: NDArray[np.object_], images: Mapping[str, str], hint: str = ""
    ) -> SkippedObjects:
        """Return the skipped objects. `why` is the reason of each object, '' if it makes a row."""
        reasons = sorted(set(why.tolist()) - {""})
        return cls(len(why), {each: np.flatnonzero(why == each) for each in reasons}, images, hint)

    def __bool__(self) -> bool:
        return bool(self.objects or self.images)

    def each(self) -> Iterator[tuple[int, str]]:
        """Yield each skipped row of the catalogue, with the reason."""
        for reason, rows in self.objects.items():
            yield from ((row, reason) for row in rows.tolist())

    def message(self) -> str:
        """Return a line with counts and first examples."""
        parts = []
        if self.objects:
            total = sum(map(len, self.objects.values()))
            reasons = [f"{len(rows)} {why} ({_rows(rows)})" for why, rows in self.objects.items()]
            parts.append(f"{total} of {self.count} objects make no row: {', '.join(reasons)}")
        if self.images:
            first = [f"{name}: {why}" for name, why in list(self.images.items())[:_LISTED]]
            more = len(self.images) - len(first)
            named = "; ".join([*first, f"and {more} more"] if more else first)
            are = "image is" if len(self.images) == 1 else "images are"
            parts.append(f"{len(self.images)} {are} left out: {printable(named)}")
        return "; ".join(filter(None, [*parts, self.hint]))


def _rows(rows: NDArray[np.int64]) -> str:
    listed = ", ".join(map(str, rows[:_LISTED].tolist()))
    more = ", ..." if len(rows) > _LISTED else ""
    return f"catalogue row{'s' if len(rows) > 1 else ''} {listed}{more}"
