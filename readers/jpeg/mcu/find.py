"""Find the rows of MCUs (minimum coded units) in a JPEG file."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from readers.jpeg.header import JpegHeader
from readers.jpeg.mcu.bits import is_end, unstuffed
from readers.jpeg.mcu.codes import codes_of
from readers.jpeg.mcu.rows import DamagedRowsError, McuRows
from readers.jpeg.mcu.scan import find_rows


def find_mcu_rows(data: bytes) -> McuRows:
    """Find the rows of MCUs in the bytes of a JPEG file.

    NoRowsError if the coding is not supported, DamagedRowsError if the file is damaged.
    """
    header = JpegHeader.parse(data)
    coded = memoryview(data)[header.nbytes :]
    words, end, marker = unstuffed(coded)
    bits = np.zeros(header.num_rows + 1, np.int64)
    predictions = np.zeros((header.num_rows, len(header.components)), np.int64)
    codes, _ = codes_of(header)
    sound = find_rows(words, end, *codes[:3], header.num_columns, bits, predictions)
    # The last code is followed by less than a byte of padding, and the end marker.
    if not sound or bits[-1] + 8 <= end or not is_end(coded, marker):
        raise DamagedRowsError("the entropy-coded data do not fit the size of the image")
    if (predictions != predictions.astype(np.int16)).any():
        raise DamagedRowsError("the DC coefficients are too large")
    starts = 8 * header.nbytes + _with_stuffing(bits, coded[:marker])
    crc = isal_zlib.crc32(data[: header.nbytes])
    crcs = np.empty(0, np.uint32)
    rows = McuRows(len(data), header.nbytes, crc, starts, predictions.astype(np.int16), crcs)
    ranges = (rows.byte_range(row, row) for row in range(header.num_rows))
    crcs = np.array([isal_zlib.crc32(memoryview(data)[slice(*each)]) for each in ranges], np.uint32)
    return replace(rows, crcs=crcs)


def _with_stuffing(bits: NDArray[np.int64], coded: memoryview) -> NDArray[np.int64]:
    """Convert bit positions without stuffed zeros to positions with them."""
    data = np.frombuffer(coded, np.uint8)
    stuffed = np.flatnonzero((data[:-1] == 0xFF) & (data[1:] == 0)) + 1
    before = stuffed - np.arange(len(stuffed))  # other bytes before each stuffed zero
    return bits + 8 * np.searchsorted(before, bits // 8, side="right")
