"""Codecs whose tiles the graph decodes: their settings, and what is sent of their tiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from readers.buffers import buffer
from readers.fits import payload
from readers.fits.gzip_stream import MOST_RATIO, inflated
from readers.fits.tiles.contract import Codec, CodedTiles, SentTiles
from readers.fits.tiles.hcompress.codec import Hcompress
from readers.fits.tiles.table import codec_settings

_BLOCKSIZES = (16, 32, payload.MAX_BLOCKSIZE)
"""Other sizes are legal, but nobody writes them; astropy decodes them."""

_LONGEST_BLOCK = 1024

_LENGTH_BITS = {1: 3, 2: 4, 4: 5}
"""Bits of the shortest block, by bytes per pixel."""


@dataclass(frozen=True, slots=True)
class Rice(Codec):
    """RICE_1: its tiles are sent as they are."""

    bytepix: int
    blocksize: int

    def least_bytes(self, pixels: Any) -> Any:
        """Return the bytes that so many pixels need at least."""
        blocks = -(-pixels // self.blocksize)
        return -(-(8 * self.bytepix + blocks * _LENGTH_BITS[self.bytepix]) // 8)

    def read(self, tiles: CodedTiles, room: int) -> SentTiles:
        """Read tiles."""
        data, starts, nbytes = tiles.read(room, buffer)
        return SentTiles(data, starts, tiles.lengths, payload.RICE, nbytes)


@dataclass(frozen=True, slots=True)
class Gzip(Codec):
    """GZIP_1 and GZIP_2: tiles are inflated, and sent as big-endian values."""

    bitpix: int
    """BITPIX of the image."""
    is_quantized: bool
    is_shuffled: bool
    """Whether all first bytes of the values come first, then all second ones, as in GZIP_2."""

    BITPIX: ClassVar = (8, 16, 32, -32, -64)

    def least_bytes(self, pixels: Any) -> Any:
        """Return the bytes that so many pixels need at least."""
        return -(-pixels // MOST_RATIO)

    def sent_bytes(self, tile_bytes: int, pixels: int) -> int:
        """Return the bytes that are sent of tiles with so many pixels."""
        del tile_bytes
        return pixels * (4 if self.is_quantized else abs(self.bitpix) // 8)

    def read(self, tiles: CodedTiles, room: int) -> SentTiles:
        """Read and inflate tiles."""
        counts, lengths = tiles.shapes().prod(axis=1), tiles.lengths
        packed, starts, nbytes = tiles.read()
        if len(counts) == 0:
            return SentTiles(np.zeros(room, np.uint8), starts, lengths, payload.RICE, nbytes)
        view = packed.data
        streams = [
            view[start:end]
            for start, end in zip(starts.tolist(), (starts + lengths).tolist(), strict=True)
        ]
        first = inflated(streams[0], int(8 * counts[0]) + 1)
        item, stored = self._values(len(first), int(counts[0]))
        sizes = item * counts
        ends = np.cumsum(sizes)
        data = buffer(int(ends[-1]), room)
        whole, at = data.data, 0
        for stream, end in zip(streams, ends.tolist(), strict=True):
            values = inflated(stream, end - at + 1) if at else first
            if len(values) != end - at:
                raise _wrong_size((end - at) // item, len(values))
            if self.is_shuffled and item == 8:  # kernels know of 2 and 4 bytes
                values = np.frombuffer(values, np.uint8).reshape(8, -1).T.tobytes()
            whole[at:end] = values
            at = end
        return SentTiles(data, ends - sizes, sizes, stored, nbytes)

    def _values(self, nbytes: int, pixels: int) -> tuple[int, int]:
        """Return the bytes of a value and STORED, from the size of a tile.

        CFITSIO once wrote 4 bytes for each int16, so BITPIX does not tell.
        """
        item, rest = divmod(nbytes, pixels)
        if self.is_quantized:
            bitpix = {4: 32 + payload.QUANTIZED}
        elif self.bitpix < 0:
            bitpix = {4: -32, 8: -64}
        else:
            bitpix = {1: 8, 2: 16, 4: 32}
        if rest or item not in bitpix:
            raise _wrong_size(pixels, nbytes)
        return item, bitpix[item] + (payload.SHUFFLED if self.is_shuffled and item in (2, 4) else 0)


@dataclass(frozen=True, slots=True)
class Plio(Codec):
    """PLIO_1: the words of its tiles are sent, without their headers."""

    LETTER: ClassVar = "I"

    def least_bytes(self, pixels: Any) -> Any:
        """Return the bytes of a header and a word: all zeros behind the last word are left out."""
        return 0 * pixels + 8

    def read(self, tiles: CodedTiles, room: int) -> SentTiles:
        """Read tiles, and check their headers."""
        data, starts, nbytes = tiles.read(room, buffer)
        header = data[starts[:, None] + np.arange(10)].view(">i2").astype(np.int64)
        is_old = header[:, 2] > 0
        first = np.where(is_old, 3, header[:, 1])
        end = np.where(is_old, header[:, 2], (header[:, 4] << 15) + header[:, 3])
        if ((first < 3) | (end < first) | (2 * end > tiles.lengths)).any():
            raise ValueError("the header of a PLIO_1 tile does not fit its length")
        return SentTiles(data, starts + 2 * first, 2 * (end - first), payload.PLIO, nbytes)


def codec_of(header: Mapping[str, Any], *, is_quantized: bool) -> Codec | None:
    """Return the codec of an image whose table has this header; None if astropy must decode it.

    Raises
    ------
    ValueError
        If astropy's C code would read or write out of bounds with its settings.
    """
    name = header.get("ZCMPTYPE")
    if name in ("GZIP_1", "GZIP_2"):
        return Gzip(header["ZBITPIX"], is_quantized, name == "GZIP_2")
    if name == "PLIO_1":
        return None if is_quantized else Plio()
    if name == "HCOMPRESS_1":
        smooth = codec_settings(header).get("SMOOTH", 0)
        return Hcompress(smooth != 0) if isinstance(smooth, int) else None
    if name not in ("RICE_1", "RICE_ONE"):
        return None
    settings = codec_settings(header)
    bytepix, blocksize = settings.get("BYTEPIX", 4), settings.get("BLOCKSIZE", 32)
    if bytepix not in _LENGTH_BITS or not 1 <= blocksize <= _LONGEST_BLOCK:
        raise ValueError(
            f"RICE_1 has 1, 2 or 4 bytes a pixel and blocks of 1 to {_LONGEST_BLOCK}, "
            f"got BYTEPIX {bytepix} and BLOCKSIZE {blocksize}"
        )
    return Rice(bytepix, blocksize) if blocksize in _BLOCKSIZES else None


def _wrong_size(pixels: int, nbytes: int) -> ValueError:
    return ValueError(f"a gzipped tile of {pixels} pixels has {nbytes} bytes")
