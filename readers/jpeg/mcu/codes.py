"""Huffman codes of a JPEG in the form that `readers.jpeg.mcu.scan` reads, and those it writes."""

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
"""Bits that index `Codes.entries`; all entries fit into a CPU's fastest cache."""
SYMBOLS_AT = 2 * (LONGEST + 1)
"""Index of the symbols in a line of `Codes.canonical`."""
END_OF_BLOCK, UNKNOWN = 129, 64
"""Added to the number of coefficients, 63 at most, and used in its place: see `is_within_block`."""
CATEGORIES = 12
"""Categories of DC differences in a JPEG of 8 bits (T.81, table F.1)."""


class Codes(NamedTuple):
    """Codes of all tables that the components of a scan use."""

    layout: NDArray[np.uint64]
    """Shape (blocks, 3): for each block of an MCU its component, its DC table and its AC table."""
    entries: NDArray[np.int16]
    """Shape (tables, 4096), DC tables before AC tables: content of the next bits. For a DC table
    the difference times 16, plus the bits of its code; 0 if the bits are too few. For an AC table
    the number of coefficients of all codes that the bits contain completely, times 64, plus the
    bits of these codes; `UNKNOWN` times 64 if they contain none."""
    canonical: NDArray[np.int32]
    """Shape (tables, 290): the largest code of each length from 0 on, -1 if there are none; the
    offset from a code of each length to the index of its symbol; the symbols."""
    written: NDArray[np.uint64]
    """Shape (DC tables, 12): code of each category times 32, plus its length."""


def codes_of(header: JpegHeader) -> tuple[Codes, bytes]:
    """Return the codes of a JPEG, and DHT segments that add codes missing in its DC tables.

    Raises
    ------
    NoRowsError
        If its tables are damaged, or have no room for the missing codes.
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
    """Return a DC table with a code for each category; its own codes stay.

    An encoder that makes tables for one image leaves out what the image does not need. There is
    room after the last code, because no code consists only of ones (T.81, C.2).
    """
    missing = bytes(sorted(set(range(CATEGORIES)) - set(table.symbols)))
    if not missing:
        return table
    if not table.symbols:
        raise NoRowsError("a Huffman table without codes")
    *_, (_, last, length) = table.codes()
    room = (1 << LONGEST) - 1 - ((last + 1) << (LONGEST - length))
    if len(missing) > room:
        raise NoRowsError("no room for Huffman codes of all differences of DC coefficients")
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
    """Return the symbol at the start of `bits`, plus 256 times its length; 0 if there is none."""
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
    """Return whether codes end inside a block: at 64 at most, or below it plus `END_OF_BLOCK`.

    Otherwise they end at 65 to 127, or at 64 or more plus `END_OF_BLOCK`, so one bit decides.
    """
    return (behind - np.uint64(65)) & np.uint64(64) != 0
