"""Read the part of a chunk that is in a window."""

from __future__ import annotations

import math

import numpy as np
from numpy.lib.stride_tricks import as_strided

from readers.chunks.array import Box, ChunkedArray, Codec, Piece, overlaps
from readers.chunks.blosc import read_content
from readers.chunks.fetch import Range, Steps, read_bytes, together
from readers.chunks.filters import decoded
from readers.chunks.table import Stored

_LARGE_PART = 0.7
"""Share of a chunk above which it is read whole, in one step instead of two; so are"""
_SMALL_CHUNK = 128 << 10
"""chunks of fewer bytes."""

_MISSING = 2**64 - 1
"""Stands in the index of a shard for the position and length of a chunk that has no bytes."""
_CHECKSUM: tuple[Codec, ...] = ({"id": "crc32c"},)
_MORE = 4 << 10
"""Bytes by which a compressed chunk may be larger than its elements."""


def read_piece(array: ChunkedArray, piece: Piece) -> Steps:
    """Read a piece in steps; return its elements, shape (height, width), or None for fill values.

    Raises
    ------
    ValueError
        If the chunk is damaged.
    """
    stored = array.places.find(piece.at)
    found = None if stored is None else (yield from read_box(array, stored, piece.box))
    if found is None:
        return None
    return found.reshape([found.shape[axis] for axis in array.image_axes])


def read_box(array: ChunkedArray, stored: Stored, box: Box) -> Steps:
    """Read some positions of a chunk in steps; return their elements, or None for fill values."""
    if array.inner is not None:
        return (yield from _read_shard(array, array.inner, stored, box))
    strides = array.strides
    first = sum(start * step for (start, _), step in zip(box, strides, strict=True))
    last = sum((stop - 1) * step for (_, stop), step in zip(box, strides, strict=True))
    elements = yield from _elements(array, stored, first, last + 1)
    if elements is None:
        return None
    # What is picked out is among the elements from the first one of the box to its last one.
    return as_strided(
        elements,
        [stop - start for start, stop in box],
        [step * elements.itemsize for step in strides],
        writeable=False,
    )


def _read_shard(array: ChunkedArray, inner: ChunkedArray, stored: Stored, box: Box) -> Steps:
    """Read some positions of a shard, of the chunks in it that have them."""
    shard = array.codecs[0]
    grid = [one // other for one, other in zip(array.chunks, inner.chunks, strict=True)]
    index = yield from _read_index(shard, stored, math.prod(grid))
    if index is None:
        return None
    first, last = zip(*box, strict=True)
    pieces = list(overlaps(first, last, inner.chunks))
    readings = []
    for at, part in pieces:
        offset, nbytes = index[np.ravel_multi_index(at, grid)].tolist()
        if offset == nbytes == _MISSING:
            readings.append(_nothing())
            continue
        place = Stored(stored.key, stored.start + offset, nbytes)
        readings.append(read_box(inner, place, part))
    found = yield from together(readings)
    elements = np.full([stop - start for start, stop in box], array.fill_value, array.dtype)
    for (at, part), one in zip(pieces, found, strict=True):
        where = tuple(
            slice(number * length + start - begin, number * length + stop - begin)
            for number, length, (start, stop), begin in zip(
                at, inner.chunks, part, first, strict=True
            )
        )
        if one is not None:
            elements[where] = one
    return elements


def _nothing() -> Steps:
    return None
    yield []


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


def _is_cut(part: int, nbytes: int) -> bool:
    """Return whether a part of a chunk is read without the rest; both in bytes of elements."""
    return nbytes > _SMALL_CHUNK and part < _LARGE_PART * nbytes


def read_line(array: ChunkedArray, number: int) -> Steps:
    """Read a chunk of an array with one axis; return all its elements."""
    length = min(array.chunks[0], array.shape[0] - number * array.chunks[0])
    stored = array.places.find((number,))
    found = None if stored is None else (yield from read_box(array, stored, ((0, length),)))
    return np.full(length, array.fill_value) if found is None else found


def _elements(array: ChunkedArray, stored: Stored, start: int, stop: int) -> Steps:
    """Read elements of a chunk, in the order in which they are stored, shape (stop - start,)."""
    dtype = np.dtype(array.dtype)
    nbytes = array.chunk_elements * dtype.itemsize
    begin, end = start * dtype.itemsize, stop * dtype.itemsize
    kinds = [codec["id"] for codec in array.codecs]
    if not stored.skipped and not kinds:
        if stored.nbytes not in (None, nbytes):
            raise ValueError(f"a chunk has {stored.nbytes} bytes, expected {nbytes}")
        content = yield from read_bytes(stored, begin, end, least=stored.start + nbytes)
    elif kinds == ["blosc"] and not stored.skipped and _is_cut(end - begin, nbytes):
        content = yield from read_content(stored, begin, end, nbytes)
    else:
        content = yield from read_bytes(stored, 0, stored.nbytes, expected=nbytes + _MORE)
        if content is not None:
            whole = decoded(content, array.codecs, stored.skipped, nbytes)
            content = np.frombuffer(whole, np.uint8)[begin:end]
    return None if content is None else np.frombuffer(content, dtype)
