"""Cut a region of MCUs (minimum coded units) out of a JPEG file: a smaller JPEG of the same pixels.

A JPEG file does not store the positions of rows and columns. A decoder must decode everything above
a window, and DALI's decoder also everything beside the window. Skipping codes takes a quarter of
the time. The bits of the MCUs in the region are copied unchanged, except for the first DC
coefficients of each row: these are differences from the previous MCU (ITU-T T.81, F.1.2.1), and the
cut changes the previous MCU.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import NamedTuple

import numpy as np
import simplejpeg
from numpy.typing import NDArray

from readers.jpeg.header import JpegHeader, NoRowsError
from readers.jpeg.mcu.bits import bytes_of, is_end, unstuffed
from readers.jpeg.mcu.codes import codes_of
from readers.jpeg.mcu.jit import JIT
from readers.jpeg.mcu.region import McuRegion
from readers.jpeg.mcu.rows import McuRows
from readers.jpeg.mcu.scan import cut

_EOI = b"\xff\xd9"


def cut_file(data: bytes, header: JpegHeader, region: McuRegion) -> bytes:
    """Return a JPEG of a region of a file.

    NoRowsError if the file is damaged before the region's end, or has another coding.
    """
    compile_once()
    return _cut_file(data, header, region)


def _cut_file(data: bytes, header: JpegHeader, region: McuRegion) -> bytes:
    coded = memoryview(data)[header.nbytes :]
    words, end, marker = unstuffed(coded)
    if not is_end(coded, marker):
        raise NoRowsError("the scan does not end with the image")
    bits = _Bits(words, 0, end, 0, np.zeros(len(header.components), np.int64), region.top)
    return _cut(data[: header.nbytes], header, region, bits)


def cut_rows(
    header_bytes: bytes, header: JpegHeader, region: McuRegion, rows: McuRows, coded: bytes
) -> bytes:
    """Return a JPEG of a region of a file whose rows are known.

    `header_bytes` are the bytes before the entropy-coded data. `coded` are the bytes of the file in
    ``rows.byte_range(region.top, region.top + region.rows - 1)``. NoRowsError if `coded` are
    damaged.
    """
    compile_once()
    words, end, _ = unstuffed(coded)
    start, behind = rows.starts[[region.top, region.top + region.rows]].tolist()
    stop = end - -behind % 8 if region.columns == header.num_columns else 0
    dc = rows.predictions[region.top].astype(np.int64)
    return _cut(header_bytes, header, region, _Bits(words, start % 8, end, stop, dc, 0))


class _Bits(NamedTuple):
    """Bits of the rows from which a region is cut."""

    words: NDArray[np.uint64]
    start: int
    """First bit of a row of MCUs."""
    end: int
    stop: int
    """Bit after the region; 0 if unknown."""
    dc: NDArray[np.int64]
    """DC coefficients before this row."""
    above: int
    """Number of rows between `start` and the region."""


def _cut(header_bytes: bytes, header: JpegHeader, region: McuRegion, bits: _Bits) -> bytes:
    codes, segments = codes_of(header)
    found = np.zeros(len(bits.words) + region.rows * len(bits.dc), np.uint64)
    within = bits.above, region.rows, region.left, region.columns
    span = bits.start, bits.end, bits.stop
    count = cut(bits.words, span, *codes, bits.dc, header.num_columns, within, found)
    if count < 0:
        raise NoRowsError("the entropy-coded bytes are damaged")
    at = header.height_at
    size = struct.pack(">HH", *region.size(header))
    before = header_bytes[:at], size, header_bytes[at + 4 : header.scan_at]
    scan = header_bytes[header.scan_at :], bytes_of(found, count), _EOI
    return b"".join((*before, segments, *scan))


@cache
def compile_once() -> None:
    """Compile now, or wait if another process is compiling."""
    with JIT.turn():
        tiny = simplejpeg.encode_jpeg(np.zeros((8, 8, 1), np.uint8), colorspace="GRAY")
        _cut_file(tiny, JpegHeader.parse(tiny), McuRegion(0, 1, 0, 1))
