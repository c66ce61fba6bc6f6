"""Finds the rows of MCUs of JPEG files, for an Index: windows are then decoded without the rest."""

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

if TYPE_CHECKING:
    from readers.index.table import Index

COLUMN = "mcu_rows"
"""Of the Index, as `readers.jpeg.reader.JpegReader` knows it."""
_LOOKED_AT = 1000
"""Rows of the Index."""


def with_mcu_rows(
    index: Index, num_threads: int = 4, progress: Callable[[Iterable[Any]], Iterable[Any]] = iter
) -> Index:
    """Note where in each JPEG file its rows begin.

    Each file is read and decoded once, as far as it takes to find them. From then on
    `jpeg_pipeline` reads of it, and decodes, only the rows that a window needs: pixel for pixel
    what it delivered before. A file that is coded otherwise (progressive, with restart markers, no
    JPEG at all), or has another size or header than then, is read whole; so is one where the rows
    that a window needs have other checksums, and its entropy-coded data are checked then.

    Parameters
    ----------
    index : Index
        Of JPEG files; others are passed over.
    num_threads : int
        Files that are worked on at one time.
    progress : callable
        Is given what is found, a file at a time, and gives it back: ``tqdm.tqdm``, say.

    Returns
    -------
    Index
        With the column ``mcu_rows`` (bytes, some 18 for 16 rows of pixels; null where there are
        none). Save it, so that they need not be found again.
    """
    import pyarrow as pa

    paths = index.table["path"]
    with ThreadPoolExecutor(num_threads) as pool:
        found = progress(pool.map(_packed_rows, (path.as_py() for path in paths)))
        rows = pa.array(list(found), pa.large_binary())
    table = index.table
    if COLUMN in table.column_names:
        table = table.drop_columns([COLUMN])
    return type(index)(table.append_column(COLUMN, rows))


def warn_of_old_rows(index: Index) -> None:
    """Warn if an Index notes rows in a form that is not read any more: then files are read whole.

    The first few rows of the Index stand for all.
    """
    if COLUMN not in index.table.column_names:
        return
    packed = next(iter(index.table[COLUMN].slice(0, _LOOKED_AT).drop_null()), None)
    if packed is not None and not is_current(packed.as_py()):
        warnings.warn(
            "the Index notes rows of MCUs as an older version of this toolkit did, without "
            "checksums, so that JPEG files are read whole: make it again by index.py --mcu_rows",
            stacklevel=3,
        )


def _packed_rows(path: str) -> bytes | None:
    from readers.files import open_regular

    try:
        with open_regular(path) as file:
            return find_mcu_rows(file.read()).pack()
    except (NoRowsError, OSError):  # the Reader tells what is wrong with it, if anything is
        return None


def find_mcu_rows(data: bytes) -> McuRows:
    """Find the rows of MCUs of a JPEG file.

    Parameters
    ----------
    data : bytes
        The file.

    Raises
    ------
    NoRowsError
        If it is coded in another way.
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
    """Make the table by which 16 bits of a stream tell the code that they begin with."""
    lookup = np.zeros((len(tables), 1 << 16), np.uint16)
    for line, table in zip(lookup, tables, strict=True):
        for symbol, code, length in table.codes():
            line[code << (16 - length) : (code + 1) << (16 - length)] = length << 8 | symbol
    return lookup
