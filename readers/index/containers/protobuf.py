"""Fields of Protocol Buffers messages, read without the message definitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class Field(NamedTuple):
    """A field of a message."""

    number: int
    value: int
    """Value of a varint; otherwise 0."""
    start: int
    """Position of the first byte of its content."""
    stop: int


def fields(data: bytes, start: int, stop: int) -> Iterator[Field]:
    """Yield the fields of the message from `start` up to `stop`. ValueError if it is not a message.

    `data` may end before `stop` if the caller takes only the fields in it.
    """
    at = start
    while at < stop:
        tag, at = varint(data, at)
        kind, value, begin = tag & 7, 0, at
        if kind == _BYTES:
            length, begin = varint(data, at)
            at = begin + length
        elif kind == _VARINT:
            value, at = varint(data, at)
        elif kind in (_FIXED32, _FIXED64):
            at += 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(f"a field has the unknown type {kind}")
        if at > stop or tag < 8:
            raise ValueError("a field ends after the end of its message")
        yield Field(tag >> 3, value, begin, at)


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the varint at a position, and the position after it. ValueError if it is truncated."""
    try:
        byte = data[at]
        if byte < 0x80:
            return byte, at + 1
        value, shift = byte & 0x7F, 7
        while True:
            at += 1
            byte = data[at]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at + 1
            shift += 7
            if shift > 63:
                raise ValueError("a number has more than 64 bits")
    except IndexError:
        raise ValueError("a number is cut off") from None


def signed(value: int) -> int:
    """Return a varint of 64 bits as int64."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value
