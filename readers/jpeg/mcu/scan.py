"""Skip MCUs in entropy-coded data: only lengths of codes and DC coefficients are decoded."""

from __future__ import annotations

import numpy as np

from readers.jpeg.mcu.bits import copy, peek, put
from readers.jpeg.mcu.codes import CATEGORIES, KNOWN_BITS, code_at, difference, is_within_block
from readers.jpeg.mcu.jit import njit

_DAMAGED = np.uint64(0xFFFFFFFFFFFFFFFF)


@njit
def find_rows(words, end, layout, entries, canonical, num_columns, starts, predictions):  # type: ignore[no-untyped-def]
    """Find each row of MCUs.

    Parameters
    ----------
    words, end : ndarray, shape (n,), uint64, and int
        Bits, see `readers.jpeg.mcu.bits.unstuffed`, and their number.
    layout, entries, canonical : ndarray
        See `readers.jpeg.mcu.codes.Codes`.
    num_columns : int
        MCUs per row.
    starts, predictions : ndarray, shape (rows + 1,), int64, and (rows, components), int64
        Output: first bit of each row and end of the last row; DC coefficients before each row.

    Returns
    -------
    bool
        False if the data are damaged.
    """
    at, dc = np.uint64(0), np.zeros(predictions.shape[1], np.int64)
    count = num_columns * len(layout)
    for row in range(len(predictions)):
        starts[row] = at
        predictions[row] = dc
        at = _pass_blocks(words, at, np.uint64(end), 0, count, layout, entries, canonical, dc)
        if at == _DAMAGED:
            return False
    starts[len(predictions)] = at
    return True


@njit
def cut(words, span, layout, entries, canonical, written, dc, num_columns, region, found):  # type: ignore[no-untyped-def]
    """Copy a region of MCUs, and recode the first DC coefficients of each of its rows.

    Parameters
    ----------
    words : ndarray, shape (n,), uint64
        Bits, see `readers.jpeg.mcu.bits.unstuffed`.
    span : tuple of int
        First bit of a row; number of all bits; bit after the region, 0 if unknown. If it is known,
        the region must have whole rows.
    layout, entries, canonical, written : ndarray
        See `readers.jpeg.mcu.codes.Codes`.
    dc : ndarray, shape (components,), int64
        DC coefficients before the row; overwritten.
    num_columns : int
        MCUs per row.
    region : tuple of int
        Number of rows above the region; its rows, its first column and its columns.
    found : ndarray, shape (m,), uint64
        Output, zeros; as long as `words` plus a word for each row and component.

    Returns
    -------
    int
        Number of bits written; -1 if the data are damaged.
    """
    above, rows, left, columns = region
    at, end, stop = np.uint64(span[0]), np.uint64(span[1]), np.uint64(span[2])
    before, to = np.zeros_like(dc), np.uint64(0)
    blocks = len(layout)
    passed = above * num_columns + left
    if columns == num_columns:  # whole rows are like one row
        rows, columns = 1, rows * columns
    for _ in range(rows):
        at = _pass_blocks(words, at, end, 0, passed * blocks, layout, entries, canonical, dc)
        passed = num_columns - columns
        for block in range(0 if at == _DAMAGED else blocks):
            component, table = layout[block, 0], layout[block, 1]
            begin = at
            is_first = block == 0 or layout[block - 1, 0] != component
            if is_first:
                begin = _behind_dc(words, at, entries, canonical, table)
            at = _pass_blocks(words, at, end, block, 1, layout, entries, canonical, dc)
            if at == _DAMAGED:
                break
            if is_first:
                code = _coded(dc[component] - before[component], written[table])
                if code == 0:
                    return -1
                length = code & np.uint64(63)
                to = put(found, to, code >> np.uint64(6) << (np.uint64(64) - length), length)
            to = copy(words, begin, at, found, to)
        if at == _DAMAGED:
            return -1
        begin, count = at, (columns - 1) * blocks
        at = stop or _pass_blocks(words, at, end, 0, count, layout, entries, canonical, dc)
        if at == _DAMAGED:
            return -1
        to = copy(words, begin, at, found, to)
        before[:] = dc
    return np.int64(to)


@njit
def _coded(value, written):  # type: ignore[no-untyped-def]
    """Return the code of a DC difference times 64, plus its length; 0 if there is no code."""
    category = np.uint64(0)
    while abs(value) >> np.int64(category):
        category += np.uint64(1)
    if category >= CATEGORIES:
        return np.uint64(0)
    code, length = written[category] >> np.uint64(5), written[category] & np.uint64(31)
    if value < 0:
        value += (np.int64(1) << np.int64(category)) - 1
    return (code << category | np.uint64(value)) << np.uint64(6) | (length + category)


@njit
def _behind_dc(words, at, entries, canonical, table):  # type: ignore[no-untyped-def]
    """Return the bit after the DC coefficient of an undamaged block."""
    bits = peek(words, at)
    entry = np.int64(entries[table, bits >> np.uint64(64 - KNOWN_BITS)])
    code = code_at(bits, canonical, table)
    length = (code >> np.uint64(8)) + (code & np.uint64(0xFF))
    return at + (np.uint64(entry & 15) if entry else length)


@njit
def _pass_blocks(words, at, end, block, count, layout, entries, canonical, dc):  # type: ignore[no-untyped-def]
    """Skip `count` blocks and add their DC differences; return the next bit, or _DAMAGED.

    This is one function, because numba counts references to arrays at each call.
    """
    block, blocks = np.uint64(block), np.uint64(len(layout))
    for _ in range(count):
        component, table = layout[block, np.uint64(0)], layout[block, np.uint64(1)]
        bits = peek(words, at)
        entry = np.int64(entries[table, bits >> np.uint64(64 - KNOWN_BITS)])
        if entry:
            dc[component] += entry >> 4
            at += np.uint64(entry & 15)
        else:
            code = code_at(bits, canonical, table)
            size = code & np.uint64(0xFF)
            if code == 0 or size > 15:
                return _DAMAGED
            dc[component] += difference(bits, code)
            at += (code >> np.uint64(8)) + size
        # The AC coefficients (T.81, F.2.2.2).
        table = layout[block, np.uint64(2)]
        bits, left, place = peek(words, at), np.int64(64), np.uint64(1)
        while place < 64:
            if left < 32:
                bits, left = peek(words, at), np.int64(64)
            known = np.uint64(entries[table, bits >> np.uint64(64 - KNOWN_BITS)])
            length, behind = known & np.uint64(63), place + (known >> np.uint64(6))
            if not is_within_block(behind):
                code = code_at(bits, canonical, table)
                run, size = (code >> np.uint64(4)) & np.uint64(15), code & np.uint64(15)
                length = (code >> np.uint64(8)) + size
                is_end = size == 0 and run != 15
                behind = np.uint64(64) if is_end else place + run + np.uint64(1)
                if code == 0 or behind > 64:
                    return _DAMAGED
            place = behind
            bits <<= length
            left -= np.int64(length)
            at += length
        if at > end:
            return _DAMAGED
        block += np.uint64(1)
        if block == blocks:
            block = np.uint64(0)
    return at
