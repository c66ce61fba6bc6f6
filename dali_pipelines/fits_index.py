"""Add to an Index where the tiles of FITS files lie, to fetch a window in one round trip."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from dali_pipelines.parallel.task_map import thread_map
from readers.byte_ranges import merged
from readers.errors import ReadError
from readers.fits.file import FitsFile, read_errors
from readers.fits.hdus import HduName, checked
from readers.fits.image import find_image
from readers.fits.tiles.image import TiledImage
from readers.fits.tiles.notes import COLUMN, TileNotes, TileOffsets
from readers.index.containers.left_out import notes_or_null
from readers.index.schema import with_column
from readers.places.opener import Places
from readers.places.storage import Storage

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from readers.contract import Row
    from readers.index.table import Index
    from readers.places.contract import Place


def with_tiles(
    index: Index,
    num_threads: int = 4,
    progress: Callable[[Iterable[Any]], Iterable[Any]] = iter,
    *,
    hdu: HduName | None = None,
    storage: Storage | None = None,
    executor: Executor | None = None,
) -> Index:
    """Return the Index with notes of where the image and its tiles lie in each FITS file.

    The header and the table of tiles of each file are read once. From then on `fits_pipeline` asks
    a remote store for all that a window needs in one round trip, not header, table and tiles one
    after the other. Local files are read as before. What is delivered never depends on the notes:
    of a file that has changed some bytes are fetched in vain.

    Parameters
    ----------
    index : Index
        Of FITS files; others are skipped.
    num_threads : int
        Files that are read at a time.
    progress : callable
        Wraps the results of the files to report progress, e.g. ``tqdm.tqdm``.
    hdu : int, str or (str, int), optional
        HDU that will be read, where the Index names none, as for `fits_pipeline`.
    storage : Storage, optional
        How remote objects are requested.
    executor : concurrent.futures.Executor, optional
        Its workers read the files, each `num_threads` at a time.

    Returns
    -------
    Index
        With the column ``fits_tiles`` (bytes: some 70, and one for each tile, up to 4096; null for
        other files, such as gzipped ones). Save it to keep them. The log counts those that cannot
        be read, and names the first.

    Raises
    ------
    ValueError
        If the Index names other HDUs for all its rows.
    """
    import pyarrow as pa

    check_hdu(index, hdu)
    wanted = checked(hdu)
    columns = index.columns().with_places(Places(storage or Storage()))
    images: dict[Hashable, int] = {}
    numbers: list[int] = []
    rows: list[Row] = []
    for row in map(columns.row, range(len(index))):
        key = row.name, row.hdu, row.plane
        if key not in images:
            images[key] = len(rows)
            rows.append(row)
        numbers.append(images[key])
    with closing(thread_map(partial(_packed_notes, wanted), rows, num_threads, executor)) as found:
        notes = pa.array(notes_or_null(COLUMN, progress(found)), pa.large_binary())
    notes = notes.take(pa.array(numbers, pa.int64()))
    return type(index)(with_column(index.table, COLUMN, notes))


def check_hdu(index: Index, hdu: HduName | None) -> None:
    """Raise ValueError if an HDU is asked for, and the Index names others for all its rows."""
    import pyarrow.compute as pc

    if hdu is None:
        return
    names = {"hdu", *(f"hdu_{part}" for part in index.parts)}
    for name in sorted(names.intersection(index.table.column_names)):
        first, last = pc.min_max(index.table[name]).as_py().values()
        if not (index.table[name].null_count or first == last == hdu):
            numbers = f"HDU {first}" if first == last else f"HDUs {first} to {last}"
            raise ValueError(
                f"the column {name!r} of the Index names {numbers}, and hdu={hdu!r}: leave out "
                "hdu, or make the Index of that HDU, by index --hdu, or drop the column, by "
                f"Index(index.table.drop_columns([{name!r}]))"
            )


def _packed_notes(wanted: HduName | None, row: Row) -> bytes | ReadError | None:
    wanted = wanted if row.hdu is None else row.hdu
    place = _Recorder(row.place)
    try:
        with (
            read_errors(row.name, wanted, row.number),
            FitsFile.at(place, wanted) as file,
        ):
            image = find_image(file).image
            if image is None or file.place is not place:
                return None  # astropy decodes it, or it is gzipped
            header = place.ranges()
            if isinstance(image, TiledImage):
                noted = TileOffsets.read(image, place, row.plane)
                return None if noted is None else TileNotes(header, noted).pack()
            return TileNotes(header, image).pack()
    except ReadError as error:
        return error


class _Recorder:
    """A place that keeps what is read of it; it has no stamp, so that nothing is known before."""

    stamp = etag = None

    def __init__(self, place: Place) -> None:
        self._place = place
        self._reads: list[tuple[int, int]] = []
        self.name = place.name

    @property
    def nbytes(self) -> int:
        return self._place.nbytes

    def ranges(self) -> list[tuple[int, int]]:
        """Return what was read."""
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
