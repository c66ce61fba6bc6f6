"""Add the positions of MCU rows in JPEG files to an Index, for fast windows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from typing import TYPE_CHECKING, Any

from dali_pipelines.parallel.task_map import thread_map
from readers.index.schema import with_column
from readers.index.skipped import notes_or_null
from readers.jpeg.header import NoRowsError
from readers.places.opener import Places
from readers.places.storage import Storage

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from readers.contract import Row
    from readers.index.table import Index

COLUMN = "mcu_rows"
"""Column of the Index that `readers.jpeg.reader.JpegReader` uses."""


def with_mcu_rows(
    index: Index,
    num_threads: int = 4,
    progress: Callable[[Iterable[Any]], Iterable[Any]] = iter,
    *,
    storage: Storage | None = None,
    executor: Executor | None = None,
) -> Index:
    """Return the Index with the positions of the rows of MCUs in each JPEG file.

    Each file is read once, and decoded as far as needed. After that `jpeg_pipeline` reads and
    decodes only the rows that a window needs. The pixels stay the same. A file is still read whole
    if it has another coding (progressive, with restart markers, not JPEG), if its size or header
    has changed, or if the rows of a window have other checksums. In the last case its entropy-coded
    data are checked.

    Parameters
    ----------
    index : Index
        Index of JPEG files; other files are skipped.
    num_threads : int
        Files that are processed concurrently.
    progress : callable
        Wraps the results of the files to report progress, e.g. ``tqdm.tqdm``.
    storage : Storage, optional
        Settings for requests of remote objects.
    executor : concurrent.futures.Executor, optional
        Executor whose workers read the files, each `num_threads` at a time.

    Returns
    -------
    Index
        Index with the column ``mcu_rows``: about 18 bytes per 16 rows of pixels; null for files
        that are read whole. Save it to keep the column. A log message counts the files that cannot
        be read, and names the first.
    """
    import pyarrow as pa

    index = index.with_versions(storage)
    columns = index.columns().with_places(Places(storage or Storage()))
    rows = map(columns.row, range(len(index)))
    with closing(thread_map(_packed_rows, rows, num_threads, executor)) as found:
        notes = pa.array(notes_or_null(COLUMN, progress(found)), pa.large_binary())
    return type(index)(with_column(index.table, COLUMN, notes))


def _packed_rows(row: Row) -> bytes | OSError | None:
    from readers.jpeg.mcu.find import find_mcu_rows

    try:
        with row.place as place:
            return find_mcu_rows(place.read(0, place.nbytes)).pack()
    except NoRowsError:
        return None
    except OSError as error:
        return error
