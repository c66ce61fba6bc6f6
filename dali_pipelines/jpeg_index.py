"""Add the rows of MCUs of JPEG files to an Index, to decode windows alone."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from readers.jpeg.header import HuffmanTable, JpegHeader, NoRowsError
from readers.jpeg.mcu_rows import DamagedRowsError, McuRows, is_current
from readers.places.contract import Place
from readers.places.opener import Places
from readers.places.storage import Storage

if TYPE_CHECKING:
    from readers.index.table import Index

COLUMN = "mcu_rows"
"""Column of the Index that `readers.jpeg.reader.JpegReader` reads."""
_LOOKED_AT = 1000
"""Rows of the Index that are searched for a value."""


def with_mcu_rows(
    index: Index,
    num_threads: int = 4,
    progress: Callable[[Iterable[Any]], Iterable[Any]] = iter,
    *,
    storage: Storage | None = None,
) -> Index:
    """Return the Index with the positions of the rows of MCUs in each JPEG file.

    Each file is read once, and decoded as far as needed to find them. From then on `jpeg_pipeline`
    reads and decodes only the rows that a window needs, and delivers the same pixels as before. A
    file with another coding (progressive, with restart markers, not JPEG), or whose size or header
    has changed, is read whole. So is a file in which the rows that a window needs have other
    checksums; its entropy-coded data are then checked.

    Parameters
    ----------
    index : Index
        Of JPEG files; others are skipped.
    num_threads : int
        Files that are processed at a time.
    progress : callable
        Wraps the results of the files to report progress, e.g. ``tqdm.tqdm``.
    storage : Storage, optional
        How remote objects are requested.

    Returns
    -------
    Index
        With the column ``mcu_rows`` (bytes, some 18 for 16 rows of pixels; null where there are
        none). Save it to keep them.
    """
    import pyarrow as pa

    columns = index.columns().with_places(Places(storage or Storage()))
    places = (columns.row(number).place for number in range(len(index)))
    with ThreadPoolExecutor(num_threads) as pool:
        found = progress(pool.map(_packed_rows, places))
        rows = pa.array(list(found), pa.large_binary())
    table = index.table
    if COLUMN in table.column_names:
        table = table.drop_columns([COLUMN])
    return type(index)(table.append_column(COLUMN, rows))


def warn_of_old_rows(index: Index) -> None:
    """Warn if the rows of MCUs in an Index are of an older form: then files are read whole.

    Only the first value is checked.
    """
    if COLUMN not in index.table.column_names:
        return
    packed = next(iter(index.table[COLUMN].slice(0, _LOOKED_AT).drop_null()), None)
    if packed is not None and not is_current(packed.as_py()):
        warnings.warn(
            "the rows of MCUs in the Index are of an older version of this toolkit, without "
            "checksums, so that JPEG files are read whole: make it again with index.py --mcu_rows",
            stacklevel=3,
        )


def _packed_rows(place: Place) -> bytes | None:
    try:
        with place:
            return find_mcu_rows(place.read(0, place.nbytes)).pack()
    except (NoRowsError, OSError):  # if the file is bad, the Reader reports it
        return None


def find_mcu_rows(data: bytes) -> McuRows:
    """Find the rows of MCUs in the bytes of a JPEG file.

    Raises
    ------
    NoRowsError
        If it has another coding.
    DamagedRowsError
        If it is damaged.
    """
    from dali_pipelines.kernels.huffman import GOOD, find_rows

    header = JpegHeader.parse(data)
    tables = [(header.dc[component.dc], header.ac[component.ac]) for component in header.components]
    known = list(dict.fromkeys(table for pair in tables for table in pair))
    starts = np.zeros(header.num_rows + 1, np.int64)
    predictions = np.zeros((header.num_rows, len(header.components)), np.int16)
    status = find_rows(
        np.frombuffer(data, np.uint8),
        header.nbytes,
        _lookup(known),
        np.array([component.blocks for component in header.components]),
        np.array([[known.index(table) for table in pair] for pair in tables]),
        header.num_columns,
        starts,
        predictions,
    )
    if status != GOOD:
        raise DamagedRowsError("the entropy-coded bytes do not add up")
    crc = zlib.crc32(data[: header.nbytes])
    rows = McuRows(len(data), header.nbytes, crc, starts, predictions, crcs=np.empty(0, np.uint32))
    ranges = (rows.byte_range(row, row) for row in range(header.num_rows))
    crcs = [zlib.crc32(memoryview(data)[begin:end]) for begin, end in ranges]
    return replace(rows, crcs=np.array(crcs, np.uint32))


def _lookup(tables: Sequence[HuffmanTable]) -> NDArray[np.uint16]:
    """Return the table that maps 16 bits of a stream to the code that they begin with."""
    lookup = np.zeros((len(tables), 1 << 16), np.uint16)
    for line, table in zip(lookup, tables, strict=True):
        for symbol, code, length in table.codes():
            line[code << (16 - length) : (code + 1) << (16 - length)] = length << 8 | symbol
    return lookup
