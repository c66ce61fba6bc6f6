"""Add facts from FITS files to an Index: header keywords, and positions of images and tiles."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from dali_pipelines.parallel.task_map import thread_map
from readers.byte_ranges import merged
from readers.errors import ReadError
from readers.fits.file import FitsFile, read_errors
from readers.fits.headers import HduName, checked
from readers.fits.image import find_image
from readers.fits.metadata import ALL
from readers.fits.tiles.image import TiledImage
from readers.fits.tiles.offsets import COLUMN, ImageOffsets, TileOffsets
from readers.index.keywords import checked_keys, each_image, with_keywords
from readers.index.schema import with_column
from readers.index.skipped import notes_or_null
from readers.places.opener import Places
from readers.places.storage import Storage
from readers.values import check_bool

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from readers.contract import Row
    from readers.index.table import Index
    from readers.places.contract import Place

logger = logging.getLogger(__name__)

_MOST_HEADERS = 64
"""Up to this HDU number the positions of all preceding headers are recorded, too. Readers cache the
headers that they have read."""


def with_keys(
    index: Index,
    keys: Sequence[str],
    num_threads: int = 4,
    progress: Callable[[Iterable[Any]], Iterable[Any]] = iter,
    *,
    hdu: HduName | None = None,
    inherit: bool = False,
    storage: Storage | None = None,
    executor: Executor | None = None,
) -> Index:
    """Return the Index with columns of header keywords, as of ``dali-pipelines index --keys``.

    Parameters
    ----------
    index : Index
        Index of FITS files; other files have no keywords.
    keys : sequence of str
        Keywords, in any case, such as ``["DATE-OBS", "WAVELNTH"]``.
    num_threads : int
        Files that are read concurrently.
    progress : callable
        Wraps the results of the files to report progress, e.g. ``tqdm.tqdm``.
    hdu : int, str or (str, int), optional
        HDU of the image if the Index names none; by default the first with an image.
    inherit : bool
        Whether keywords that are missing from the header of an image are taken from the primary
        header, even without INHERIT = T.
    storage : Storage, optional
        Settings for requests of remote objects.
    executor : concurrent.futures.Executor, optional
        Executor whose workers read the files, each `num_threads` at a time.

    Returns
    -------
    Index
        Index with a column for each keyword, see `readers.index.fact_table.FactTable`: ``date_obs``
        for DATE-OBS. Times are in UTC, converted from the time scale TIMESYS. Missing values are
        null. Images that cannot be read keep their rows. A log message counts them, and texts that
        are not times, and names keywords that no header has. For samples of several files, keywords
        come from the file in column ``path``, the first existing channel.

    Raises
    ------
    ValueError
            If `keys` is not a sequence of texts, if a new column would have the name of another new
            column or of a column that locates files, if `hdu` is ``"all"``, or if the Index names
            another HDU for each row.
    """
    check_hdu(index, hdu)
    wanted = checked_keys(keys)
    check_bool("inherit", inherit)
    if hdu == ALL:
        raise ValueError(
            f"hdu must be one HDU, got {hdu!r}: make the Index with "
            f"dali-pipelines index --hdu {ALL}"
        )
    index = index.with_versions(storage)
    columns = index.columns().with_places(Places(storage or Storage()))

    def read_all(function: Callable[[Row], Any], rows: Sequence[Row]) -> Iterator[Any]:
        with closing(thread_map(function, rows, num_threads, executor)) as found:
            yield from progress(found)

    table = with_keywords(index.table, columns, wanted, read_all, hdu=checked(hdu), inherit=inherit)
    return type(index)(table)


def with_tiles(
    index: Index,
    num_threads: int = 4,
    progress: Callable[[Iterable[Any]], Iterable[Any]] = iter,
    *,
    hdu: HduName | None = None,
    storage: Storage | None = None,
    executor: Executor | None = None,
) -> Index:
    """Return the Index with the positions of the image and its tiles in each FITS file.

    The header and tile table of each file are read once. After that `fits_pipeline` reads a window
    from a remote store in one round trip, instead of header, table and tiles one after the other.
    Local files are read as before. The delivered pixels do not change, even if a file has changed
    since; then only some bytes are fetched in vain.

    Parameters
    ----------
    index : Index
        Index of FITS files; other files are skipped.
    num_threads : int
        Files that are read concurrently.
    progress : callable
        Wraps the results of the files to report progress, e.g. ``tqdm.tqdm``.
    hdu : int, str or (str, int), optional
        HDU to read if the Index names none, as in `fits_pipeline`.
    storage : Storage, optional
        Settings for requests of remote objects.
    executor : concurrent.futures.Executor, optional
        Executor whose workers read the files, each `num_threads` at a time.

    Returns
    -------
    Index
        Index with the column ``fits_tiles``: about 70 bytes, plus one per tile, up to 4096; null
        for other files, such as gzipped ones. Save it to keep the column. A log message counts the
        files that cannot be read, and names the first.

    Raises
    ------
    ValueError
        If the Index names another HDU for each row.
    """
    import pyarrow as pa

    check_hdu(index, hdu)
    wanted = checked(hdu)
    index = index.with_versions(storage)  # positions are only valid for one version of a file
    rows, numbers = each_image(index.columns().with_places(Places(storage or Storage())))
    with closing(thread_map(partial(_packed_notes, wanted), rows, num_threads, executor)) as found:
        notes = pa.array(notes_or_null(COLUMN, progress(found)), pa.large_binary())
    return type(index)(with_column(index.table, COLUMN, notes.take(numbers)))


def check_hdu(index: Index, hdu: HduName | None) -> None:
    """Raise ValueError if an HDU is requested, but the Index names another for each row."""
    import pyarrow.compute as pc

    if hdu is None:
        return
    names = {"hdu", *(f"hdu_{part}" for part in index.parts)}
    for name in sorted(names.intersection(index.table.column_names)):
        first, last = pc.min_max(index.table[name]).as_py().values()
        if not (index.table[name].null_count or first == last == hdu):
            numbers = f"HDU {first}" if first == last else f"HDUs {first} to {last}"
            raise ValueError(
                f"the column {name!r} of the Index names {numbers}, but hdu={hdu!r}: leave out "
                "hdu, make the Index of that HDU with dali-pipelines index --hdu, or drop the "
                f"column: Index(index.table.drop_columns([{name!r}]))"
            )


def _packed_notes(wanted: HduName | None, row: Row) -> bytes | ReadError | None:
    wanted = wanted if row.hdu is None else row.hdu
    is_far = isinstance(wanted, int) and wanted > _MOST_HEADERS
    place = row.place if is_far else _Recorder(row.place)
    try:
        with (
            read_errors(row.name, wanted, row.number),
            FitsFile.at(place, wanted) as file,
        ):
            found = find_image(file)
            image = found.image
            if image is None or file.place is not place:
                return None  # decoded by astropy, or gzipped
            header = [(found.header_start, found.start)]
            if isinstance(place, _Recorder):
                header = place.ranges()
            if isinstance(image, TiledImage):
                noted = TileOffsets.read(image, place, row.plane)
                return None if noted is None else ImageOffsets(header, noted).pack()
            return ImageOffsets(header, image).pack()
    except ReadError as error:
        return error


class _Recorder:
    """Place that records the ranges that are read. It has no stamp: known offsets are not used."""

    stamp = etag = None

    def __init__(self, place: Place) -> None:
        self._place = place
        self._reads: list[tuple[int, int]] = []
        self.name = place.name

    @property
    def nbytes(self) -> int:
        return self._place.nbytes

    def ranges(self) -> list[tuple[int, int]]:
        """Return the ranges that were read."""
        starts, stops = np.array(self._reads, np.int64).T
        starts, stops = merged(starts, stops, 0)
        return list(zip(starts.tolist(), stops.tolist(), strict=True))

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> None:
        self._place.fetch(ranges)

    def read(self, start: int, stop: int) -> bytes:
        found = self._place.read(start, stop)
        self._reads.append((start, start + len(found)))
        return found

    def read_many(self, pieces: Sequence[tuple[int, memoryview]]) -> None:
        self._reads += [(start, start + len(buffer)) for start, buffer in pieces]
        self._place.read_many(pieces)

    def __enter__(self) -> Self:
        self._place.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._place.__exit__(*error)
