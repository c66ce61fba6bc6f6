"""Undo the filters of a chunk: compression, shuffling, checksums."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from readers.chunks.array import Codec
from readers.messages import install

Content = Any
"""Contiguous bytes, such as bytes or an ndarray of uint8."""

KNOWN = frozenset(
    (
        *("blosc", "zstd", "lz4", "gzip", "zlib", "bz2", "lzma"),
        *("shuffle", "delta", "fixedscaleoffset", "quantize", "bitround", "astype"),
        *("crc32c", "crc32", "adler32", "fletcher32", "hdf5_lz4", "hdf5_bitshuffle"),
    )
)
"""Filters that can be undone, by the ids of numcodecs."""
MODULES = ("numcodecs", "numcodecs.blosc", "numcodecs.zstd", "deflate")
"""Modules that are imported with the first chunk."""
_CHECKSUM_BYTES = 4


def check_codecs(owner: str, codecs: Sequence[Codec]) -> None:
    """Raise ValueError for the first filter that is not known."""
    for codec in codecs:
        if codec["id"] not in KNOWN:
            raise ValueError(
                f"{owner} has the filter {codec['id']!r}, which is not supported: write it again "
                f"with some of {', '.join(sorted(KNOWN))}"
            )


def decoded(data: Content, codecs: Sequence[Codec], skipped: int, nbytes: int) -> Content:
    """Undo the filters of a whole chunk.

    Parameters
    ----------
    data : contiguous bytes
        The chunk as stored.
    codecs : sequence of Codec
        Filters in the order in which they were applied.
    skipped : int
        Filters that the chunk lacks: bit n is set for ``codecs[n]``.
    nbytes : int
        Bytes of all its elements.

    Raises
    ------
    ValueError
        If it is damaged, or has another length.
    """
    applied = _merged([codec for place, codec in enumerate(codecs) if not skipped >> place & 1])
    lengths = [nbytes, *_lengths(applied, nbytes)]
    if lengths[-1] is not None and len(data) != lengths[-1]:
        raise ValueError(f"a chunk has {len(data)} bytes, expected {lengths[-1]}")
    for codec, expected in zip(reversed(applied), reversed(lengths[:-1]), strict=True):
        try:
            data = _undo(data, codec, expected)
        except ImportError as error:
            raise missing_library(error) from error
        except Exception as error:  # each library has errors of its own
            raise ValueError(f"a chunk is damaged, {codec['id']}: {error}") from error
        found = data.nbytes if isinstance(data, np.ndarray | memoryview) else len(data)
        if expected is not None and found != expected:
            raise ValueError(
                f"a chunk is damaged, {codec['id']}: it has {found} bytes, expected {expected}"
            )
    return data


def _merged(codecs: list[Codec]) -> list[Codec]:
    """Make a shuffle before HDF5's LZ4 a setting of LZ4, because one call undoes both."""
    if [codec["id"] for codec in codecs[-2:]] == ["shuffle", "hdf5_lz4"]:
        return [*codecs[:-2], {**codecs[-1], "elementsize": codecs[-2]["elementsize"]}]
    return codecs


def missing_library(error: ImportError) -> ImportError:
    """Return the error of a library that is not installed, with what to do."""
    return ImportError(f"reading chunks needs {error.name}: {install('chunks')}", name=error.name)


def _lengths(codecs: Sequence[Codec], nbytes: int) -> list[int | None]:
    """Return the bytes after each filter; None if they depend on the content."""
    found: list[int | None] = []
    length: int | None = nbytes
    for codec in codecs:
        kind = codec["id"]
        if kind in ("delta", "fixedscaleoffset", "quantize", "astype"):
            of, to = np.dtype(_decoded_dtype(codec)), np.dtype(_encoded_dtype(codec))
            length = None if length is None else length // of.itemsize * to.itemsize
        elif kind in ("crc32c", "crc32", "adler32", "fletcher32"):
            length = None if length is None else length + _CHECKSUM_BYTES
        elif kind not in ("shuffle", "bitround"):
            length = None
        found.append(length)
    return found


def _decoded_dtype(codec: Codec) -> str:
    return codec["decode_dtype"] if codec["id"] == "astype" else codec["dtype"]


def _encoded_dtype(codec: Codec) -> str:
    if codec["id"] == "astype":
        return codec["encode_dtype"]
    return codec.get("astype") or codec["dtype"]


def _undo(data: Content, codec: Codec, nbytes: int | None) -> Content:
    if codec["id"] == "hdf5_bitshuffle" and nbytes is not None:
        from readers.chunks.hdf5_filters import bitshuffle

        return bitshuffle(data, nbytes, codec["elementsize"], codec["block"], codec["compression"])
    if codec["id"] == "hdf5_lz4" and nbytes is not None:
        from readers.chunks.hdf5_filters import lz4

        return lz4(data, nbytes, codec.get("elementsize", 1))
    if codec["id"] == "shuffle":
        from readers.chunks.blosc import MOST_BLOCK_BYTES, MOST_ELEMENT_BYTES, unshuffled

        elementsize, data = codec.get("elementsize", 4), np.frombuffer(data, np.uint8)
        if elementsize <= MOST_ELEMENT_BYTES and data.nbytes <= MOST_BLOCK_BYTES:
            return unshuffled(data, elementsize)
    undo = _OWN.get(codec["id"])
    if undo is not None and nbytes is not None:
        return undo(data, nbytes)
    import numcodecs

    return numcodecs.get_codec(dict(codec)).decode(data)


def _zlib(data: Content, nbytes: int) -> Content:
    import deflate

    return deflate.zlib_decompress(data, nbytes)


def _gzip(data: Content, nbytes: int) -> Content:
    import deflate

    return deflate.gzip_decompress(data, nbytes)


def _zstd(data: Content, nbytes: int) -> Content:
    from numcodecs import zstd

    return zstd.decompress(data, np.empty(nbytes, np.uint8))


def _lz4(data: Content, nbytes: int) -> Content:
    from numcodecs import lz4

    (length,) = struct.unpack_from("<i", data)
    if length != nbytes:
        raise ValueError(f"it says that it has {length} bytes, expected {nbytes}")
    return lz4.decompress(data, np.empty(nbytes, np.uint8))


def _blosc(data: Content, nbytes: int) -> Content:
    from readers.chunks.blosc import decompressed

    return decompressed(data, nbytes)


_OWN: dict[str, Callable[[Any, int], Content]] = {
    "zlib": _zlib,
    "gzip": _gzip,
    "zstd": _zstd,
    "lz4": _lz4,
    "blosc": _blosc,
}
"""Functions that get the length of the result: a damaged length must not allocate more."""
