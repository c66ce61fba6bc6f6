"""Offsets of headers and tiles in a FITS file, to fetch all ranges of a window at once.

They only determine the bytes to fetch ahead: pixels are always read by the file's own headers and
tables. So if a file has changed, wrong offsets only cost some bytes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from readers.byte_ranges import merged
from readers.fits.plain_image import StoredImage
from readers.fits.planes import ImageShape
from readers.fits.tiles.codecs import GAP
from readers.fits.tiles.image import TiledImage
from readers.window import Window

if TYPE_CHECKING:
    from readers.places.contract import Place

Ranges = list[tuple[int, int]]
"""First byte and end of each range."""

COLUMN = "fits_tiles"
"""Column of the Index with the offsets."""

_VERSION = 1
_VERSION_AND_CRC = struct.Struct("<BI")
"""Version, and CRC-32 of all bytes after the CRC."""
_IMAGE = struct.Struct("<Hb3IQ")
"""Number of ranges of headers, BITPIX of a plain image or 0, shape, and start of the data."""
_RANGE = struct.Struct("<QI")
"""First byte and length."""
_TABLE = struct.Struct("<7IQ")
"""Numbers of `TileOffsets`, from `tile_height` on."""
_NEAR = 4096
"""Largest gap to fetch between header, table and tiles, in bytes."""
_MOST_STEPS = 4096
"""Maximum number of steps to keep for a file, one byte each."""
_MOST_STEPS_OF_ROWS = 256
"""The same if tiles are as wide as the image: the tiles of a window are then one range."""


@dataclass(frozen=True, slots=True)
class TileOffsets:
    """Approximate positions of the tiles of some planes in the file."""

    shape: ImageShape
    start: int
    """First byte of the table in the file."""
    steps: NDArray[np.uint8]
    """Shape (groups,): length of each group of tiles, in units, rounded down at both ends."""
    tile_height: int
    tile_width: int
    row_bytes: int
    """Bytes of a row of the table."""
    first_plane: int
    """First plane with offsets."""
    group: int
    """Tiles in a group."""
    unit: int
    """Bytes of a unit."""
    num_tiles: int
    """Number of tiles with offsets."""
    heap: int
    """First byte of the first tile with offsets."""

    @classmethod
    def read(cls, image: TiledImage, place: Place, plane: int | None) -> TileOffsets | None:
        """Read the table of one plane, or of all planes; None if the tiles are not in order."""
        num_tiles = image.table.num_tiles
        first_plane = plane or 0
        if plane is not None:
            num_tiles //= image.shape.planes
        table = image.table.rows(place, [first_plane * num_tiles], num_tiles)
        lengths, offsets = image.table.descriptors(place, table, "COMPRESSED_DATA")
        ends = offsets + lengths
        if lengths.min() < 1 or (offsets[1:] < ends[:-1]).any():
            return None
        is_rows = image.tile_width == image.shape.width
        group = -(-num_tiles // (_MOST_STEPS_OF_ROWS if is_rows else _MOST_STEPS))
        bounds = np.append(offsets[::group], ends[-1]) - offsets[0]
        unit = int(np.diff(bounds).max()) // 254 + 1
        return cls(
            shape=image.shape,
            start=image.table.start,
            tile_height=image.tile_height,
            tile_width=image.tile_width,
            row_bytes=image.table.row_bytes,
            first_plane=first_plane,
            group=group,
            unit=unit,
            num_tiles=num_tiles,
            heap=int(offsets[0]),
            steps=np.diff(bounds // unit).astype(np.uint8),
        )

    def ranges(
        self, window: Window | None, planes: Sequence[int]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first bytes and the ends of the ranges of table and tiles for a window."""
        y, x, height, width = self.shape.region(window)
        across = -(-self.shape.width // self.tile_width)
        plane_tiles = across * -(-self.shape.height // self.tile_height)
        rows = np.arange(y // self.tile_height, (y + height - 1) // self.tile_height + 1)
        lines = np.add.outer(np.array(planes) * plane_tiles, rows * across)
        table = self.start + lines[:, 0] * self.row_bytes
        table_ends = table + len(rows) * across * self.row_bytes
        first = lines.reshape(-1) - self.first_plane * plane_tiles + x // self.tile_width
        last = first + (x + width - 1) // self.tile_width - x // self.tile_width
        if first.min() < 0 or last.max() >= self.num_tiles:
            return table, table_ends  # a plane without offsets
        bounds = np.append(0, np.cumsum(self.steps, dtype=np.int64))
        starts = self.heap + bounds[first // self.group] * self.unit
        stops = self.heap + (bounds[last // self.group + 1] + 1) * self.unit
        starts, stops = merged(starts, stops, GAP)
        return np.append(table, starts), np.append(table_ends, stops)


@dataclass(frozen=True, slots=True)
class ImageOffsets:
    """Positions of the image in its file."""

    header: Ranges
    """Ranges of the header and the table."""
    image: StoredImage | TileOffsets

    def ranges(
        self, window: Window | None, planes: Sequence[int], *, header: bool = True
    ) -> Ranges:
        """Return the ranges of a window in some planes; with `header` also those of the headers."""
        starts, stops = self.image.ranges(window, planes)
        if header:
            more = np.array(self.header, np.int64).T
            starts, stops = np.append(starts, more[0]), np.append(stops, more[1])
        starts, stops = merged(starts, stops, _NEAR)
        return list(zip(starts.tolist(), stops.tolist(), strict=True))

    def pack(self) -> bytes:
        """Return the offsets as bytes: some 60, plus one for each group."""
        image, table = self.image, b""
        bitpix = image.bitpix if isinstance(image, StoredImage) else 0
        ranges = b"".join(_RANGE.pack(start, stop - start) for start, stop in self.header)
        if isinstance(image, TileOffsets):
            extent = image.tile_height, image.tile_width, image.row_bytes, image.first_plane
            counts = image.group, image.unit, image.num_tiles, image.heap
            table = _TABLE.pack(*extent, *counts) + image.steps.tobytes()
        packed = _IMAGE.pack(len(self.header), bitpix, *image.shape, image.start) + ranges + table
        return _VERSION_AND_CRC.pack(_VERSION, zlib.crc32(packed)) + packed

    @classmethod
    def unpack(cls, packed: bytes) -> ImageOffsets | None:
        """Parse the result of `pack`; None if it is empty, damaged, or of another version."""
        begin, packed = packed[: _VERSION_AND_CRC.size], packed[_VERSION_AND_CRC.size :]
        if begin != _VERSION_AND_CRC.pack(_VERSION, zlib.crc32(packed)):
            return None
        count, bitpix, *axes, start = _IMAGE.unpack_from(packed)
        shape, at = ImageShape(*axes), _IMAGE.size + count * _RANGE.size
        header = [(a, a + nbytes) for a, nbytes in _RANGE.iter_unpack(packed[_IMAGE.size : at])]
        if bitpix:
            return cls(header, StoredImage(bitpix=bitpix, shape=shape, start=start))
        steps = np.frombuffer(packed, np.uint8, offset=at + _TABLE.size)
        return cls(header, TileOffsets(shape, start, steps, *_TABLE.unpack_from(packed, at)))
