"""Read the parts of a chunk that are in a window."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from readers.chunks.array import Box, ChunkedArray, Codec, Piece, overlaps
from readers.chunks.blosc import read_content
from readers.chunks.fetch import Range, Steps, read_bytes, together
from readers.chunks.filters import decoded
from readers.chunks.table import Stored

_LARGE_PART = 0.7
"""Share of a chunk above which it is read whole, in one step instead of two."""
_SMALL_CHUNK = 128 << 10
"""Bytes up to which a chunk is always read whole."""
_MISSING = 2**64 - 1
"""Position and length, in the index of a shard, of a chunk without bytes."""
_CHECKSUM: tuple[Codec, ...] = ({"id": "crc32c"},)
_MORE = 4 << 10
"""Bytes by which a compressed chunk may be larger than its elements."""


def read_pieces(array: ChunkedArray, stored: Stored | None, pieces: Sequence[Piece]) -> Steps:
    """Read pieces of one chunk in steps, and what they share once.

    Returns
    -------
    list of ndarray, or None
        Elements of each piece, shape (height, width). None if the chunk holds fill values.

    Raises
    ------
    ValueError
        If the chunk is damaged.
    """
    found = yield from read_boxes(array, stored, [piece.box for piece in pieces])
    if found is None:
        return None
    return [one.reshape([one.shape[axis] for axis in array.image_axes]) for one in found]


def read_boxes(array: ChunkedArray, stored: Stored | None, boxes: Sequence[Box]) -> Steps:
    """Read some boxes of a chunk in steps; return the elements of each, or None for fill values."""
    if stored is None:
        return None
    if array.inner is not None:
        return (yield from _read_shard(array, array.inner, stored, boxes))
    strides = array.strides
    spans = []
    for box in boxes:
        first = sum(start * step for (start, _), step in zip(box, strides, strict=True))
        last = sum((stop - 1) * step for (_, stop), step in zip(box, strides, strict=True))
        spans.append((first, last + 1))
    found = yield from _elements(array, stored, spans)
    if found is None:
        return None
    # A box is among the elements from its first one to its last one.
    return [
        as_strided(
            elements,
            [stop - start for start, stop in box],
            [step * elements.itemsize for step in strides],
            writeable=False,
        )
        for elements, box in zip(found, boxes, strict=True)
    ]


def _read_shard(
    array: ChunkedArray, inner: ChunkedArray, stored: Stored, boxes: Sequence[Box]
) -> Steps:
    """Read some boxes of a shard, from the chunks in it that have them."""
    shard = array.codecs[0]
    grid = [one // other for one, other in zip(array.chunks, inner.chunks, strict=True)]
    index = yield from _read_index(shard, stored, math.prod(grid))
    if index is None:
        return None
    wanted: dict[tuple[int, ...], list[tuple[int, Box]]] = {}
    for number, box in enumerate(boxes):
        first, last = zip(*box, strict=True)
        for at, part in overlaps(first, last, inner.chunks):
            wanted.setdefault(at, []).append((number, part))
    readings = []
    for at, parts in wanted.items():
        offset, nbytes = index[np.ravel_multi_index(at, grid)].tolist()
        is_missing = offset == nbytes == _MISSING
        place = None if is_missing else Stored(stored.key, stored.start + offset, nbytes)
        readings.append(read_boxes(inner, place, [part for _, part in parts]))
    read = yield from together(readings)
    found = [
        np.full([stop - start for start, stop in box], array.fill_value, array.dtype)
        for box in boxes
    ]
    for (at, parts), contents in zip(wanted.items(), read, strict=True):
        for (number, part), elements in zip(parts, contents or (), strict=contents is not None):
            where = tuple(
                slice(k * length + start - begin, k * length + stop - begin)
                for k, length, (start, stop), (begin, _) in zip(
                    at, inner.chunks, part, boxes[number], strict=True
                )
            )
            found[number][where] = elements
    return found


def _read_index(shard: Codec, stored: Stored, count: int) -> Steps:
    """Read where the chunks of a shard are; return (first byte, bytes) of each, or None."""
    nbytes = 16 * count + (4 if shard["checksum"] else 0)
    if shard["at_start"]:
        start, stop = stored.start, stored.start + nbytes
    elif stored.nbytes is None:
        start, stop = -nbytes, None
    else:
        start, stop = stored.start + stored.nbytes - nbytes, stored.start + stored.nbytes
    (content,) = yield [Range(stored.key, start, stop)]
    if content is None:
        return None
    if len(content) != nbytes or start < -nbytes:
        raise ValueError(f"a shard has {len(content)} bytes, its index needs {nbytes}")
    index = decoded(content, _CHECKSUM, 0, nbytes - 4) if shard["checksum"] else content
    return np.frombuffer(index, shard["index_dtype"]).reshape(count, 2)


def _is_cut(spans: Sequence[tuple[int, int]], nbytes: int) -> bool:
    """Return whether spans of bytes are read without the rest of the `nbytes` of a chunk."""
    part = sum(stop - start for start, stop in spans)
    return nbytes > _SMALL_CHUNK and part < _LARGE_PART * nbytes


def read_line(array: ChunkedArray, number: int) -> Steps:
    """Read a chunk of an array with one axis; return all its elements."""
    length = min(array.chunks[0], array.shape[0] - number * array.chunks[0])
    stored = array.places.find((number,))
    found = yield from read_boxes(array, stored, [((0, length),)])
    return np.full(length, array.fill_value) if found is None else found[0]


def _elements(array: ChunkedArray, stored: Stored, spans: Sequence[tuple[int, int]]) -> Steps:
    """Read spans of elements of a chunk, as they are stored; return an array of each, or None.

    A span is the number of its first element, and the end.
    """
    dtype = np.dtype(array.dtype)
    nbytes = array.chunk_elements * dtype.itemsize
    spans = [(start * dtype.itemsize, stop * dtype.itemsize) for start, stop in spans]
    kinds = [codec["id"] for codec in array.codecs]
    contents: list[Any] | None
    if not stored.skipped and not kinds:
        if stored.nbytes not in (None, nbytes):
            raise ValueError(f"a chunk has {stored.nbytes} bytes, expected {nbytes}")
        least = stored.start + nbytes
        contents = yield from together([read_bytes(stored, *span, least=least) for span in spans])
    elif kinds == ["blosc"] and not stored.skipped and _is_cut(spans, nbytes):
        contents = yield from read_content(stored, spans, nbytes)
    else:
        content = yield from read_bytes(stored, 0, stored.nbytes, expected=nbytes + _MORE)
        if content is None:
            return None
        whole = np.frombuffer(decoded(content, array.codecs, stored.skipped, nbytes), np.uint8)
        contents = [whole[start:stop] for start, stop in spans]
    if contents is None or any(one is None for one in contents):
        return None
    return [np.frombuffer(one, dtype) for one in contents]
