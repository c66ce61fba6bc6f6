"""Huffman codes of a JPEG, in the form for `readers.jpeg.mcu.scan`."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from readers.jpeg.header import HuffmanTable, JpegHeader, NoRowsError
from readers.jpeg.mcu.jit import njit

LONGEST = 16
"""Bits of the longest code."""
KNOWN_BITS = 12
"""Bits that index `Codes.entries`. All entries fit into a CPU's first-level cache."""
SYMBOLS_AT = 2 * (LONGEST + 1)
"""Index of the symbols in a line of `Codes.canonical`."""
END_OF_BLOCK, UNKNOWN = 129, 64
"""Special numbers of coefficients in `Codes.entries`, see `is_within_block`. The first is added to
the number, at most 63; the second replaces it."""
CATEGORIES = 12
"""Categories of DC differences in a JPEG of 8 bits (T.81, table F.1)."""


class Codes(NamedTuple):
    """Codes of all tables that the components of a scan use."""

    layout: NDArray[np.uint64]
    """Shape (blocks, 3): component, DC table and AC table of each block of an MCU."""
    entries: NDArray[np.int16]
    """Shape (tables, 4096), DC tables before AC tables, indexed by the next 12 bits. Of a DC table:
    the difference times 16, plus the number of its bits; 0 if it has more than 12 bits. Of an AC
    table: the number of coefficients of all codes that fit into the bits, times 64, plus the number
    of their bits; `UNKNOWN` times 64 if no code fits."""
    canonical: NDArray[np.int32]
    """Shape (tables, 290): the largest code of each length from 0 on, -1 for none; for each length,
    the offset from a code to the index of its symbol; the symbols."""
    written: NDArray[np.uint64]
    """Shape (DC tables, 12): code of each category times 32, plus its length."""


def codes_of(header: JpegHeader) -> tuple[Codes, bytes]:
    """Return the codes of a JPEG, and DHT segments of its DC tables with all missing codes.

    NoRowsError if a table is damaged, or has no room for missing codes.
    """
    used = [(one.blocks, one.dc, one.ac) for one in header.components]
    return _codes(
        tuple(used),
        tuple((number, header.dc[number]) for number in dict.fromkeys(dc for _, dc, _ in used)),
        tuple((number, header.ac[number]) for number in dict.fromkeys(ac for *_, ac in used)),
    )


@lru_cache(maxsize=64)
def _codes(
    used: tuple[tuple[int, int, int], ...],
    dc: tuple[tuple[int, HuffmanTable], ...],
    ac: tuple[tuple[int, HuffmanTable], ...],
) -> tuple[Codes, bytes]:
    """Return the codes of numbered tables; cached, because files share them."""
    numbers = [number for number, _ in dc], [number for number, _ in ac]
    layout = [
        (component, numbers[0].index(of_dc), len(dc) + numbers[1].index(of_ac))
        for component, (blocks, of_dc, of_ac) in enumerate(used)
        for _ in range(blocks)
    ]
    count = len(dc) + len(ac)
    codes = Codes(
        layout=np.array(layout, np.uint64),
        entries=np.zeros((count, 1 << KNOWN_BITS), np.int16),
        canonical=np.array([_canonical(table) for _, table in (*dc, *ac)], np.int32),
        written=np.zeros((len(dc), CATEGORIES), np.uint64),
    )
    enter(codes.canonical, len(dc), codes.entries)
    added = b""
    for line, (number, table) in enumerate(dc):
        complete = with_all_categories(table)
        for symbol, code, length in complete.codes():
            if symbol < CATEGORIES:
                codes.written[line, symbol] = code << 5 | length
        added += b"" if complete is table else complete.segment(number)
    return codes, added


