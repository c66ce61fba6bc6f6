"""Cut the rows of MCUs (minimum coded units) that a window needs out of a JPEG file.

A JPEG file does not store where its rows begin, so a decoder must decode everything above a window,
which is most of the work for a large photograph. If the `McuRows` of the file are known, the rows
that a window needs are copied into a smaller JPEG, which decodes to the same pixels.

The entropy-coded bytes stay as they are. The code of a row depends on the rows above through the
predictions of the DC coefficients (ITU-T T.81, F.1.2.1), and a row may begin at any bit. So an
artificial row of MCUs is put on top, coded with the file's own tables: it brings the predictions to
the right values, and ends at the bit at which the first real row begins.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from readers.jpeg.header import HuffmanTable, JpegHeader, NoRowsError
from readers.jpeg.mcu_rows import McuRows

_EOI = b"\xff\xd9"
_COEFFICIENTS = 63
"""Coefficients of a block, besides DC."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A JPEG of some rows."""

    encoded: bytes
    height: int
    """Rows of pixels."""
    above: int
    """Of these, rows of pixels above the first requested row of MCUs."""


def cut_rows(
    header_bytes: bytes, header: JpegHeader, rows: McuRows, coded: bytes, first: int, last: int
) -> Cut:
    """Return a JPEG of the rows of MCUs from `first` to `last`.

    `header_bytes` are all bytes before the entropy-coded ones, `coded` the bytes of the file in
    ``rows.byte_range(first, last)``.

    Raises
    ------
    NoRowsError
        If the file has no codes for the row to put on top.
    """
    above = header.mcu_height if first else 0
    bottom = min(header.height, (last + 1) * header.mcu_height)
    height = bottom - first * header.mcu_height + above
    at = header.height_at
    pieces: list[bytes | memoryview]
    pieces = [header_bytes[:at], struct.pack(">H", height), header_bytes[at + 2 :]]
    rest = memoryview(coded)  # sliced without a copy
    start, end = int(rows.starts[first]), int(rows.starts[last + 1])
    if first:
        bits = _artificial_row(header, rows.predictions[first], start % 8)
        # Its last bits share a byte with the first bits of the rows.
        shared = start % 8
        if shared:
            bits += f"{coded[0]:08b}"[shared:]
            rest = rest[2 if coded[:2] == b"\xff\0" else 1 :]
        pieces.append(int(bits, 2).to_bytes(len(bits) // 8, "big").replace(b"\xff", b"\xff\0"))
    if end % 8:
        # T.81, F.1.2.3: the last byte is padded with ones.
        filled = rest[-1] | (0xFF >> (end % 8))
        pieces += [rest[:-1], b"\xff\0" if filled == 0xFF else bytes((filled,))]
    else:
        pieces.append(rest)
    pieces.append(_EOI)
    return Cut(b"".join(pieces), height, above)


def _artificial_row(header: JpegHeader, predictions: NDArray[np.int16], bit: int) -> str:
    """Return the code of a row of MCUs that ends with these DC coefficients, at this bit."""
    colours = []
    for component, prediction in zip(header.components, predictions.tolist(), strict=True):
        dc, end = header.dc[component.dc], header.ac[component.ac].bits(0)
        colours.append((dc, end, component.blocks, _steps(dc, prediction)))
    columns = max(1, *(len(steps) for *_, steps in colours))
    if columns > header.num_columns:
        raise NoRowsError("no Huffman codes for so large a DC coefficient")
    coded = []
    for column in range(columns):
        for dc, end, blocks, steps in colours:
            step = _dc_bits(dc, steps[column]) if column < len(steps) else dc.bits(0)
            coded += [step, end, (dc.bits(0) + end) * (blocks - 1)]
    others = "".join((dc.bits(0) + end) * blocks for dc, end, blocks, _ in colours)
    coded.append(others * (header.num_columns - columns))
    missing = (bit - sum(map(len, coded))) % 8
    # The filling bits are coefficients of the first block, between its DC and its end.
    coded.insert(1, _filling_bits(header.ac[header.components[0].ac], missing))
    return "".join(coded)


def _steps(table: HuffmanTable, prediction: int) -> list[int]:
    """Return differences that add up to a DC coefficient: one, if the table has its code."""
    category = prediction.bit_length()
    if category == 0:
        return []
    largest = max((known for known in table.symbols if known <= category), default=0)
    if largest == category:
        return [prediction]
    if largest == 0:
        raise NoRowsError("no Huffman codes for differences of DC coefficients")
    step = ((1 << largest) - 1) * (1 if prediction > 0 else -1)
    return [step, *_steps(table, prediction - step)]


def _dc_bits(table: HuffmanTable, difference: int) -> str:
    """Return the code of a difference of DC coefficients other than 0 (T.81, F.1.2.1)."""
    category = difference.bit_length()
    value = difference if difference > 0 else difference + (1 << category) - 1
    return table.bits(category) + f"{value:0{category}b}"


def _filling_bits(table: HuffmanTable, missing: int) -> str:
    """Return the code of AC coefficients that take this number of bits, modulo 8."""
    if missing == 0:
        return ""
    for symbol, code, length in table.codes():
        run, category = divmod(symbol, 16)
        for count in range(1, min(8, _COEFFICIENTS // (run + 1)) + 1) if category else ():
            if count * (length + category) % 8 == missing:
                return (f"{code:0{length}b}" + "1" * category) * count
    raise NoRowsError("no Huffman codes that fill up to a bit")
