"""Index of the cutouts of a catalogue, and columns of a catalogue by time."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Self

from readers.index.catalogue.cutouts import Cutouts
from readers.index.catalogue.nearest import nearest_columns
from readers.index.catalogue.tables import Catalogue, Objects
from readers.index.sources import IndexSources
from readers.index.times import nanoseconds
from readers.index.versions import with_versions
from readers.places.opener import Places
from readers.places.storage import Storage
from readers.sampling.row_window import Outside

if TYPE_CHECKING:
    from astropy.units import Quantity

logger = logging.getLogger(__name__)


class IndexCutouts(IndexSources):
    """Methods of an Index that take a catalogue; see `readers.index.table.Index`."""

    @classmethod
    def cutouts(
        cls,
        images: IndexSources | str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        catalogue: Catalogue,
        size: int | Sequence[int],
        *,
        x: str = Cutouts.x,
        y: str = Cutouts.y,
        ra: str = Cutouts.ra,
        dec: str = Cutouts.dec,
        origin: int = Cutouts.origin,
        outside: Outside = Cutouts.outside,
        subpixel: bool = Cutouts.subpixel,
        columns: Sequence[str] | Mapping[str, str] | None = Cutouts.columns,
        hdus: int | str | Sequence[int | str] | None = Cutouts.hdus,
        storage: Storage | None = None,
    ) -> Self:
        """Make an Index with a row for each object of a catalogue on each image that shows it.

        Its columns ``y`` and ``x`` hold the first row and column of a window with the object in the
        middle; ``window="row"`` cuts there, with ``crop=size``.

        Parameters
        ----------
        images : Index, or what `scan` takes
            The images, a row for each. Without a column ``hdu``, the first image of each file, or
            those of `hdus`.
        catalogue : path, astropy Table or pyarrow Table
            A row for each object. Files are CSV, ECSV, Parquet, FITS tables or VOTables. It has
            pixels (`x` and `y`) or positions on the sky (`ra` and `dec`); of both, those whose
            names are given, else the pixels if it is clear of which image. A column ``path`` names
            the image of each object by its path (relative to the catalogue) or base name, and
            ``hdu`` the number of the HDU, which adds rows for these HDUs to `images` without such a
            column. Without ``path``, pixels are those of the only image, and positions are looked
            for on all images.
        size : int or sequence of int
            (height, width) of the windows in pixels, or one number for both.
        x, y : str
            Columns of pixels along rows and columns of the image.
        ra, dec : str
            Columns of positions in ICRS, in degrees, or in the unit of the column. FITS tables
            cannot say hourangle: set the unit in an astropy Table.
        origin : {0, 1}
            Number of the first pixel's middle in columns `x` and `y`: 1 as in FITS and SExtractor.
        outside : {"reject", "fill", "shift"}
            At edges, keep objects whose window is wholly inside the image; or those whose window
            overlaps it, though the object may be beside it; or those that are on it. ``y`` and
            ``x`` are not moved: give the same `outside` to the pipeline, or ``"fill"`` for those of
            ``"shift"``.
        subpixel : bool
            Let windows begin at fractions of a pixel, so that the object is exactly in the middle:
            ``y`` and ``x`` are float64, and the pipeline resamples. By default they are int64 and
            begin where `astropy.nddata.Cutout2D` does.
        columns : sequence of str, or mapping of str to str, optional
            Columns of the catalogue to keep, by default all but ``path`` and ``hdu``. A mapping
            gives them other names. By default ``x`` and ``y`` are kept as ``catalogue_x`` and
            ``catalogue_y``.
        hdus : int, str or sequence of these, optional
            HDUs of each file of `images` without a column ``hdu``: numbers, and EXTNAMEs with ``*``
            for any characters, e.g. ``"SCI*"`` for mosaics. All HDUs of a name are taken. Files
            that lack one, or are cut off, are left out.
        storage : Storage, optional
            How remote objects are requested.

        Returns
        -------
        Index
            By image, then by object: the columns of `images`, ``y``, ``x``, those of the catalogue,
            and ``catalogue_row``, counted from 0.

        Raises
        ------
        FileNotFoundError
            If there is no such catalogue or image.
        KeyError
            If the catalogue lacks a column; it lists those that exist.
        TypeError
            If it is not a table, or a column to keep is of a kind that an Index cannot hold.
        ValueError
            If no row is left, positions are no numbers, a column would be there twice, or names of
            images are ambiguous.

        Notes
        -----
        The log counts, in one warning, objects that make no row, because they have no position
        (null, NaN, or a declination beyond 90 degrees), are on no image or too near to an edge; and
        images that cannot be read or have no sky coordinates.

        Sky coordinates (WCS) of an image are those of astropy, with its distortions, for each
        object within a circle around the image. Headers are read from all images for positions on
        the sky; for pixels, only without columns ``height`` and ``width``.
        """
        settings = Cutouts(
            size=size,
            x=x,
            y=y,
            ra=ra,
            dec=dec,
            origin=origin,
            outside=outside,
            subpixel=subpixel,
            columns=columns,
            hdus=hdus,
        )
        index = images if isinstance(images, IndexSources) else cls.scan(images, storage=storage)
        places = Places(storage or Storage())
        files = with_versions(index.table, places.storage)
        table, left_out = settings.apply(files, Objects(catalogue), places=places)
        if table is None:
            raise ValueError(f"no object makes a row: {left_out.message()}")
        if left_out:
            logger.warning("%s", left_out.message())
        return cls(table)

    def with_nearest(
        self,
        catalogue: Catalogue,
        tolerance: float | str | Quantity,
        *,
        time: str = "t_obs",
        catalogue_time: str = "time",
        columns: Sequence[str] | Mapping[str, str] | None = None,
    ) -> Self:
        """Return an Index with columns of a table: for each row, of that nearest to it in time.

        For labels that come with times of their own, such as fluxes of GOES.

        Parameters
        ----------
        catalogue : path, astropy Table or pyarrow Table
            A row for each time, in any order. Files are CSV, ECSV, Parquet, FITS tables or
            VOTables.
        tolerance : float, str or Quantity
            How far a row of the table may be from the time of an image at most, in seconds or as
            ``"12 min"``.
        time : str
            Column of times of the Index; that of `group` is ``time``.
        catalogue_time : str
            Column of times of the table, in UTC; astropy's Time is converted to it. Text is ISO
            8601 in UTC, or ends with ``_TAI``; empty text is not a time. A leap second counts as
            the second after it. Columns of FITS tables are times as astropy writes them, in pairs
            of Julian dates; numbers that count from MJDREF are not.
        columns : sequence of str, or mapping of str to str, optional
            Columns of the table to take, by default all but its times. A mapping gives them other
            names. Without one ``y`` and ``x`` are taken as ``catalogue_y`` and ``catalogue_x``, as
            those of an Index are corners of windows.

        Returns
        -------
        Index
            The same rows. A row without a time, or without one of the table near enough, has null.
            Of two that are equally near it has the earlier one.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        KeyError
            If there is no such column; it lists those that exist.
        TypeError
            If a column does not hold times, or one to take is of a kind that an Index cannot hold.
        ValueError
            If the tolerance is not a duration, a column would be there twice, or say what rows read
            (``hdu``, ``plane``, text in ``path_...``), or a time of the table is none, or not from
            1678 to 2261.

        Notes
        -----
        The log counts the rows that have none.
        """
        table, without = nearest_columns(
            self.table,
            Objects(catalogue),
            nanoseconds("tolerance", tolerance),
            time=time,
            object_time=catalogue_time,
            columns=columns,
        )
        if without:
            logger.warning(
                "%d of %d rows have no time of the catalogue within %s, and null in its columns",
                *(without, len(self.table), tolerance),
            )
        return type(self)(table)
