"""TFRecord files of TensorFlow's Example messages."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from readers.index.arrow import pa
from readers.index.containers.columns import Span, container_table, span_columns, value_column
from readers.index.containers.formats import as_text
from readers.index.containers.forward import Damage, ForwardReader, check_unpacked
from readers.index.containers.protobuf import Field, fields, signed, varint
from readers.index.skipped import Skipped
from readers.messages import install
from readers.places.contract import Place

_LENGTH = struct.Struct("<QI")
"""Length of a record, and checksum of the length. Data and their checksum follow."""
_MASK_DELTA = 0xA282EAD8
"""TensorFlow rotates a checksum, and adds this number."""


def tfrecord_table(
    place: Place, image: str, columns: Mapping[str, str] | None, skipped: Skipped
) -> pa.Table:
    """Return the table of a file, see `readers.index.table.Index.from_tfrecord`.

    `image` is the feature with the encoded image. `columns` has names of columns by features; None
    for all features. `skipped` counts the records that are left out.
    """
    spans: list[Span] = []
    numbers: list[int] = []
    found: dict[str, _Values] = {}
    known = set[str]()
    for number, (start, message) in enumerate(_readable(place, skipped)):
        try:
            if message is None:
                raise ValueError("the checksum of its data does not match")
            of_record = dict(features(message))
            wanted = of_record if columns is None else {image, *columns} & of_record.keys()
            values = {name: values_of(message, of_record[name]) for name in wanted}
        except ValueError as error:
            name = f"{place.name} at {start}"
            skipped.reject("records of TFRecord that are damaged or not an Example", name, error)
            continue
        encoded = values.pop(image, None)
        known |= of_record.keys() - {image}
        if encoded is None or not encoded.is_bytes or len(encoded.values) != 1:
            skipped.add(
                f"records without an image in feature {image!r}", f"{place.name} at {start}"
            )
            continue
        for name, feature in values.items():
            found.setdefault(name, _Values()).add(len(spans), feature, message, start)
        spans.append(encoded.values[0].moved(start))
        numbers.append(number)
    if known and not spans:
        raise ValueError(
            f"{place.name}: no record has an image in a feature {image!r}, the features are "
            f"{', '.join(sorted(known))}"
        )
    others: dict[str, pa.Array] = {}
    for name, of_rows in found.items():
        made = of_rows.columns(columns[name] if columns else name, len(spans), place.name, skipped)
        if twice := others.keys() & made.keys():
            raise ValueError(
                f"{place.name}: features make two columns {min(twice)!r}; rename them with columns="
            )
        others |= made
    return container_table(place, spans, numbers, others)


def _readable(place: Place, skipped: Skipped) -> Iterator[tuple[int, bytes | None]]:
    """Yield `records` up to damage that hides the records after it."""
    try:
        yield from records(ForwardReader(place))
    except Damage as error:
        what = "TFRecord files that are damaged or cut off, with the rest of the file"
        skipped.reject(what, place.name, error)


def records(reader: ForwardReader) -> Iterator[tuple[int, bytes | None]]:
    """Yield position and bytes of each record; None in place of bytes with a wrong checksum.

    Raises
    ------
    Damage
        If the file is truncated, or the length of a record is damaged, after the records before.
    ValueError
        If it is not a TFRecord file.
    """
    check_unpacked(reader)
    checksum = _checksum()
    at = 0
    while at < reader.nbytes:
        head = reader.read(at, at + _LENGTH.size)
        start = at + _LENGTH.size
        if len(head) < _LENGTH.size:
            raise Damage(f"it is cut off: the last record, at {at}, has {len(head)} bytes")
        nbytes, found = _LENGTH.unpack(head)
        if checksum(head[:8]) != found:
            reason = f"the checksum of the length of the record at {at} does not match"
            if at:
                raise Damage(f"it is damaged: {reason}")
            raise reader.error(f"it is not a TFRecord file: {reason}")
        record = reader.read(start, start + nbytes + 4)
        if len(record) < nbytes + 4:
            raise Damage(
                f"it is cut off: a record ends at {start + nbytes + 4}, the file at {reader.nbytes}"
            )
        is_whole = checksum(record[:-4]) == int.from_bytes(record[-4:], "little")
        yield start, record[:-4] if is_whole else None
        at = start + nbytes + 4


def _checksum() -> Callable[[bytes], int]:
    """Return the function of TensorFlow's checksums, masked CRC-32C."""
    try:
        from google_crc32c import value
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"TFRecord needs google-crc32c: {install('containers')}",
            name=error.name,
        ) from None

    def masked(data: bytes) -> int:
        crc = value(data)
        return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF

    return masked


