"""Features of TensorFlow's Example messages, found without their definitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from readers.index.containers.columns import Span
from readers.index.containers.protobuf import Field, fields, signed, varint

_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = 1, 2, 3
_FIRST, _SECOND = 1, 2
"""Field 1 of an Example are its features, of these an entry, of an entry its name; field 2 of an
entry is the feature."""


class Feature(NamedTuple):
    """Values of a feature."""

    values: list[Any]
    """Numbers, or a `Span` of the message for each value that is bytes."""
    is_bytes: bool

    @property
    def is_single_bytes(self) -> bool:
        """Whether it is one value of bytes."""
        return self.is_bytes and len(self.values) == 1


def features(message: bytes) -> Iterator[tuple[str, Field]]:
    """Yield the names of the features of an Example, and where each is; ValueError if damaged."""
    for part in fields(message, 0, len(message)):
        if part.number != _FIRST:
            continue
        for entry in fields(message, part.start, part.stop):
            name, feature = "", None
            for field in fields(message, entry.start, entry.stop):
                if field.number == _FIRST:
                    name = message[field.start : field.stop].decode()
                elif field.number == _SECOND:
                    feature = field
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
    """Yield the numbers of a packed list, or one that stands alone."""
    at = field.start
    while at < field.stop:
        value, at = varint(message, at)
        yield signed(value)
