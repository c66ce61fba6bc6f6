"""Find the start of each row of MCUs in the entropy-coded bytes of a JPEG."""

from __future__ import annotations

import numpy as np

from dali_pipelines.kernels.compiled import compiled

GOOD, DAMAGED = 0, 1
_NO_CODE = 1 << 20


@compiled
def find_rows(data, at, lookup, blocks, tables, num_columns, starts, predictions):  # type: ignore[no-untyped-def]
    """Decode the scan as far as needed to find its rows.

    Parameters
    ----------
    data : ndarray, shape (n,), uint8
        The whole file.
    at : int
        Start of the entropy-coded bytes.
    lookup : ndarray, shape (tables, 65536), uint16
        For the next 16 bits of the stream, the length of their code times 256 plus the symbol; 0 if
        there is no such code.
    blocks : ndarray, shape (components,), int64
        Blocks of each component in an MCU.
    tables : ndarray, shape (components, 2), int64
        Rows of `lookup` for its DC and its AC.
    num_columns : int
        MCUs of a row.
    starts, predictions : ndarray, shape (rows + 1,), int64, and (rows, components), int16
        Written, see `readers.jpeg.mcu_rows.McuRows`.

    Returns
    -------
    int
        GOOD, or DAMAGED.
    """
    stream = at, 0, 0, 0
    dc = np.zeros(len(blocks), np.int64)
    for row in range(len(predictions)):
        starts[row] = _place(data, stream)
        for component in range(len(blocks)):
            predictions[row, component] = dc[component]
            if starts[row] < 0 or predictions[row, component] != dc[component]:
                return DAMAGED
        for _ in range(num_columns):
            for component in range(len(blocks)):
                dc_table, ac_table = lookup[tables[component, 0]], lookup[tables[component, 1]]
                for _block in range(blocks[component]):
                    stream, difference = _decode_dc(data, stream, dc_table)
                    dc[component] += difference
                    stream, good = _pass_ac(data, stream, ac_table)
                    if not good or abs(difference) == _NO_CODE:
                        return DAMAGED
    last = len(predictions)
    starts[last] = _place(data, stream)
    return GOOD if starts[last] >= 0 and _is_end(data, starts[last]) else DAMAGED


@compiled
def _decode_dc(data, stream, table):  # type: ignore[no-untyped-def]
    """Decode a difference of DC coefficients (T.81, F.2.2.1)."""
    position, held, count, made_up = _refill(data, stream)
    entry = np.int64(table[(held >> (count - 16)) & 0xFFFF])
    size = entry & 0xFF
    if entry == 0 or size > 15:
        return (position, held, count, made_up), _NO_CODE
    count -= (entry >> 8) + size
    value = np.int64((held >> count) & ((1 << size) - 1))
    if size and value < 1 << (size - 1):
        value -= (1 << size) - 1
    return (position, held, count, made_up), value


@compiled
def _pass_ac(data, stream, table):  # type: ignore[no-untyped-def]
    """Skip the AC coefficients of a block (T.81, F.2.2.2)."""
    coefficient = np.int64(1)
    while coefficient < 64:
        position, held, count, made_up = _refill(data, stream)
        entry = np.int64(table[(held >> (count - 16)) & 0xFFFF])
        size = entry & 0x0F
        run = (entry & 0xFF) >> 4
        stream = position, held, count - (entry >> 8) - size, made_up
        if entry == 0:
            return stream, False
        if size == 0 and run != 15:
            break
        coefficient += run + 1
    return stream, coefficient <= 64


@compiled
def _refill(data, stream):  # type: ignore[no-untyped-def]
    """Hold at least 32 bits: a code and the bits after it. Beyond the end they are zeros."""
    position, held, count, made_up = stream
    while count < 32:
        byte = np.int64(0)
        if made_up or position >= len(data):
            made_up += 1
        elif data[position] != 0xFF:
            byte = np.int64(data[position])
            position += 1
        elif position + 1 < len(data) and data[position + 1] == 0:
            byte = np.int64(0xFF)
            position += 2
        else:  # a marker
            made_up += 1
        held = (held << 8) | byte
        count += 8
    return position, held, count, made_up


@compiled
def _place(data, stream):  # type: ignore[no-untyped-def]
    """Return the position of the next code, 8 times the byte plus the bit; -1 beyond the end."""
    position, _, count, made_up = stream
    back = (count + 7) // 8 - made_up
    if back < 0 or (back == 0 and count % 8):
        return -1
    for _step in range(back):
        stuffed = position > 1 and data[position - 1] == 0 and data[position - 2] == 0xFF
        position -= 2 if stuffed else 1
    return 8 * position + (8 - count % 8) % 8


@compiled
def _is_end(data, place):  # type: ignore[no-untyped-def]
    """Return whether at most a padded byte is between a position and the end."""
    at = place // 8
    if place % 8:
        at += 2 if data[at] == 0xFF else 1
    while at + 2 < len(data) and data[at] == 0xFF and data[at + 1] == 0xFF:
        at += 1  # fill bytes before a marker
    return at + 1 < len(data) and data[at] == 0xFF and data[at + 1] == 0xD9
