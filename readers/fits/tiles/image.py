"""Tiled images: the tiles that a window touches, as the graph decodes them.

RICE_1 and PLIO_1 tiles are sent unchanged, GZIP tiles are inflated, and the graph decodes them
(`dali_pipelines.kernels`). HCOMPRESS_1 tiles are decoded here. The table of tiles is also read
here: astropy would read the whole table and decode each tile. Each descriptor is checked before it
is used, because files may be damaged. Other codecs are left to astropy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from readers.byte_ranges import bytes_between
from readers.fits import payload
from readers.fits.payload import make_plan
from readers.fits.plain_image import plan_of_shape
from readers.fits.planes import ImageShape
from readers.fits.tiles.codecs import GAP, Codec, Hcompress, Rice, codec_of
from readers.fits.tiles.table import FoundTiles, TileColumn, TileTable, tile_columns
from readers.places.contract import Place
from readers.window import Window

_DITHERS = {
    "NO_DITHER": payload.NO_DITHER,
    "SUBTRACTIVE_DITHER_1": payload.DITHER_1,
    "SUBTRACTIVE_DITHER_2": payload.DITHER_2,
}
_STORED_INTEGERS: dict[int, np.dtype[Any]] = {
    8: np.dtype(">u1"),
    16: np.dtype(">i2"),
    32: np.dtype(">i4"),
}
"""Types by BITPIX."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TiledImage:
    """An image in tiles of a known codec, described by its header.

    Notes
    -----
    FITS Standard 4.0, sections 10.1 (tiled image compression) and 10.2 (quantised floats).
    """

    bitpix: int
    shape: ImageShape
    tile_height: int
    tile_width: int
    codec: Codec
    dither: int
    seed: int
    zblank: float
    """ZBLANK in the header; NaN for none."""
    table: TileTable

    @classmethod
    def of(cls, header: Mapping[str, Any], start: int, stop: int) -> TiledImage | None:
        """Describe an image by the header of its table, whose data are bytes `start` to `stop`.

        Return None if astropy must decode the image. ValueError if the header contradicts itself.
        """
        bitpix, columns = header["ZBITPIX"], tile_columns(header)
        if "ZSCALE" in {header.get(f"TTYPE{n}") for n in range(1, header["TFIELDS"] + 1)}:
            _check_seed(header)
        quantized = columns is not None and "ZSCALE" in columns
        codec = codec_of(header, is_quantized=quantized)
        if codec is None or columns is None:
            return None
        dither = _DITHERS.get(header.get("ZQUANTIZ", "NO_DITHER")) if quantized else 0
        plain = (
            dither is not None
            and bitpix in ((-32, -64) if quantized else codec.BITPIX)
            and quantized == ("ZZERO" in columns)
            and (quantized or "ZBLANK" not in columns)
            and "NULL_PIXEL_MASK" not in columns
            and not any(name in header for name in ("ZMASKCMP", "ZSCALE", "ZZERO"))
            and (columns.get("COMPRESSED_DATA") or TileColumn(0, "", "")).of == codec.LETTER
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
        least = int(codec.least_bytes(math.prod(shape)))
        if least > stop - start:
            of = "x".join(map(str, axes))
            raise ValueError(
                f"{of} pixels need at least {least} bytes, but the HDU has {stop - start}: it is "
                "damaged"
            )
        zblank = header.get("ZBLANK", header.get("BLANK"))
        return cls(
            bitpix=bitpix,
            shape=shape,
            tile_height=tile_height,
            tile_width=tile_width,
            codec=codec,
            dither=dither or 0,
            seed=header["ZDITHER0"] if dither in (payload.DITHER_1, payload.DITHER_2) else 0,
            zblank=math.nan if zblank is None else zblank,
            table=table,
        )

    @property
    def is_decoded(self) -> bool:
        """Whether pixels of windows are sent in place of tiles."""
        return isinstance(self.codec, Hcompress) and self.dither == payload.UNQUANTIZED

    @property
    def sent_tile_pixels(self) -> int:
        """Pixels of a whole tile in the graph; decoded windows are sent in tiles of one row."""
        return self.shape.width if self.is_decoded else self.tile_height * self.tile_width

    @property
    def _across(self) -> int:
        """Tiles in each row of tiles."""
        return -(-self.shape.width // self.tile_width)

    @property
    def _plane_tiles(self) -> int:
        return self.table.num_tiles // self.shape.planes

    def span(self, window: Window | None, planes: Sequence[int]) -> tuple[int, int]:
        """Return the first byte and the end of the data that a window may need."""
        del window, planes  # tiles may be in any order
        return self.table.start, self.table.data_end

    def payload_bytes(self, window: Window | None, planes: Sequence[int]) -> int:
        """Estimate the bytes of payload and plan; other images may compress less well."""
        y, _, height, width = self.shape.region(window)
        if self.is_decoded:
            row_bytes = width * self.bitpix // 8 + 8 * payload.PER_TILE
            return len(planes) * (height * row_bytes + payload.OVERHEAD)
        rows = (y + height - 1) // self.tile_height + 1 - y // self.tile_height
        share = rows / -(-self.shape.height // self.tile_height)
        plan_bytes = (24 + 24 * (self.dither != payload.UNQUANTIZED)) * self._plane_tiles
        plane_bytes = (self.table.data_end - self.table.heap_start) // self.shape.planes
        pixels = rows * self.tile_height * self.shape.width
        between = bytes_between(planes, plane_bytes, int(share * plane_bytes), gap=GAP)
        return between + len(planes) * (
            self.codec.sent_bytes(int(share * plane_bytes), pixels)
            + int(share * plan_bytes)
            + payload.OVERHEAD
        )

    def read(
        self, place: Place, window: Window | None, planes: Sequence[int]
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.float64], int]:
        """Read the tiles that a window touches in some planes.

        Returns
        -------
        data : ndarray, shape (bytes,), uint8
            Tiles, small gaps between them, and padding.
        plans : ndarray, shape (planes, numbers), int64
            See `readers.fits.payload`.
        scaling : ndarray, shape (planes, 3 * tiles), float64
            ZSCALE, ZZERO and ZBLANK (NaN for none) of each tile of quantised floats.
        input_bytes : int
            Number of bytes read.

        Raises
        ------
        ValueError
            If a descriptor points outside the file, or a tile does not fit its image.
        """
        found = self._found(place, window, planes)
        if self.is_decoded:
            return self._read_pixels(place, window, len(planes), found)
        room = sum(len(values) for values, *_ in found.stored.values()) + payload.PADDING
        sent = self.codec.read(found.coded(place), room)
        data = sent.data
        tiles = np.zeros((len(found.table), payload.PER_TILE), np.int64)
        tiles[found.is_coded, payload.OFFSET] = sent.starts
        tiles[found.is_coded, payload.LENGTH] = sent.lengths
        tiles[found.is_coded, payload.STORED] = sent.stored
        end = len(data) - room
        for tile, (values, bitpix, _) in found.stored.items():
            tiles[tile] = end, len(values), bitpix
            data[end : end + len(values)] = np.frombuffer(values, np.uint8)
            end += len(values)
        by_plane = tiles.reshape(len(planes), -1, payload.PER_TILE)
        y, x, *_ = self.shape.region(window)
        plans = [
            self._plan(plane, tiles, y, x) for plane, tiles in zip(planes, by_plane, strict=True)
        ]
        scaling = self._tile_scaling(found.table).reshape(len(planes), -1)
        return data, np.stack(plans), scaling, sent.input_bytes + found.input_bytes

    def _found(self, place: Place, window: Window | None, planes: Sequence[int]) -> FoundTiles:
        """Find the tiles that a window touches; read tiles that are stored without the codec."""
        y, x, height, width = self.shape.region(window)
        rows = range(y // self.tile_height, (y + height - 1) // self.tile_height + 1)
        columns = range(x // self.tile_width, (x + width - 1) // self.tile_width + 1)
        table = self._table_rows(place, planes, rows, columns)
        lengths, offsets = self.table.descriptors(place, table, "COMPRESSED_DATA")
        is_coded: Any = slice(None)
        stored: dict[int, tuple[bytes, int, int]] = {}

        def shapes() -> NDArray[np.int64]:
            return np.tile(self._tile_shapes(rows, columns), (len(planes), 1))

        if lengths.min() < self.codec.least_bytes(self.tile_height * self.tile_width):
            is_coded = lengths > 0
            pixels = shapes().prod(axis=1)
            if (lengths < self.codec.least_bytes(pixels))[is_coded].any():
                raise ValueError("a tile has fewer bytes than its pixels need")
            for tile in np.flatnonzero(~is_coded).tolist():
                row, count = table[tile : tile + 1], int(pixels[tile])
                stored[tile] = self.table.stored_values(place, row, count, floats=self.bitpix < 0)
        nbytes = len(planes) * len(rows) * self._across * self.table.row_bytes
        nbytes += sum(read_bytes for *_, read_bytes in stored.values())
        return FoundTiles(table, lengths, offsets, shapes, is_coded, stored, nbytes)

    def _read_pixels(
        self, place: Place, window: Window | None, num_planes: int, found: FoundTiles
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.float64], int]:
        """Decode the tiles; return the same as `read`."""
        assert isinstance(self.codec, Hcompress)
        y, x, *size = self.shape.region(window)
        decoded, nbytes = self.codec.decode(found.coded(place))
        data, plans, pixels = plan_of_shape((num_planes, *size), _STORED_INTEGERS[self.bitpix])
        tiles = (
            _stored_tile(*found.stored[tile][:2], shape) if tile in found.stored else next(decoded)
            for tile, shape in enumerate(found.shapes())
        )
        _put_together(pixels, tiles, (y, x), (self.tile_height, self.tile_width))
        return data, plans, np.zeros((num_planes, 0)), found.input_bytes + nbytes

    def _table_rows(
        self, place: Place, planes: Sequence[int], rows: range, columns: range
    ) -> NDArray[np.uint8]:
        """Return the rows of the table for the tiles in some rows and columns of tiles."""
        across, row_bytes = self._across, self.table.row_bytes
        firsts = [plane * self._plane_tiles + rows.start * across for plane in planes]
        table = self.table.rows(place, firsts, len(rows) * across)
        if len(columns) == across:
            return table
        inside = table.reshape(-1, across, row_bytes)[:, columns.start : columns.stop]
        return inside.reshape(-1, row_bytes)

    def _tile_shapes(self, rows: range, columns: range) -> NDArray[np.int64]:
        """Return the rows and columns of each tile, shape (tiles, 2)."""
        heights = np.minimum(
            self.shape.height - np.array(rows) * self.tile_height, self.tile_height
        )
        widths = np.minimum(self.shape.width - np.array(columns) * self.tile_width, self.tile_width)
        return np.stack(np.meshgrid(heights, widths, indexing="ij"), axis=-1).reshape(-1, 2)

    def _plan(self, plane: int, tiles: NDArray[np.int64], y: int, x: int) -> NDArray[np.int64]:
        rice = {}
        if isinstance(self.codec, Rice):
            rice = {"bytepix": self.codec.bytepix, "blocksize": self.codec.blocksize}
        # The dithering of a tile depends on its number in the whole table.
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
            **rice,
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


def _check_seed(header: Mapping[str, Any]) -> None:
    """Raise ValueError for a seed with which astropy's C code would read out of bounds."""
    if "SUBTRACTIVE" in str(header.get("ZQUANTIZ")):
        seed = header.get("ZDITHER0")
        if not isinstance(seed, int) or not 1 <= seed <= 10000:
            raise ValueError(f"ZDITHER0 must be 1 to 10000 if ZQUANTIZ dithers, got {seed}")


def _stored_tile(values: bytes, bitpix: int, shape: NDArray[np.int64]) -> NDArray[Any]:
    """Return a tile that is stored without the codec; ValueError if its values are floats."""
    if bitpix not in _STORED_INTEGERS:
        raise ValueError(f"a tile has values of BITPIX {bitpix}, expected integers")
    return np.frombuffer(values, _STORED_INTEGERS[bitpix]).reshape(shape)


def _put_together(
    pixels: NDArray[Any],
    tiles: Iterator[NDArray[Any]],
    corner: tuple[int, int],
    tile_size: tuple[int, int],
) -> None:
    """Copy the tiles that a window touches into its pixels.

    Parameters
    ----------
    pixels : ndarray, shape (planes, height, width)
        Output. Integers that are too large keep their lowest bits, as in astropy.
    tiles : iterator of ndarray, shape (rows, columns)
        Tiles, plane by plane and row by row.
    corner : (int, int)
        First row and column of the window in the image.
    tile_size : (int, int)
        Rows and columns of whole tiles.
    """
    planes, height, width = pixels.shape
    (y, x), (rows, columns) = corner, tile_size
    down = range(y // rows * rows - y, height, rows)
    across = range(x // columns * columns - x, width, columns)
    for (plane, top, left), tile in zip(product(range(planes), down, across), tiles, strict=True):
        inside = tile[max(-top, 0) : height - top, max(-left, 0) : width - left]
        target = pixels[plane, max(top, 0) :, max(left, 0) :]
        target[: inside.shape[0], : inside.shape[1]] = inside
