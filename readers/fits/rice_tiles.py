"""RICE_1 images: the tiles that a window touches, and the positions of their compressed bytes.

The bytes are sent as they are, and the graph decodes them (`dali_pipelines.kernels`). The table of
tiles is read here because astropy would read all of it and decode each tile. Nothing in the file is
trusted: each descriptor is checked before it is used. Other codecs are left to astropy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from readers.byte_ranges import bytes_between, read_ranges
from readers.fits import payload
from readers.fits.payload import make_plan
from readers.fits.planes import ImageShape
from readers.fits.tile_table import TileColumn, TileTable, codec_settings, tile_columns
from readers.places.contract import Place
from readers.window import Window

_BLOCKSIZES = (16, 32, payload.MAX_BLOCKSIZE)
"""Other sizes are legal, but nobody writes them; astropy decodes them."""

_LONGEST_BLOCK = 1024

_LENGTH_BITS = {1: 3, 2: 4, 4: 5}
"""Bits of the shortest block, by bytes per pixel."""

GAP = 64 << 10
"""Bytes between two tiles, see `readers.byte_ranges.read_ranges`."""

_DITHERS = {
    "NO_DITHER": payload.NO_DITHER,
    "SUBTRACTIVE_DITHER_1": payload.DITHER_1,
    "SUBTRACTIVE_DITHER_2": payload.DITHER_2,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RiceImage:
    """An image in RICE_1 tiles, as its header describes it.

    Notes
    -----
    FITS Standard 4.0, sections 10.1 (tiled image compression) and 10.2 (quantised floats).
    """

    bitpix: int
    shape: ImageShape
    tile_height: int
    tile_width: int
    bytepix: int
    blocksize: int
    dither: int
    seed: int
    zblank: float
    """Value in the header; NaN for none."""
    table: TileTable

    @classmethod
    def of(cls, header: Mapping[str, Any], start: int, stop: int) -> RiceImage | None:
        """Describe an image whose table has this header, and its data at bytes `start` to `stop`.

        Return None if astropy must decode it.

        Raises
        ------
        ValueError
            If the header contradicts itself.
        """
        _check_seed(header)
        if header.get("ZCMPTYPE") not in ("RICE_1", "RICE_ONE"):
            return None
        bytepix, blocksize = _codec(header)
        bitpix, columns = header["ZBITPIX"], tile_columns(header)
        if columns is None or blocksize not in _BLOCKSIZES:
            return None
        quantized = "ZSCALE" in columns
        dither = _DITHERS.get(header.get("ZQUANTIZ", "NO_DITHER")) if quantized else 0
        plain = (
            dither is not None
            and bitpix in ((-32, -64) if quantized else (8, 16, 32))
            and quantized == ("ZZERO" in columns)
            and (quantized or "ZBLANK" not in columns)
            and "NULL_PIXEL_MASK" not in columns
            and not any(name in header for name in ("ZMASKCMP", "ZSCALE", "ZZERO"))
            and (columns.get("COMPRESSED_DATA") or TileColumn(0, "", "")).of == "B"
        )
        if not plain:
            return None
        axes = [header[f"ZNAXIS{n}"] for n in range(1, header["ZNAXIS"] + 1)]
        tile = [header.get(f"ZTILE{n}", axes[0] if n == 1 else 1) for n in range(1, len(axes) + 1)]
        tile = [min(lengths) for lengths in zip(axes, tile, strict=True)]
        if not tile or min(tile) < 1 or max(tile[2:], default=1) > 1:
            return None  # no pixels, or tiles across planes
        shape = ImageShape.of(axes[::-1])
        tile_width, tile_height = (*tile, 1)[:2]
        across, down = -(-shape.width // tile_width), -(-shape.height // tile_height)
        table, expected = TileTable.of(header, columns, start), shape.planes * across * down
        if table.num_tiles != expected:
            raise ValueError(f"the table has {table.num_tiles} tiles, the image needs {expected}")
        least = (8 * bytepix + _LENGTH_BITS[bytepix] * math.prod(shape) // blocksize) // 8
        if least > stop - start:
            of = "x".join(map(str, axes))
            raise ValueError(f"{of} pixels need at least {least} bytes, there are {stop - start}")
        zblank = header.get("ZBLANK", header.get("BLANK"))
        return cls(
            bitpix=bitpix,
            shape=shape,
            tile_height=tile_height,
            tile_width=tile_width,
            bytepix=bytepix,
            blocksize=blocksize,
            dither=dither or 0,
            seed=header["ZDITHER0"] if dither in (payload.DITHER_1, payload.DITHER_2) else 0,
            zblank=math.nan if zblank is None else zblank,
            table=table,
        )

    @property
    def tile_pixels(self) -> int:
        """Pixels of a whole tile."""
        return self.tile_height * self.tile_width

    @property
    def _across(self) -> int:
        """Tiles in each row of tiles."""
        return -(-self.shape.width // self.tile_width)

    @property
    def _plane_tiles(self) -> int:
        return self.table.num_tiles // self.shape.planes

    def span(self, window: Window | None, planes: Sequence[int]) -> tuple[int, int]:
        """Return the first byte and the end of the data that a window may need."""
        del window, planes  # tiles may lie in any order
        return self.table.start, self.table.data_end

    def payload_bytes(self, window: Window | None, planes: Sequence[int]) -> int:
        """Estimate the bytes of payload and plan, allowing for images that compress less well."""
        y, _, height, _ = self.shape.region(window)
        rows = (y + height - 1) // self.tile_height + 1 - y // self.tile_height
        share = rows / -(-self.shape.height // self.tile_height)
        plan_bytes = (24 + 24 * (self.dither != payload.UNQUANTIZED)) * self._plane_tiles
        plane_bytes = (self.table.data_end - self.table.heap_start) // self.shape.planes
        between = bytes_between(planes, plane_bytes, int(share * plane_bytes), gap=GAP)
        return between + len(planes) * (
            int(share * (1.15 * plane_bytes + plan_bytes)) + payload.OVERHEAD
        )

    def read(
        self, place: Place, window: Window | None, planes: Sequence[int]
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.float64], int]:
        """Read the tiles that a window touches in some planes.

        Returns
        -------
        data : ndarray, shape (bytes,), uint8
            The tiles' bytes and small gaps between them, then padding.
        plans : ndarray, shape (planes, numbers), int64
            See `readers.fits.payload`.
        scaling : ndarray, shape (planes, 3 * tiles), float64
            ZSCALE, ZZERO and ZBLANK (NaN for none) of each tile if floats are quantised.
        input_bytes : int
            Bytes that were read.

        Raises
        ------
        ValueError
            If a descriptor points outside the file, or a tile does not fit its image.
        """
        y, x, height, width = self.shape.region(window)
        rows = range(y // self.tile_height, (y + height - 1) // self.tile_height + 1)
        columns = range(x // self.tile_width, (x + width - 1) // self.tile_width + 1)
        table = self._table_rows(place, planes, rows, columns)
        lengths, offsets = self.table.descriptors(place, table, "COMPRESSED_DATA")
        is_rice: Any = slice(None)
        stored: dict[int, tuple[bytes, int, int]] = {}
        if lengths.min() < self._least_bytes(self.tile_pixels):
            is_rice = lengths > 0
            pixels = np.tile(self._tile_pixels(rows, columns), len(planes))
            if (lengths < self._least_bytes(pixels))[is_rice].any():
                raise ValueError("a tile has fewer bytes than its pixels need")
            for tile in np.flatnonzero(~is_rice).tolist():
                row, count = table[tile : tile + 1], int(pixels[tile])
                stored[tile] = self.table.stored_values(place, row, count, floats=self.bitpix < 0)
        room = sum(len(values) for values, *_ in stored.values()) + payload.PADDING
        data, starts, input_bytes = read_ranges(
            place, offsets[is_rice], lengths[is_rice], gap=GAP, room=room
        )
        tiles = np.zeros((len(table), payload.PER_TILE), np.int64)
        tiles[is_rice, payload.OFFSET] = starts
        tiles[:, payload.LENGTH] = lengths
        end = input_bytes
        for tile, (values, bitpix, nbytes) in stored.items():
            tiles[tile] = end, len(values), bitpix
            data[end : end + len(values)] = np.frombuffer(values, np.uint8)
            end += len(values)
            input_bytes += nbytes
        by_plane = tiles.reshape(len(planes), -1, payload.PER_TILE)
        plans = [
            self._plan(plane, found, y, x) for plane, found in zip(planes, by_plane, strict=True)
        ]
        table_bytes = len(planes) * len(rows) * self._across * self.table.row_bytes
        scaling = self._tile_scaling(table).reshape(len(planes), -1)
        return data, np.stack(plans), scaling, input_bytes + table_bytes

    def _table_rows(
        self, place: Place, planes: Sequence[int], rows: range, columns: range
    ) -> NDArray[np.uint8]:
        """Return the table's rows of the tiles in some rows and columns of tiles."""
        across, row_bytes = self._across, self.table.row_bytes
        firsts = [plane * self._plane_tiles + rows.start * across for plane in planes]
        table = self.table.rows(place, firsts, len(rows) * across)
        if len(columns) == across:
            return table
        inside = table.reshape(-1, across, row_bytes)[:, columns.start : columns.stop]
        return inside.reshape(-1, row_bytes)

    def _tile_pixels(self, rows: range, columns: range) -> NDArray[np.int64]:
        """Return the number of pixels of each tile."""
        heights = np.minimum(
            self.shape.height - np.array(rows) * self.tile_height, self.tile_height
        )
        widths = np.minimum(self.shape.width - np.array(columns) * self.tile_width, self.tile_width)
        return np.outer(heights, widths).reshape(-1)

    def _least_bytes(self, pixels: Any) -> Any:
        """Return the bytes that a tile must have at least; checked before memory is allocated."""
        blocks = -(-pixels // self.blocksize)
        return -(-(8 * self.bytepix + blocks * _LENGTH_BITS[self.bytepix]) // 8)

    def _plan(self, plane: int, tiles: NDArray[np.int64], y: int, x: int) -> NDArray[np.int64]:
        # The random numbers of a tile follow from its number in the whole table.
        offset = plane * self._plane_tiles
        return make_plan(
            tiles,
            bitpix=self.bitpix,
            height=self.shape.height,
            width=self.shape.width,
            tile_height=self.tile_height,
            tile_width=self.tile_width,
            top=y,
            left=x,
            bytepix=self.bytepix,
            blocksize=self.blocksize,
            dither=self.dither,
            seed=self.seed and (self.seed - 1 + offset) % 10000 + 1,
        )

    def _tile_scaling(self, table: NDArray[np.uint8]) -> NDArray[np.float64]:
        if self.dither == payload.UNQUANTIZED:
            return np.zeros((len(table), 0))
        found = np.full((len(table), payload.PER_SCALING), self.zblank, np.float64)
        for position, name in enumerate(("ZSCALE", "ZZERO", "ZBLANK")):
            if name in self.table.columns:
                found[:, position] = self.table.columns[name].of_rows(table)[:, 0]
        return found


def _codec(header: Mapping[str, Any]) -> tuple[int, int]:
    """Return BYTEPIX and BLOCKSIZE; with others astropy's C code reads or writes out of bounds."""
    settings = codec_settings(header)
    bytepix, blocksize = settings.get("BYTEPIX", 4), settings.get("BLOCKSIZE", 32)
    if bytepix not in _LENGTH_BITS or not 1 <= blocksize <= _LONGEST_BLOCK:
        raise ValueError(
            f"RICE_1 has 1, 2 or 4 bytes a pixel and blocks of 1 to {_LONGEST_BLOCK}, "
            f"got BYTEPIX {bytepix} and BLOCKSIZE {blocksize}"
        )
    return bytepix, blocksize


def _check_seed(header: Mapping[str, Any]) -> None:
    """Reject a seed with which astropy's C code reads out of bounds, whatever the codec."""
    if "SUBTRACTIVE" in str(header.get("ZQUANTIZ")):
        seed = header.get("ZDITHER0")
        if not isinstance(seed, int) or not 1 <= seed <= 10000:
            raise ValueError(f"ZDITHER0 must be 1 to 10000 where ZQUANTIZ dithers, got {seed}")
