"""Header of a sequential JPEG with one scan: frame and Huffman tables."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

_SOI, _SOF, _DHT, _EOI, _SOS, _DRI = 0xD8, (0xC0, 0xC1), 0xC4, 0xD9, 0xDA, 0xDD
_APP1, _APP14 = 0xE1, 0xEE
_OTHER_SOF = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_WITHOUT_LENGTH = frozenset((0x00, 0x01, *range(0xD0, 0xD9)))
_EXIF = b"Exif\0\0"
_ADOBE, _ADOBE_NBYTES = b"Adobe", 12
_BLOCK = 8


class NoRowsError(ValueError):
    """MCU rows cannot be cut out of this file, so it is read whole."""


@dataclass(frozen=True, slots=True)
class Component:
    """Colour component of a scan."""

    blocks: int
    """Number of blocks in each MCU."""
    dc: int
    """Number of the Huffman table for DC."""
    ac: int
    """Number of the Huffman table for AC."""


@dataclass(frozen=True, slots=True)
class HuffmanTable:
    """Huffman codes of a DHT segment (T.81, C.2)."""

    counts: bytes
    """Number of codes of each length from 1 to 16 bits."""
    symbols: bytes
    """Symbols in the order of their codes."""

    def codes(self) -> Iterator[tuple[int, int, int]]:
        """Yield symbol, code and length in bits of each code."""
        code, start = 0, 0
        for length, count in enumerate(self.counts, 1):
            for symbol in self.symbols[start : start + count]:
                yield symbol, code, length
                code += 1
            start += count
            code <<= 1

    def segment(self, number: int) -> bytes:
        """Return a DHT segment with this table as DC table `number` (T.81, B.2.4.2)."""
        content = bytes((number,)) + self.counts + self.symbols
        return struct.pack(">BBH", 0xFF, _DHT, len(content) + 2) + content


@dataclass(frozen=True, slots=True)
class JpegHeader:
    """Header of a sequential JPEG with one scan: all bytes before the entropy-coded data."""

    nbytes: int
    """Bytes of the header."""
    height_at: int
    """Position of the height in the header. The width follows."""
    scan_at: int
    """Position of the marker of the scan."""
    height: int
    """Rows of pixels, as stored."""
    width: int
    """Columns of pixels, as stored."""
    mcu_height: int
    """Pixel rows of an MCU."""
    mcu_width: int
    """Pixel columns of an MCU."""
    exif: tuple[slice, ...]
    """Positions of the EXIF blocks in the header, without the name before them."""
    components: tuple[Component, ...]
    dc: dict[int, HuffmanTable]
    ac: dict[int, HuffmanTable]

    @property
    def num_rows(self) -> int:
        """Number of rows of MCUs."""
        return -(-self.height // self.mcu_height)

    @property
    def num_columns(self) -> int:
        """Number of MCUs in each row."""
        return -(-self.width // self.mcu_width)

    @classmethod
    def parse(cls, data: bytes) -> JpegHeader:
        """Parse the beginning of a file.

        NoRowsError if it is not a JPEG, or is progressive, arithmetic, with restarts or with
        several scans.
        """
        try:
            return _parse(data)
        except (IndexError, struct.error):
            raise NoRowsError("the header is truncated") from None


def _parse(data: bytes) -> JpegHeader:
    if data[:2] != bytes((0xFF, _SOI)):
        raise NoRowsError("not a JPEG")
    at, frame_at, adobe = 2, 0, False
    tables: tuple[dict[int, HuffmanTable], dict[int, HuffmanTable]] = ({}, {})
    exif: list[slice] = []
    while True:
        if data[at] != 0xFF:
            raise NoRowsError("a marker was expected")
        marker = data[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
            continue
        (length,) = struct.unpack_from(">H", data, at + 2)
        if marker in _WITHOUT_LENGTH or length < 2:
            raise NoRowsError("bytes between the segments")
        if marker in _SOF and frame_at:
            raise NoRowsError("several frames")
        if marker in _SOF:
            frame_at = at + 4
        elif marker in _OTHER_SOF:
            raise NoRowsError("not coded sequentially by Huffman codes")
        elif marker == _DHT:
            for kind, number, table in _tables(data[at + 4 : at + 2 + length]):
                tables[kind][number] = table
        elif marker == _APP1 and data.startswith(_EXIF, at + 4, at + 2 + length):
            exif.append(slice(at + 4 + len(_EXIF), at + 2 + length))
        elif marker == _APP14:
            adobe |= length >= 2 + _ADOBE_NBYTES and data.startswith(_ADOBE, at + 4)
        elif marker == _DRI and data[at + 4 : at + 6] != b"\0\0":
            raise NoRowsError("coded with restarts")
        elif marker == _SOS:
            break
        elif marker == _EOI:
            raise NoRowsError("no scan")
        at += 2 + length
    if not frame_at:
        raise NoRowsError("a scan without a frame")
    precision, height, width, count = struct.unpack_from(">BHHB", data, frame_at)
    if precision != 8 or not height or not width or not count or data[at + 4] != count:
        raise NoRowsError("not 8 bits deep, of unknown height, or in several scans")
    if count == 4 and not adobe:
        raise NoRowsError("decoders differ in the colours of CMYK without an Adobe segment")
    factors = {}
    for start in range(frame_at + 6, frame_at + 6 + 3 * count, 3):
        factors[data[start]] = divmod(data[start + 1], 16)
    if not all(min(factor) for factor in factors.values()):
        raise NoRowsError("a component without samples")
    across = max(factor[0] for factor in factors.values())
    down = max(factor[1] for factor in factors.values())
    if count == 1:  # an MCU is then one block (T.81, A.2.2)
        across, down, factors = 1, 1, dict.fromkeys(factors, (1, 1))
    components = []
    for start in range(at + 5, at + 5 + 2 * count, 2):
        if data[start] not in factors:
            raise NoRowsError("a scan of an unknown component")
        horizontal, vertical = factors[data[start]]
        dc, ac = divmod(data[start + 1], 16)
        if dc not in tables[0] or ac not in tables[1]:
            raise NoRowsError("a Huffman table is missing")
        components.append(Component(horizontal * vertical, dc, ac))
    return JpegHeader(
        nbytes=at + 2 + length,
        height_at=frame_at + 1,
        scan_at=at,
        height=height,
        width=width,
        mcu_height=_BLOCK * down,
        mcu_width=_BLOCK * across,
        exif=tuple(exif),
        components=tuple(components),
        dc=tables[0],
        ac=tables[1],
    )


@lru_cache(maxsize=64)
def _tables(segment: bytes) -> list[tuple[int, int, HuffmanTable]]:
    """Return the tables of a DHT segment: class (0 for DC, 1 for AC), number and table.

    Cached, because most encoders use the same tables for all files.
    """
    found = []
    while segment:
        kind, number = divmod(segment[0], 16)
        counts = segment[1:17]
        end = 17 + sum(counts)
        if kind > 1 or len(counts) < 16 or len(segment) < end:
            raise NoRowsError("a damaged Huffman table")
        found.append((kind, number, HuffmanTable(counts, segment[17:end])))
        segment = segment[end:]
    return found
