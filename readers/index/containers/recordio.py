"""Records of MXNet's RecordIO files (.rec), as im2rec writes them, and their index (.idx)."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from readers.index.arrow import pa
from readers.index.containers.columns import Span, container_table, integers_or_text
from readers.index.containers.forward import Damage, ForwardReader, check_unpacked
from readers.index.skipped import Skipped
from readers.places.contract import Place

_MAGIC = 0xCED7230A
_LENGTH_BITS = 29
"""Number of bits of the length. Higher bits are the number of the part of a record."""
_WHOLE, _FIRST = 0, 1
_HEADER = struct.Struct("<IfQQ")
"""IRHeader: number of labels after the header (0: only the next field), label, id, second id."""


def recordio_table(place: Place, idx: str | None, skipped: Skipped) -> pa.Table:
    """Return the table of a file, see `readers.index.table.Index.from_recordio`.

    `idx` is the text of its index file. `skipped` counts the records that are left out.
    """
    reader = ForwardReader(place)
    check_unpacked(reader)
    starts, spans, ids, labels = [], [], [], []
    num_others = at = 0
    while at < reader.nbytes:
        try:
            part, data, stop = _record(reader, at)
        except Damage as error:
            reason = "RecordIO files that are damaged or cut off, with the rest of the file"
            skipped.reject(reason, place.name, error)
            break
        num_others += part == _FIRST
        if part == _FIRST:
            reason = "records in several parts, because they contain the separator of records"
            skipped.add(reason, place.name)
        elif part == _WHOLE:
            try:
                number, values, image = _header(reader, data, stop)
            except ValueError as error:
                skipped.reject("records of RecordIO that are damaged", place.name, error)
                num_others += 1
            else:
                spans.append(Span(image, stop - image))
                starts.append(at)
                ids.append(number)
                labels.append(values)
        at = data + -(-(stop - data) // 4) * 4
    table = container_table(place, spans, ids, {"label": _label_column(labels)})
    return table if idx is None else _by_index(reader, table, starts, num_others, at, idx)


def _record(reader: ForwardReader, at: int) -> tuple[int, int, int]:
    """Return the number of the part, and the start and end of its data."""
    head = reader.read(at, at + 8)
    if len(head) < 8:
        raise Damage(f"it is cut off: the last record, at {at}, has {len(head)} bytes")
    magic, word = struct.unpack("<II", head)
    if magic != _MAGIC:
        reason = f"expected {_MAGIC:#x} at {at}, found {magic:#x}"
        if at:
            raise Damage(f"it is damaged: {reason}")
        raise reader.error(f"it is not a RecordIO file: {reason}")
    stop = at + 8 + (word & ((1 << _LENGTH_BITS) - 1))
    if stop > reader.nbytes:
        raise Damage(f"it is cut off: a record ends at {stop}, the file at {reader.nbytes}")
    return word >> _LENGTH_BITS, at + 8, stop


def _header(reader: ForwardReader, data: int, stop: int) -> tuple[int, NDArray[np.float32], int]:
    """Return the id and labels of a record, and the start of its image."""
    header = reader.read(data, data + _HEADER.size)
    image = data + _HEADER.size
    if image <= stop:
        count, label, number, _ = _HEADER.unpack(header)
        image += 4 * count
    if image > stop:
        raise ValueError(f"the record at {data - 8} has no room for its IRHeader and labels")
    if not count:
        return number, np.array([label], "<f4"), image
    return number, np.frombuffer(reader.read(image - 4 * count, image), "<f4"), image


def _label_column(labels: Sequence[NDArray[np.float32]]) -> pa.Array:
    """Return labels as int64 if all are integers, otherwise as float32; as lists if several."""
    values = np.concatenate([np.zeros(0, "<f4"), *labels])
    is_whole = bool((values == np.rint(values)).all() and (abs(values) < 2**31).all())
    column = pa.array(values.astype(np.int64) if is_whole else values)
    lengths = np.array([len(each) for each in labels], np.int64)
    if (lengths == 1).all():
        return column
    return pa.LargeListArray.from_arrays(np.concatenate([[0], lengths.cumsum()]), column)


def _by_index(
    reader: ForwardReader,
    table: pa.Table,
    starts: Sequence[int],
    num_others: int,
    end: int,
    idx: str,
) -> pa.Table:
    """Return the rows in the order of the index file, with its keys.

    `num_others` is the number of readable records that are left out.
    """
    try:
        listed = {int(at): key for key, at in map(str.split, filter(None, idx.splitlines()))}
    except ValueError:
        why = "its .idx is damaged: expected a key and a position on each line"
        raise reader.error(why) from None
    if end < reader.nbytes:
        listed = {at: key for at, key in listed.items() if at < end}
    if len(listed) != len(starts) + num_others or not listed.keys() >= set(starts):
        raise reader.error(
            f"its .idx is out of date: it lists {len(listed)} records, which are not the "
            f"{len(starts) + num_others} records of the file: make it again, or delete it"
        )
    row_of = {start: row for row, start in enumerate(starts)}
    rows = [row_of[start] for start in listed if start in row_of]
    keys = integers_or_text([key for start, key in listed.items() if start in row_of])
    return table.take(pa.array(rows)).set_column(table.column_names.index("key"), "key", keys)
