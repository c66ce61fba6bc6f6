"""Windows of JPEG files by rows of MCUs, without what lies above and below them.

A JPEG file does not tell where in it a row begins, so a decoder goes through all that lies above a
window, which of a large photograph is most of the work. Where `McuRows` of the file are known, the
rows that a window needs are cut out, and a JPEG of these alone is made of them, pixel for pixel.

The entropy-coded bytes are not touched. What is coded of a row depends on the rows above by the
predictions of the DC coefficients (ITU-T T.81, F.1.2.1) and begins anywhere in a byte. So a made-up
row of MCUs is put on top, coded by the file's own tables, which brings the predictions to where
they have to be, and ends at the bit of a byte at which the first real row begins.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_PACKED = struct.Struct("<BBIQI")
_VERSION = 2
"""1 had no checksums of the rows."""

_SOI, _SOF, _DHT, _EOI, _SOS, _DRI = 0xD8, (0xC0, 0xC1), 0xC4, 0xD9, 0xDA, 0xDD
_OTHER_SOF = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_BLOCK = 8
_COEFFICIENTS = 63
"""Of a block, besides DC."""


class NoRowsError(ValueError):
    """Rows cannot be cut out of this file: it is read whole."""


class DamagedRowsError(NoRowsError):
    """The entropy-coded data are not those of as many MCUs as the image has."""


class ChangedError(NoRowsError):
    """The file has the size and head of the one whose rows were noted, but other rows."""


@dataclass(frozen=True, slots=True)
class Component:
    """One colour of a scan."""

    blocks: int
    """In each MCU."""
    dc: int
    """Number of its Huffman table for DC."""
    ac: int
    """The same for AC."""


@dataclass(frozen=True, slots=True)
class HuffmanTable:
    """Codes as a DHT segment gives them (T.81, C.2)."""

    counts: bytes
    """Codes of each length from 1 to 16 bits."""
    symbols: bytes
    """In the order of the codes."""

    def codes(self) -> Iterator[tuple[int, int, int]]:
        """Return symbol, code and length in bits of each code."""
        code, place = 0, 0
        for length, count in enumerate(self.counts, 1):
            for symbol in self.symbols[place : place + count]:
                yield symbol, code, length
                code += 1
            place += count
            code <<= 1

    def bits(self, symbol: int) -> str:
        """Return the code of a symbol as zeros and ones.

        Raises
        ------
        NoRowsError
            If the file has no code for it.
        """
        for known, code, length in self.codes():
            if known == symbol:
                return f"{code:0{length}b}"
        raise NoRowsError(f"no Huffman code for the symbol {symbol:#04x}")


@dataclass(frozen=True, slots=True)
class Head:
    """What is before the entropy-coded bytes of a JPEG that is coded sequentially in one scan."""

    size: int
    """Bytes of it."""
    height_at: int
    """Byte at which the height stands."""
    height: int
    """Pixels, as stored."""
    width: int
    """The same."""
    mcu_height: int
    """Pixels."""
    mcu_width: int
    """Pixels."""
    components: tuple[Component, ...]
    dc: dict[int, HuffmanTable]
    ac: dict[int, HuffmanTable]

    @property
    def num_rows(self) -> int:
        """Rows of MCUs."""
        return -(-self.height // self.mcu_height)

    @property
    def num_columns(self) -> int:
        """MCUs of a row."""
        return -(-self.width // self.mcu_width)

    @classmethod
    def parse(cls, data: bytes) -> Head:
        """Parse the beginning of a file.

        Raises
        ------
        NoRowsError
            If it is no JPEG, or one that is not coded that way: progressive, with restarts or with
            several scans, say.
        """
        try:
            return _parse(data)
        except (IndexError, struct.error):
            raise NoRowsError("the head is cut off") from None


def _parse(data: bytes) -> Head:
    if data[:2] != bytes((0xFF, _SOI)):
        raise NoRowsError("not a JPEG")
    at, frame_at = 2, 0
    tables: tuple[dict[int, HuffmanTable], dict[int, HuffmanTable]] = ({}, {})
    while True:
        if data[at] != 0xFF:
            raise NoRowsError("a marker was expected")
        marker = data[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
            continue
        (length,) = struct.unpack_from(">H", data, at + 2)
        if marker in _SOF and frame_at:
            raise NoRowsError("several frames")
        if marker in _SOF:
            frame_at = at + 4
        elif marker in _OTHER_SOF:
            raise NoRowsError("not coded sequentially by Huffman codes")
        elif marker == _DHT:
            _add_tables(data[at + 4 : at + 2 + length], tables)
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
    if precision != 8 or not height or not width or data[at + 4] != count:
        raise NoRowsError("not 8 bits deep, of unknown height, or in several scans")
    factors = {}
    for place in range(frame_at + 6, frame_at + 6 + 3 * count, 3):
        factors[data[place]] = divmod(data[place + 1], 16)
    across = max(factor[0] for factor in factors.values())
    down = max(factor[1] for factor in factors.values())
    if count == 1:  # T.81, A.2.2: then an MCU is one block
        across, down, factors = 1, 1, dict.fromkeys(factors, (1, 1))
    components = []
    for place in range(at + 5, at + 5 + 2 * count, 2):
        if data[place] not in factors:
            raise NoRowsError("a scan of an unknown component")
        horizontal, vertical = factors[data[place]]
        dc, ac = divmod(data[place + 1], 16)
        if dc not in tables[0] or ac not in tables[1]:
            raise NoRowsError("a Huffman table is missing")
        components.append(Component(horizontal * vertical, dc, ac))
    return Head(
        size=at + 2 + length,
        height_at=frame_at + 1,
        height=height,
        width=width,
        mcu_height=_BLOCK * down,
        mcu_width=_BLOCK * across,
        components=tuple(components),
        dc=tables[0],
        ac=tables[1],
    )


def _add_tables(segment: bytes, tables: tuple[dict[int, HuffmanTable], ...]) -> None:
    while segment:
        kind, number = divmod(segment[0], 16)
        counts = segment[1:17]
        end = 17 + sum(counts)
        if kind > 1 or len(counts) < 16 or len(segment) < end:
            raise NoRowsError("a damaged Huffman table")
        tables[kind][number] = HuffmanTable(counts, segment[17:end])
        segment = segment[end:]


@dataclass(frozen=True, eq=False)
class McuRows:
    """Where the rows of MCUs of a file begin."""

    file_size: int
    """Bytes of the file, by which it is known again."""
    head_size: int
    """Bytes before the entropy-coded ones."""
    head_crc: int
    """CRC-32 of them, by which the file is known again, too."""
    starts: NDArray[np.int64]
    """Shape (rows + 1,): 8 times the byte of the file, plus the bit, at which each row begins; last
    where the image ends."""
    predictions: NDArray[np.int16]
    """Shape (rows, components): DC coefficients that each row goes on from."""
    crcs: NDArray[np.uint32]
    """Shape (rows,): CRC-32 of the bytes of each row, with those that it shares with others."""

    def pack(self) -> bytes:
        """Return it as bytes, 12 + 2 times the components of them a row."""
        counts = _PACKED.pack(
            _VERSION,
            self.predictions.shape[1],
            self.head_size,
            self.file_size,
            self.head_crc,
        )
        arrays = (self.starts, "<i8"), (self.crcs, "<u4"), (self.predictions, "<i2")
        return b"".join((counts, *(array.astype(dtype).tobytes() for array, dtype in arrays)))

    @classmethod
    def unpack(cls, packed: bytes) -> McuRows:
        """Read what `pack` gave.

        Raises
        ------
        NoRowsError
            If it is of another version.
        """
        if not is_current(packed):
            raise NoRowsError(f"version {packed[:1]!r}")
        _, components, head_size, file_size, head_crc = _PACKED.unpack_from(packed)
        rows = (len(packed) - _PACKED.size - 8) // (12 + 2 * components)
        starts = np.frombuffer(packed, "<i8", rows + 1, _PACKED.size)
        at = _PACKED.size + starts.nbytes
        crcs = np.frombuffer(packed, "<u4", rows, at)
        predictions = np.frombuffer(packed, "<i2", offset=at + crcs.nbytes)
        predictions = predictions.reshape(rows, components)
        return cls(file_size, head_size, head_crc, starts, predictions, crcs)

    def is_of(self, head: bytes, file_size: int) -> bool:
        """Return whether a file is still the one that the rows were found in."""
        return self.file_size == file_size and self.head_crc == zlib.crc32(head)

    def byte_range(self, first: int, last: int) -> tuple[int, int]:
        """Return the range of bytes of the file that holds the rows from `first` to `last`."""
        return int(self.starts[first]) // 8, -(-int(self.starts[last + 1]) // 8)

    def check(self, first: int, last: int, coded: bytes) -> None:
        """Refuse other bytes than those that the rows from `first` to `last` were noted of.

        Parameters
        ----------
        first, last : int
            Rows.
        coded : bytes
            What was read of ``byte_range(first, last)``.

        Raises
        ------
        ChangedError
            If a checksum is not that of its row.
        """
        view, (start, _) = memoryview(coded), self.byte_range(first, last)
        for row in range(first, last + 1):
            begin, end = self.byte_range(row, row)
            if zlib.crc32(view[begin - start : end - start]) != self.crcs[row]:
                raise ChangedError(f"row {row} of MCUs has changed since it was noted")


def is_current(packed: bytes) -> bool:
    """Return whether packed `McuRows` are of the form that is read here."""
    return packed[:1] == bytes((_VERSION,))


@dataclass(frozen=True, slots=True)
class Cut:
    """A JPEG of some rows."""

    encoded: bytes
    height: int
    """Pixels of it."""
    above: int
    """Of these, the ones above the first row that was asked for."""


def cut_rows(
    head_bytes: bytes, head: Head, rows: McuRows, coded: bytes, first: int, last: int
) -> Cut:
    """Make a JPEG of the rows of MCUs from `first` to `last`.

    Parameters
    ----------
    head_bytes : bytes
        What is before the entropy-coded bytes.
    head : Head
        The same, parsed.
    rows : McuRows
        Of the same file.
    coded : bytes
        The bytes of the file in ``rows.byte_range(first, last)``.

    Raises
    ------
    NoRowsError
        If the file has no codes for what is to be put on top.
    """
    made_up = head.mcu_height if first else 0
    height = min(head.height, (last + 1) * head.mcu_height) - first * head.mcu_height + made_up
    at = head.height_at
    parts = [head_bytes[:at], struct.pack(">H", height), head_bytes[at + 2 :]]
    start, end = int(rows.starts[first]), int(rows.starts[last + 1])
    if first:
        bits = _made_up_row(head, rows.predictions[first], start % 8)
        # The last of them share a byte with the first of the rows.
        shared = start % 8
        if shared:
            bits += f"{coded[0]:08b}"[shared:]
            coded = coded[2:] if coded[:2] == b"\xff\0" else coded[1:]
        parts.append(int(bits, 2).to_bytes(len(bits) // 8, "big").replace(b"\xff", b"\xff\0"))
    if end % 8:
        # T.81, F.1.2.3: the last byte is filled up with ones.
        filled = coded[-1] | (0xFF >> (end % 8))
        coded = coded[:-1]
        parts += [coded, b"\xff\0" if filled == 0xFF else bytes((filled,))]
    else:
        parts.append(coded)
    parts.append(bytes((0xFF, _EOI)))
    return Cut(b"".join(parts), height, made_up)


def _made_up_row(head: Head, predictions: NDArray[np.int16], bit: int) -> str:
    """Code a row of MCUs that ends with these DC coefficients, at this bit of a byte."""
    parts = [
        (head.dc[one.dc], head.ac[one.ac].bits(0), one.blocks, _steps(head.dc[one.dc], prediction))
        for one, prediction in zip(head.components, predictions.tolist(), strict=True)
    ]
    columns = max(1, *(len(steps) for *_, steps in parts))
    if columns > head.num_columns:
        raise NoRowsError("no Huffman codes for so large a DC coefficient")
    coded = []
    for column in range(columns):
        for dc, end, blocks, steps in parts:
            step = _dc(dc, steps[column]) if column < len(steps) else dc.bits(0)
            coded += [step, end, (dc.bits(0) + end) * (blocks - 1)]
    others = "".join((dc.bits(0) + end) * blocks for dc, end, blocks, _ in parts)
    coded.append(others * (head.num_columns - columns))
    missing = (bit - sum(map(len, coded))) % 8
    # The fill is made of coefficients of the first block, between its DC and its end.
    coded.insert(1, _fill(head.ac[head.components[0].ac], missing))
    return "".join(coded)


def _steps(table: HuffmanTable, prediction: int) -> list[int]:
    """Return differences that add up to a DC coefficient: one, if the table has its code."""
    size = prediction.bit_length()
    if size == 0:
        return []
    largest = max((known for known in table.symbols if known <= size), default=0)
    if largest == size:
        return [prediction]
    if largest == 0:
        raise NoRowsError("no Huffman codes for differences of DC coefficients")
    step = ((1 << largest) - 1) * (1 if prediction > 0 else -1)
    return [step, *_steps(table, prediction - step)]


def _dc(table: HuffmanTable, difference: int) -> str:
    """Code a difference of DC coefficients, which is not 0 (T.81, F.1.2.1)."""
    size = difference.bit_length()
    value = difference if difference > 0 else difference + (1 << size) - 1
    return table.bits(size) + f"{value:0{size}b}"


def _fill(table: HuffmanTable, missing: int) -> str:
    """Code AC coefficients that take so many bits, modulo 8."""
    if missing == 0:
        return ""
    for symbol, code, length in table.codes():
        run, size = divmod(symbol, 16)
        for count in range(1, min(8, _COEFFICIENTS // (run + 1)) + 1) if size else ():
            if count * (length + size) % 8 == missing:
                return (f"{code:0{length}b}" + "1" * size) * count
    raise NoRowsError("no Huffman codes by which to fill up to a bit")