def with_all_categories(table: HuffmanTable) -> HuffmanTable:
    """Return a DC table with a code for each category. The codes of the table stay the same.

    Tables that were optimised for one image lack the codes that the image does not need. New codes
    follow the last code, because no code has only ones (T.81, C.2).
    """
    missing = bytes(sorted(set(range(CATEGORIES)) - set(table.symbols)))
    if not missing:
        return table
    if not table.symbols:
        raise NoRowsError("a DC table has no codes")
    *_, (_, last, length) = table.codes()
    room = (1 << LONGEST) - 1 - ((last + 1) << (LONGEST - length))
    if len(missing) > room:
        raise NoRowsError("a DC table has no room for the codes of all categories")
    counts = bytearray(table.counts)
    counts[-1] += len(missing)
    return HuffmanTable(bytes(counts), table.symbols + missing)


def _canonical(table: HuffmanTable) -> list[int]:
    """Return the line of a table in `Codes.canonical`."""
    largest, offsets = [-1] * (LONGEST + 1), [0] * (LONGEST + 1)
    code, place = 0, 0
    for length, count in enumerate(table.counts, 1):
        offsets[length] = SYMBOLS_AT + place - code
        code, place = code + count, place + count
        if count:
            largest[length] = code - 1
        if code > 1 << length or place > 256:
            raise NoRowsError("a damaged Huffman table")
        code <<= 1
    return [*largest, *offsets, *table.symbols, *bytes(256 - place)]


@njit
def code_at(bits, canonical, table):  # type: ignore[no-untyped-def]
    """Return the symbol of the first code in `bits`, plus 256 times its length; 0 for no code."""
    found = np.uint64(0)
    for length in range(np.uint64(1), np.uint64(LONGEST + 1)):
        code = np.int64(bits >> (np.uint64(64) - length))
        if code <= canonical[table, length]:
            place = np.uint64(canonical[table, np.uint64(LONGEST + 1) + length] + code)
            found = length << np.uint64(8) | np.uint64(canonical[table, place])
            break
    return found


@njit
def difference(bits, code):  # type: ignore[no-untyped-def]
    """Return the DC difference that follows a code (T.81, F.2.2.1)."""
    size = code & np.uint64(0xFF)
    # Two shifts, because one by 64 is undefined.
    behind = bits << (code >> np.uint64(8)) >> np.uint64(1)
    value = np.int64(behind >> (np.uint64(63) - size))
    is_negative = size > 0 and value >> np.int64(size - np.uint64(1)) == 0
    return value - (np.int64(1) << np.int64(size)) + 1 if is_negative else value


@njit
def enter(canonical, num_dc, entries):  # type: ignore[no-untyped-def]
    """Fill `Codes.entries`; the first `num_dc` tables are DC tables."""
    for table in range(np.uint64(len(entries))):
        for place in range(1 << KNOWN_BITS):
            bits = np.uint64(place) << np.uint64(64 - KNOWN_BITS)
            if table < num_dc:
                code = code_at(bits, canonical, table)
                length = np.int64(code >> np.uint64(8)) + np.int64(code & np.uint64(0xFF))
                if code != 0 and length <= KNOWN_BITS:
                    entries[table, place] = difference(bits, code) << 4 | length
                continue
            length, coefficients = np.int64(0), np.int64(0)
            while length < KNOWN_BITS:
                code = code_at(bits, canonical, table)
                bits_of_code, run = np.int64(code >> np.uint64(8)), np.int64(code >> np.uint64(4))
                run, size = run & 15, np.int64(code) & 15
                is_end = size == 0 and run != 15
                is_whole = code != 0 and length + bits_of_code <= KNOWN_BITS
                if not is_whole or coefficients + run + 1 > 63:
                    break
                length += bits_of_code + size
                bits <<= np.uint64(bits_of_code + size)
                coefficients += END_OF_BLOCK if is_end else run + 1
                if is_end:
                    break
            entries[table, place] = (coefficients if length else UNKNOWN) << 6 | length


@njit
def is_within_block(behind):  # type: ignore[no-untyped-def]
    """Return whether codes end inside a block of 64 coefficients.

    Then `behind` is at most 64, or less than 64 plus `END_OF_BLOCK`. Otherwise it is 65 to 127, or
    at least 64 plus `END_OF_BLOCK`. So a single bit decides.
    """
    return (behind - np.uint64(65)) & np.uint64(64) != 0