@dataclass
class _Values:
    """Values of a feature in all rows."""

    by_row: dict[int, list[Any]] = field(default_factory=dict)
    """Values of each row: numbers, texts, and spans of other bytes."""

    def add(self, row: int, feature: Feature, message: bytes, start: int) -> None:
        """Add the values of a row. Its message begins at `start` in the file."""
        values = feature.values
        if feature.is_bytes:
            texts = [as_text(message[span.offset : span.offset + span.nbytes]) for span in values]
            values = [
                span.moved(start) if text is None else text
                for span, text in zip(values, texts, strict=True)
            ]
        self.by_row[row] = values

    def columns(self, name: str, count: int, path: str, skipped: Skipped) -> dict[str, pa.Array]:
        """Return columns of `count` rows with single values, lists or spans."""
        if all(len(values) < 2 for values in self.by_row.values()):
            singles = [next(iter(self.by_row.get(row, ())), None) for row in range(count)]
            spans = [each if isinstance(each, Span) else None for each in singles]
            values = [None if isinstance(each, Span) else each for each in singles]
            found = span_columns(name, path, spans) if any(spans) else {}
            if len(found) == 0 or any(value is not None for value in values):
                found[name] = value_column(values)
            return found
        flat = [value for row in range(count) for value in self.by_row.get(row, ())]
        if any(isinstance(value, Span) for value in flat):
            skipped.add(f"lists of feature {name!r}, with values that are not text", path)
            return {}
        lengths = [len(self.by_row.get(row, ())) for row in range(count)]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        return {name: pa.LargeListArray.from_arrays(offsets, value_column(flat))}


# ---- Features of Example messages ----------------------------------------------------------------

_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = 1, 2, 3
_FIRST, _SECOND = 1, 2
"""Field numbers. The first field of an Example is its features, the first field of the features is
an entry, and an entry has the name as first and the feature as second field."""


class Feature(NamedTuple):
    """Values of a feature."""

    values: list[Any]
    """Numbers, or a `Span` of the message for each value of bytes."""
    is_bytes: bool


def features(message: bytes) -> Iterator[tuple[str, Field]]:
    """Yield names and positions of the features of an Example; ValueError if damaged."""
    for part in fields(message, 0, len(message)):
        if part.number != _FIRST:
            continue
        for entry in fields(message, part.start, part.stop):
            name, feature = "", None
            for found in fields(message, entry.start, entry.stop):
                if found.number == _FIRST:
                    name = message[found.start : found.stop].decode()
                elif found.number == _SECOND:
                    feature = found
            if feature is not None:
                yield name, feature


def values_of(message: bytes, feature: Field) -> Feature:
    """Return the values of a feature."""
    for kind in fields(message, feature.start, feature.stop):
        found = fields(message, kind.start, kind.stop)
        if kind.number == _BYTES_LIST:
            return Feature([Span(each.start, each.stop - each.start) for each in found], True)
        if kind.number == _FLOAT_LIST:
            packed = b"".join([message[each.start : each.stop] for each in found])
            if len(packed) % 4:
                raise ValueError("a list of floats is cut off")
            return Feature(np.frombuffer(packed, "<f4").astype(float).tolist(), False)
        if kind.number == _INT64_LIST:
            return Feature([number for each in found for number in _integers(message, each)], False)
    return Feature([], False)


def _integers(message: bytes, field: Field) -> Iterator[int]:
    """Yield the numbers of a packed list, or a single number."""
    at = field.start
    while at < field.stop:
        value, at = varint(message, at)
        yield signed(value)
