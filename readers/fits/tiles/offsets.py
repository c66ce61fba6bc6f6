"""Offsets of headers and tiles in a FITS file, to fetch all ranges of a window at once.

They only determine the bytes to fetch ahead. Pixels follow from the file itself, so offsets of a
file that has changed only cost some bytes.
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
"""Column of the Index that `readers.fits.reader.FitsReader` uses."""

_VERSION = 1
_HEAD = struct.Struct("<BIHb3IQ")
"""Version, CRC-32 of the bytes after it, number of ranges of headers, BITPIX of a plain image or 0,
shape, and start of the data."""
_SUMMED = 5
"""First byte covered by the CRC."""
_RANGE = struct.Struct("<QI")
"""First byte and length."""
_TABLE = struct.Struct("<7IQ")
"""Numbers of `TileOffsets`, from `tile_height` on."""
_NEAR = 4096
"""Largest gap, in bytes, between header, table and tiles that is fetched as well."""
_MOST_STEPS = 4096
"""Most steps of a file, one byte each."""
_MOST_STEPS_OF_ROWS = 256
"""Maximum number of steps if tiles are as wide as the image: then a window needs one run of
tiles."""


@dataclass(frozen=True, slots=True)
class TileOffsets:
    """Positions in the file of the tiles of some planes, to within a step."""

    shape: ImageShape
    start: int
    """First byte of the table in the file."""
    steps: NDArray[np.uint8]
    """Shape (groups,): length of each group of tiles, in units; start and end are rounded down."""
    tile_height: int
    tile_width: int
    row_bytes: int
    """Bytes of a row of the table."""
    first_plane: int
    """First plane with offsets."""
    group: int
    """Tiles in a step."""
    unit: int
    """Bytes of a unit."""
    num_tiles: int
    """Number of tiles with offsets."""
    heap: int
    """First byte of the first of these tiles."""

    @classmethod
    def read(cls, image: TiledImage, place: Place, plane: int | None) -> TileOffsets | None:
        """Read the table for all planes, or for one plane; None if the tiles are not in order."""
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
        """Return first bytes and ends of the ranges of table and tiles that a window needs."""
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
            return table, table_ends  # another plane
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
        """Return the ranges that planes of a window need, with or without those of `header`."""
        starts, stops = self.image.ranges(window, planes)
        if header:
            more = np.array(self.header, np.int64).T
            starts, stops = np.append(starts, more[0]), np.append(stops, more[1])
        starts, stops = merged(starts, stops, _NEAR)
        return list(zip(starts.tolist(), stops.tolist(), strict=True))

    def pack(self) -> bytes:
        """Return the offsets as bytes: some 60, and one for each step."""
        image, table = self.image, b""
        bitpix = image.bitpix if isinstance(image, StoredImage) else 0
        ranges = b"".join(_RANGE.pack(start, stop - start) for start, stop in self.header)
        if isinstance(image, TileOffsets):
            extent = image.tile_height, image.tile_width, image.row_bytes, image.first_plane
            counts = image.group, image.unit, image.num_tiles, image.heap
            table = _TABLE.pack(*extent, *counts) + image.steps.tobytes()
        head = len(self.header), bitpix, *image.shape, image.start
        packed = _HEAD.pack(_VERSION, 0, *head) + ranges + table
        return _HEAD.pack(_VERSION, zlib.crc32(packed[_SUMMED:]), *head) + ranges + table

    @classmethod
    def unpack(cls, packed: bytes) -> ImageOffsets | None:
        """Parse the result of `pack`; None if it is empty, damaged, or of another version."""
        if packed[:1] != bytes((_VERSION,)) or len(packed) < _HEAD.size:
            return None
        _, crc, count, bitpix, *axes, start = _HEAD.unpack_from(packed)
        if crc != zlib.crc32(packed[_SUMMED:]):
            return None
        shape, at = ImageShape(*axes), _HEAD.size + count * _RANGE.size
        header = [(a, a + nbytes) for a, nbytes in _RANGE.iter_unpack(packed[_HEAD.size : at])]
        if bitpix:
            return cls(header, StoredImage(bitpix=bitpix, shape=shape, start=start))
        steps = np.frombuffer(packed, np.uint8, offset=at + _TABLE.size)
        return cls(header, TileOffsets(shape, start, steps, *_TABLE.unpack_from(packed, at)))
