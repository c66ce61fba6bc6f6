"""Chunks of Blosc 1: some of their blocks, read by ranges, and joined to a smaller chunk.

Blocks are independent, so some of them make a valid chunk, with any codec, shuffle and split.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from readers.chunks.fetch import Range, Steps, read_bytes, together
from readers.chunks.table import Stored

_HEADER = struct.Struct("<BBBBiii")
_VERSION = 2
SHUFFLE, BITSHUFFLE = 0x01, 0x04
"""Flags of chunks: the bytes, or the bits, of a block are shuffled."""
_MEMCPYED, _WHOLE_BLOCKS = 0x02, 0x10
"""Flags of chunks: the content is not compressed; blocks are not split by the bytes of elements."""
_CODECS = {"": 0, "lz4": 1 << 5, "zstd": 4 << 5}
_CODEC_VERSION = 1
MOST_ELEMENT_BYTES = 255
"""Largest size of elements that the header holds."""
MOST_BLOCK_BYTES = (2**31 - 1 - 4 * MOST_ELEMENT_BYTES) // 3
"""Largest block that c-blosc takes."""
_HEAD_BYTES = 4 << 10
"""Bytes of the first read; they hold the positions of a thousand blocks."""
_FIRST_BYTES = 128 << 10
"""Bytes of the first read of a remote object, which takes long to answer."""


class _Header(NamedTuple):
    """Header of a chunk, by the names of Blosc."""

    version: int
    codec_version: int
    flags: int
    typesize: int
    nbytes: int
    """Bytes of the content."""
    blocksize: int
    """Bytes of a block of the content; the last one may be shorter."""
    cbytes: int
    """Bytes of the chunk."""

    @classmethod
    def of(cls, head: Any, nbytes: int, stored: int | None) -> _Header:
        """Read the header of a chunk with `nbytes` of content in at most `stored` bytes.

        ValueError if it says otherwise.
        """
        if len(head) < _HEADER.size:
            raise ValueError(f"a chunk of Blosc has {len(head)} bytes, fewer than its header")
        found = cls(*_HEADER.unpack_from(head))
        is_short = stored is not None and found.cbytes > stored
        if found.version != _VERSION or found.nbytes != nbytes or is_short:
            raise ValueError(
                f"a chunk of Blosc has version {found.version} and {found.nbytes} bytes in "
                f"{found.cbytes}, expected version {_VERSION} and {nbytes} bytes"
                f"{'' if stored is None else f' in {stored}'}"
            )
        is_split = not found.flags & (_MEMCPYED | _WHOLE_BLOCKS)
        # c-blosc does not write the bytes of a split block that do not fill an element.
        has_rest = is_split and found.typesize and found.blocksize % found.typesize
        if found.cbytes < _HEADER.size or not 0 < found.blocksize <= nbytes or has_rest:
            raise ValueError(f"a chunk of Blosc is damaged: its header says {found}")
        return found


def decompressed(data: Any, nbytes: int) -> Any:
    """Return the content of a whole chunk; ValueError if it is damaged, or has another length."""
    _Header.of(data, nbytes, len(data))
    from numcodecs import blosc

    blosc.use_threads = False  # readers are processes
    try:
        return blosc.decompress(data, np.empty(nbytes, np.uint8))
    except RuntimeError as error:
        raise ValueError(f"a chunk of Blosc is damaged: {error}") from error


def unshuffled(data: NDArray[np.uint8], elementsize: int) -> Any:
    """Return elements whose bytes were shuffled, as c-blosc does it: with vector instructions.

    Bytes at the end that do not fill an element are not shuffled.
    """
    nbytes = len(data)
    return decompressed(as_blosc([data], nbytes, elementsize, nbytes, shuffle=SHUFFLE), nbytes)


def as_blosc(
    blocks: Sequence[Any],
    nbytes: int,
    elementsize: int,
    blocksize: int,
    compression: str = "",
    *,
    shuffle: int,
) -> bytes:
    """Return shuffled blocks as a chunk of Blosc.

    Parameters
    ----------
    blocks : sequence of contiguous bytes
        The blocks; one as long as its content is not compressed.
    nbytes : int
        Bytes of the content.
    elementsize : int
        Bytes of an element, at most `MOST_ELEMENT_BYTES`.
    blocksize : int
        Bytes of the content of a block, at most `MOST_BLOCK_BYTES`; the last one may be shorter.
    compression : {"", "lz4", "zstd"}
        How blocks are compressed.
    shuffle : int
        `SHUFFLE` or `BITSHUFFLE`. `SHUFFLE` does nothing to elements of one byte.

    Raises
    ------
    ValueError
        If the elements or blocks are larger than c-blosc takes.
    """
    if elementsize > MOST_ELEMENT_BYTES or blocksize > MOST_BLOCK_BYTES or nbytes >= 2**31:
        raise ValueError(
            f"chunks of {nbytes} bytes in blocks of {blocksize} and elements of {elementsize} are "
            "not supported: write the array again with smaller chunks"
        )
    lengths = np.array([len(block) for block in blocks], np.int64)
    table_end = _HEADER.size + 4 * len(blocks)
    starts = table_end + np.cumsum(lengths + 4) - (lengths + 4)
    flags = shuffle | _WHOLE_BLOCKS | _CODECS[compression]
    cbytes = table_end + int((lengths + 4).sum())
    head = _HEADER.pack(_VERSION, _CODEC_VERSION, flags, elementsize, nbytes, blocksize, cbytes)
    joined = [head, starts.astype("<i4").tobytes()]
    for block, length in zip(blocks, lengths.astype("<i4"), strict=True):
        joined += (length.tobytes(), block)
    return b"".join(joined)


def read_content(stored: Stored, spans: Sequence[tuple[int, int]], nbytes: int) -> Steps:
    """Read parts of the content of a chunk in steps, from the blocks that they are in.

    Parameters
    ----------
    stored : Stored
        Where the chunk is.
    spans : sequence of (int, int)
        First byte and end of each part.
    nbytes : int
        Bytes of the whole content.

    Returns
    -------
    list of memoryview or ndarray of bytes, or None
        The parts; None if the object is missing.

    Raises
    ------
    ValueError
        If it is damaged, or has another length.
    """
    first = _HEAD_BYTES if stored.nbytes is None else min(_HEAD_BYTES, stored.nbytes)
    (head,) = yield [Range(stored.key, stored.start, stored.start + first, expected=_FIRST_BYTES)]
    if head is None:
        return None
    header = _Header.of(head, nbytes, stored.nbytes)
    least = stored.start + header.cbytes
    if header.flags & _MEMCPYED:
        size = _HEADER.size
        parts = [read_bytes(stored, size + a, size + b, least=least) for a, b in spans]
        return (yield from together(parts))
    num_blocks = -(-nbytes // header.blocksize)
    table_end = _HEADER.size + 4 * num_blocks
    if table_end > header.cbytes:
        raise ValueError(f"a chunk of Blosc of {header.cbytes} bytes ends in its header")
    if table_end > len(head):
        head = yield from read_bytes(stored, 0, table_end)
        if head is None:
            return None
    starts = np.frombuffer(head, "<i4", num_blocks, _HEADER.size)
    # Blocks are written by threads, so they are in any order; one ends where the next one begins.
    edges = np.append(np.sort(starts), header.cbytes)
    if edges[0] < table_end or edges[-2] >= header.cbytes:
        raise ValueError("a chunk of Blosc is damaged: a block is outside the chunk")
    size = header.blocksize
    numbers = sorted({n for start, stop in spans for n in range(start // size, -(-stop // size))})
    if numbers == [num_blocks - 1] and num_blocks > 1:
        numbers.insert(0, num_blocks - 2)  # a short block is only valid after a whole one
    firsts = starts[numbers]
    lasts = edges[np.searchsorted(edges, firsts, "right")]
    ranges = [
        Range(stored.key, stored.start + int(a), stored.start + int(b), least)
        for a, b in zip(firsts, lasts, strict=True)
    ]
    blocks = [block for block in (yield ranges) if block is not None]
    lengths = lasts - firsts
    if [len(block) for block in blocks] != lengths.tolist():
        raise ValueError(f"a chunk of Blosc ends early, expected {header.cbytes} bytes")
    last_nbytes = min(size, nbytes - numbers[-1] * size)
    content_nbytes = (len(numbers) - 1) * size + last_nbytes
    cut_starts = _HEADER.size + 4 * len(blocks) + np.cumsum(lengths) - lengths
    cut_nbytes = _HEADER.size + 4 * len(blocks) + int(lengths.sum())
    cut_header = header._replace(
        nbytes=content_nbytes,
        blocksize=min(size, content_nbytes),
        cbytes=cut_nbytes,
    )
    begin_of_cut = _HEADER.pack(*cut_header) + cut_starts.astype("<i4").tobytes()
    cut = np.concatenate([np.frombuffer(begin_of_cut, np.uint8), *blocks])
    content = decompressed(cut, content_nbytes)
    begins = [numbers.index(start // size) * size + start % size for start, _ in spans]
    return [content[at : at + b - a] for at, (a, b) in zip(begins, spans, strict=True)]
