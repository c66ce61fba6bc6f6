"""Codecs read tiles of a file, and decode them if the graph cannot."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from readers.buffers import Allocate, buffer, private
from readers.byte_ranges import read_ranges
from readers.fits import payload
from readers.fits.gunzip import MOST_RATIO, inflated
from readers.places.contract import Place

GAP = 64 << 10
"""Gap of `readers.byte_ranges.read_ranges` between two tiles, in bytes."""
_BLOCKSIZES = (16, 32, payload.MAX_BLOCKSIZE)
"""Block sizes of RICE_1 for the graph. astropy decodes other sizes, which are legal but unusual."""

_LONGEST_BLOCK = 1024

_LENGTH_BITS = {1: 3, 2: 4, 4: 5}
"""Bits of the shortest block, by bytes per pixel."""


class CodedTiles(NamedTuple):
    """Encoded tiles in a file."""

    place: Place
    """The file."""
    offsets: NDArray[np.int64]
    """First byte of each tile in the file."""
    lengths: NDArray[np.int64]
    """In bytes."""
    shapes: Callable[[], NDArray[np.int64]]
    """Returns the rows and columns of each tile, shape (tiles, 2)."""

    def read(
        self, room: int = 0, allocate: Allocate = private
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64], int]:
        """Read the bytes of the tiles, like `readers.byte_ranges.read_ranges`."""
        ranges = self.place, self.offsets, self.lengths
        return read_ranges(*ranges, gap=GAP, room=room, allocate=allocate)


class SentTiles(NamedTuple):
    """Bytes of some tiles for the graph."""

    data: NDArray[np.uint8]
    """Shape (bytes,): the tiles, with zero bytes between or after them as padding."""
    starts: NDArray[np.int64]
    """First byte of each tile in `data`."""
    lengths: NDArray[np.int64]
    stored: int
    """Value of STORED, see `readers.fits.payload`."""
    input_bytes: int
    """Number of bytes that were read."""


class Codec(ABC):
    """A tile compression with its settings."""

    __slots__ = ()

    BITPIX: ClassVar[tuple[int, ...]] = (8, 16, 32)
    """BITPIX of images that are not quantised."""
    LETTER: ClassVar[str] = "B"
    """TFORM letter of the elements of tiles."""
    MODULES: ClassVar[tuple[str, ...]] = ()
    """Modules that `read` imports at first use."""

    @abstractmethod
    def least_bytes(self, pixels: Any) -> Any:
        """Return the least number of bytes for a number of pixels."""

    def sent_bytes(self, tile_bytes: int, pixels: int) -> int:
        """Estimate the bytes to send for tiles, from their bytes in the file and their pixels.

        By default tiles are sent compressed. Other images may compress less well.
        """
        del pixels
        return int(1.15 * tile_bytes)

    @abstractmethod
    def read(self, tiles: CodedTiles, room: int) -> SentTiles:
        """Read tiles, and append `room` zero bytes.

        ValueError if a tile lacks pixels, or the place is too short.
        """


@dataclass(frozen=True, slots=True)
class Rice(Codec):
    """RICE_1: tiles are sent compressed."""

    bytepix: int
    blocksize: int

    def least_bytes(self, pixels: Any) -> Any:
        """Return the least number of bytes for a number of pixels."""
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
    """Whether first bytes of all values come first, then their second bytes, ..., as in GZIP_2."""

    BITPIX: ClassVar = (8, 16, 32, -32, -64)

    def least_bytes(self, pixels: Any) -> Any:
        """Return the least number of bytes for a number of pixels."""
        return -(-pixels // MOST_RATIO)

    def sent_bytes(self, tile_bytes: int, pixels: int) -> int:
        """Return the number of bytes that are sent for tiles with this number of pixels."""
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
        """Return the bytes of a value, and STORED, by the size of a tile.

        BITPIX is not enough: CFITSIO once wrote 4 bytes for each int16.
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
        """Return the bytes of a header and a word: zeros after the last word are not stored."""
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


