"""Filters of HDF5 that differ from those of numcodecs: LZ4 and bitshuffle.

Both store a chunk as blocks. These get the header of Blosc, which has the same blocks: c-blosc then
decompresses and unshuffles them in one call.

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

from readers.chunks.blosc import (
    BITSHUFFLE,
    MOST_ELEMENT_BYTES,
    SHUFFLE,
    as_blosc,
    decompressed,
    unshuffled,
)

_HEAD = struct.Struct(">qi")
"""Bytes of the content, and of a block of it."""
_LENGTH = struct.Struct(">i")
_DEFAULT_BLOCK_BYTES = 8192
_LEAST_BLOCK = 128
_MULTIPLE = 8
"""Bits are shuffled in groups of so many elements; the rest is stored as it is."""


def lz4(data: Any, nbytes: int, elementsize: int = 1) -> Any:
    """Return the content of a chunk of HDF5's LZ4.

    Parameters
    ----------
    data : contiguous bytes
        The chunk.
    nbytes : int
        Bytes of its content.
    elementsize : int
        Bytes of an element, if their bytes were shuffled before; else 1.

    Raises
    ------
    ValueError
        If it is damaged.
    """
    block = min(_checked_head(data, nbytes), nbytes)
    parts, _ = _blocks(memoryview(data), nbytes, block)
    # Blosc shuffles the bytes of each block, HDF5 the bytes of the whole chunk.
    is_whole = block == nbytes
    packed = as_blosc(parts, nbytes, elementsize if is_whole else 1, block, "lz4", shuffle=SHUFFLE)
    content = decompressed(packed, nbytes)
    return content if is_whole else unshuffled(content, elementsize)


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
    if not 0 < elementsize <= MOST_ELEMENT_BYTES:
        raise ValueError(f"bitshuffle of elements of {elementsize} bytes is not read")
    shuffled = nbytes // elementsize // _MULTIPLE * _MULTIPLE * elementsize
    view = memoryview(data).cast("B")
    if compression:
        block_nbytes = _checked_head(data, nbytes)
        parts, end = _blocks(view, shuffled, block_nbytes)
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
            as_blosc(
                *(parts, shuffled, elementsize, min(block_nbytes, shuffled), compression),
                shuffle=BITSHUFFLE,
            ),
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


def _blocks(view: memoryview, nbytes: int, block: int) -> tuple[list[Any], int]:
    """Return the blocks of a content of so many bytes, and their end."""
    found, end = [], _HEAD.size
    for _ in range(0, nbytes, block):
        start = end + _LENGTH.size
        length = _LENGTH.unpack_from(view, end)[0] if start <= len(view) else -1
        if not 0 < length <= len(view) - start:
            raise ValueError(f"a block of {length} bytes reaches beyond the end of the chunk")
        end = start + length
        found.append(view[start:end])
    return found, end


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
