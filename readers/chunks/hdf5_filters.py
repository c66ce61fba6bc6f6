"""Filters of HDF5 that differ from those of numcodecs: LZ4 and bitshuffle.

Both store a chunk as blocks. Those of bitshuffle get the header of Blosc, which has the same
blocks: c-blosc then decompresses and unshuffles them in one call.

References
----------
HDF5's registered filters 32004 (github.com/HDFGroup/hdf5_plugins) and 32008
(github.com/kiyo-masui/bitshuffle), and the format of Blosc 1 (github.com/Blosc/c-blosc,
README_CHUNK_FORMAT.rst).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from readers.chunks.blosc import HEADER, decompressed

_HEAD = struct.Struct(">qi")
"""Bytes of the content, and of a block of it."""
_LENGTH = struct.Struct(">i")
_BLOSC_BITSHUFFLE, _BLOSC_WHOLE_BLOCKS = 0x04, 0x10
_BLOSC_CODECS = {"": 0, "lz4": 1 << 5, "zstd": 4 << 5}
_MOST_ELEMENT_BYTES = 255
"""Size of the elements that the header of Blosc can hold."""
_DEFAULT_BLOCK_BYTES = 8192
_LEAST_BLOCK = 128
_MULTIPLE = 8
"""Bits are shuffled among a multiple of so many elements; those left at the end are stored."""


def lz4(data: Any, nbytes: int) -> Any:
    """Return the content of a chunk of HDF5's LZ4; ValueError if it is damaged."""
    from numcodecs import lz4 as codec

    block = _checked_head(data, nbytes)
    out = np.empty(nbytes, np.uint8)
    view, at = memoryview(data), _HEAD.size
    for start in range(0, nbytes, block):
        expected = min(block, nbytes - start)
        part, at = _block(view, at)
        if len(part) == expected:
            out[start : start + expected] = np.frombuffer(part, np.uint8)
        else:
            codec.decompress(struct.pack("<i", expected) + part, out[start : start + expected])
    return out


def bitshuffle(data: Any, nbytes: int, elementsize: int, block: int, compression: str) -> Any:
    """Return the content of a chunk of bitshuffle.

    Parameters
    ----------
    data : contiguous bytes
        The chunk.
    nbytes : int
        Bytes of its content.
    elementsize : int
        Bytes of an element.
    block : int
        Elements of a block if there is no compression; 0 for bitshuffle's own choice.
    compression : {"", "lz4", "zstd"}
        How blocks are compressed.

    Raises
    ------
    ValueError
        If it is damaged.
    """
    if not 0 < elementsize <= _MOST_ELEMENT_BYTES:
        raise ValueError(f"bitshuffle of elements of {elementsize} bytes is not read")
    shuffled = nbytes // elementsize // _MULTIPLE * _MULTIPLE * elementsize
    view = memoryview(data).cast("B")
    if compression:
        block_nbytes = _checked_head(data, nbytes)
        parts, end = [], _HEAD.size
        for _ in range(0, shuffled, block_nbytes):
            part, end = _block(view, end)
            parts.append(part)
    else:
        if len(view) != nbytes:
            raise ValueError(f"it has {len(view)} bytes, expected {nbytes}")
        block_nbytes = (block or _default_block(elementsize)) * elementsize
        parts, end = list(_cut(view[:shuffled], block_nbytes)), shuffled
    rest = view[end:]
    if len(rest) != nbytes - shuffled:
        raise ValueError(f"it has {len(rest)} bytes after its blocks, expected {nbytes - shuffled}")
    if block_nbytes % (elementsize * _MULTIPLE):
        raise ValueError(f"it has blocks of {block_nbytes} bytes")
    out = np.empty(nbytes, np.uint8)
    if shuffled:
        lengths = [min(block_nbytes, shuffled - k) for k in range(0, shuffled, block_nbytes)]
        # Blosc takes a part as long as its block for one that is not compressed.
        if compression:
            parts = [
                _uncompressed(part, length, compression) if len(part) == length else part
                for part, length in zip(parts, lengths, strict=True)
            ]
        out[:shuffled] = decompressed(
            _as_blosc(parts, shuffled, elementsize, min(block_nbytes, shuffled), compression),
            shuffled,
        )
    out[shuffled:] = np.frombuffer(rest, np.uint8)
    return out


def _checked_head(data: Any, nbytes: int) -> int:
    """Return the bytes of a block."""
    if len(data) < _HEAD.size:
        raise ValueError(f"it has {len(data)} bytes, fewer than its header")
    found, block = _HEAD.unpack_from(data)
    if found != nbytes or block <= 0:
        raise ValueError(f"its header says {found} bytes in blocks of {block}, expected {nbytes}")
    return block


def _block(view: memoryview, at: int) -> tuple[memoryview, int]:
    """Return the block whose length is at this byte, and its end."""
    start = at + _LENGTH.size
    length = _LENGTH.unpack_from(view, at)[0] if start <= len(view) else -1
    if not 0 < length <= len(view) - start:
        raise ValueError(f"a block of {length} bytes is outside it")
    return view[start : start + length], start + length


def _default_block(elementsize: int) -> int:
    """Return the elements of a block that bitshuffle chooses."""
    elements = _DEFAULT_BLOCK_BYTES // elementsize // _MULTIPLE * _MULTIPLE
    return max(elements, _LEAST_BLOCK)


def _cut(view: memoryview, nbytes: int) -> Iterator[memoryview]:
    for start in range(0, len(view), nbytes):
        yield view[start : start + nbytes]


def _uncompressed(part: memoryview, nbytes: int, compression: str) -> Any:
    from numcodecs import lz4 as lz4_codec
    from numcodecs import zstd

    out = np.empty(nbytes, np.uint8)
    if compression == "zstd":
        return zstd.decompress(part, out)
    return lz4_codec.decompress(struct.pack("<i", nbytes) + bytes(part), out)


def _as_blosc(
    parts: list[Any], nbytes: int, elementsize: int, block_nbytes: int, compression: str
) -> bytes:
    """Return shuffled blocks as a chunk of Blosc."""
    lengths = np.array([len(part) for part in parts], np.int64)
    table_end = HEADER.size + 4 * len(parts)
    starts = table_end + np.cumsum(lengths + 4) - (lengths + 4)
    flags = _BLOSC_BITSHUFFLE | _BLOSC_WHOLE_BLOCKS | _BLOSC_CODECS[compression]
    head = HEADER.pack(
        *(2, 1, flags, elementsize, nbytes, block_nbytes, table_end + int((lengths + 4).sum()))
    )
    joined = [head, starts.astype("<i4").tobytes()]
    for part, length in zip(parts, lengths.astype("<i4"), strict=True):
        joined += (length.tobytes(), part)
    return b"".join(joined)