@dataclass(frozen=True, slots=True)
class Hcompress(Codec):
    """HCOMPRESS_1: tiles are decoded here; quantised floats are sent as integers."""

    MODULES: ClassVar[tuple[str, ...]] = ("readers.fits.tiles.hcompress",)

    def least_bytes(self, pixels: Any) -> Any:
        """Return the bytes of a header and the end of a stream, the stream of zeros."""
        return 0 * pixels + 26

    def sent_bytes(self, tile_bytes: int, pixels: int) -> int:
        """Return the number of bytes that are sent for tiles with this number of pixels."""
        del tile_bytes
        return 4 * pixels

    def decode(self, tiles: CodedTiles) -> tuple[Iterator[NDArray[Any]], int]:
        """Read tiles; return an iterator that decodes them, and the number of bytes read."""
        from readers.fits.tiles.hcompress import decode_tile  # numba

        _, offsets, lengths, _ = tiles
        shapes = tiles.shapes()
        data, starts, nbytes = tiles.read()
        sizes = data[starts[:, None] + np.arange(2, 10)].view(">i4")
        for tile in np.flatnonzero((sizes != shapes).any(axis=1) | (shapes < 2).any(axis=1))[:1]:
            (rows, columns), (height, width) = sizes[tile], shapes[tile]
            raise ValueError(
                f"the HCOMPRESS_1 tile at byte {offsets[tile]} has {rows}x{columns} pixels, "
                f"expected {height}x{width}, and at least 2x2"
            )

        def decoded() -> Iterator[NDArray[Any]]:
            for start, length, shape, offset in zip(starts, lengths, shapes, offsets, strict=True):
                tile = data[start : start + length]
                try:
                    yield decode_tile(tile, *shape.tolist())
                except ValueError as error:
                    raise ValueError(f"the HCOMPRESS_1 tile at byte {offset}: {error}") from error

        return decoded(), nbytes

    def read(self, tiles: CodedTiles, room: int) -> SentTiles:
        """Read and decode tiles of a quantised image."""
        sizes = 4 * tiles.shapes().prod(axis=1)
        ends = np.cumsum(sizes)
        decoded, nbytes = self.decode(tiles)
        data = np.zeros(sizes.sum() + room, np.uint8)
        for tile, start, end in zip(decoded, ends - sizes, ends, strict=True):
            data[start:end].view(">i4").reshape(tile.shape)[:] = tile
        return SentTiles(data, ends - sizes, sizes, 32 + payload.QUANTIZED, nbytes)


def codec_of(header: Mapping[str, Any], *, is_quantized: bool) -> Codec | None:
    """Return the codec of an image whose table has this header; None if astropy must decode it.

    ValueError if astropy's C code would read or write out of bounds with its settings.
    """
    name = header.get("ZCMPTYPE")
    if name in ("GZIP_1", "GZIP_2"):
        return Gzip(header["ZBITPIX"], is_quantized, name == "GZIP_2")
    if name == "PLIO_1":
        return None if is_quantized else Plio()
    if name == "HCOMPRESS_1":
        # Smoothing is rare and left to astropy.
        return Hcompress() if _settings(header).get("SMOOTH", 0) == 0 else None
    if name not in ("RICE_1", "RICE_ONE"):
        return None
    settings = _settings(header)
    bytepix, blocksize = settings.get("BYTEPIX", 4), settings.get("BLOCKSIZE", 32)
    if bytepix not in _LENGTH_BITS or not 1 <= blocksize <= _LONGEST_BLOCK:
        raise ValueError(
            f"RICE_1 needs BYTEPIX 1, 2 or 4 and BLOCKSIZE 1 to {_LONGEST_BLOCK}, got BYTEPIX "
            f"{bytepix} and BLOCKSIZE {blocksize}"
        )
    return Rice(bytepix, blocksize) if blocksize in _BLOCKSIZES else None


def _settings(header: Mapping[str, Any]) -> dict[str, Any]:
    """Return the codec's settings, ZNAMEi and ZVALi; the first one of each name, as in astropy."""
    settings: dict[str, Any] = {}
    number = 1
    while (name := header.get(f"ZNAME{number}")) is not None:
        settings.setdefault(str(name).upper(), header[f"ZVAL{number}"])
        number += 1
    return settings


def _wrong_size(pixels: int, nbytes: int) -> ValueError:
    return ValueError(f"a gzipped tile of {pixels} pixels has {nbytes} bytes")
