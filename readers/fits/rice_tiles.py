"""RICE_1 images: which tiles a window touches, and where their compressed bytes lie.

The bytes travel as they are, and the graph decodes them (`dali_pipelines.kernels`). astropy parses
the header; the table of tiles is read here, because astropy would read the whole of it and decode
each tile. Nothing in the file is trusted: each descriptor is checked before it is used. Images of
another codec are left to astropy.
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from readers.byte_ranges import bytes_between, read_into, read_ranges
from readers.fits import payload
from readers.fits.payload import make_plan
from readers.fits.planes import ImageShape
from readers.fits.tile_table import (
    FIELD_BYTES,
    STORED_BITPIX,
    TileColumn,
    codec_settings,
    tile_columns,
)
from readers.window import Window

_BLOCKSIZES = (16, 32, payload.MAX_BLOCKSIZE)
"""Other sizes are legal, but nobody writes them; astropy may decode them."""

_LONGEST_BLOCK = 1024

_LENGTH_BITS = {1: 3, 2: 4, 4: 5}
"""Bits that the shortest block takes, by bytes a pixel."""

_GAP = 64 << 10
"""Between two tiles, see `readers.byte_ranges.read_ranges`."""

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
    FITS Standard 4.0, section 10.1 (tiled image compression), 10.2 (quantised floats), 7.3.5
    (variable-length arrays).
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
    """Of the header; NaN for none."""
    columns: dict[str, TileColumn]
    start: int
    """Of the table of tiles, in bytes from the start of the file."""
    row_bytes: int
    num_tiles: int
    """Of all planes."""
    heap_start: int
    data_end: int

    @classmethod
    def of(cls, header: Mapping[str, Any], start: int, stop: int) -> RiceImage | None:
        """Describe an image by the header of its table, or give None if astropy shall decode it.

        Parameters
        ----------
        header : Header or mapping
            Of the BINTABLE.
        start : int
            Of its data, in bytes from the start of the file.
        stop : int
            Behind its data.

        Raises
        ------
        ValueError
            If the header contradicts itself.
        """
        _check(header)
        if header.get("ZCMPTYPE") not in ("RICE_1", "RICE_ONE"):
            return None
        settings = codec_settings(header)
        blocksize, bytepix = settings.get("BLOCKSIZE", 32), settings.get("BYTEPIX", 4)
        bitpix, columns = header["ZBITPIX"], tile_columns(header)
        if columns is None or blocksize not in _BLOCKSIZES or bytepix not in _LENGTH_BITS:
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
        tile = [header.get(f"ZTILE{n}", size if n == 1 else 1) for n, size in enumerate(axes, 1)]
        tile = [min(sizes) for sizes in zip(axes, tile, strict=True)]
        if not tile or min(tile) < 1 or max(tile[2:], default=1) > 1:
            return None  # no pixels, or tiles of several planes
        shape = ImageShape.of(axes[::-1])
        tile_width, tile_height = (*tile, 1)[:2]
        row_bytes, num_tiles = header["NAXIS1"], header["NAXIS2"]
        across, down = -(-shape.width // tile_width), -(-shape.height // tile_height)
        expected = shape.planes * across * down
        if num_tiles != expected:
            raise ValueError(f"the table has {num_tiles} tiles, the image needs {expected}")
        least = (8 * bytepix + _LENGTH_BITS[bytepix] * math.prod(shape) // blocksize) // 8
        if least > stop - start:
            size = "x".join(map(str, axes))
            raise ValueError(f"{size} pixels need at least {least} bytes, there are {stop - start}")
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
            columns=columns,
            start=start,
            row_bytes=row_bytes,
            num_tiles=num_tiles,
            heap_start=start + header.get("THEAP", row_bytes * num_tiles),
            data_end=start + row_bytes * num_tiles + header["PCOUNT"],
        )

    travels = True
    """The graph decodes it, see `readers.fits.plain_image.StoredImage`."""

    def span(self, window: Window | None, planes: Sequence[int]) -> tuple[int, int]:
        """Return the first byte of what a window may need, and that behind the last."""
        del window, planes  # tiles may lie in any order
        return self.start, self.data_end

    def travelling_bytes(self, window: Window | None, planes: Sequence[int]) -> int:
        """Estimate the bytes of payload and plan; other images of an archive may pack worse."""
        y, _, height, _ = self.shape.place(window)
        rows = (y + height - 1) // self.tile_height + 1 - y // self.tile_height
        share = rows / -(-self.shape.height // self.tile_height)
        table = (
            (24 + 24 * (self.dither != payload.UNQUANTIZED)) * self.num_tiles / self.shape.planes
        )
        plane_bytes = (self.data_end - self.heap_start) // self.shape.planes
        between = bytes_between(planes, plane_bytes, int(share * plane_bytes), gap=_GAP)
        return between + len(planes) * (
            int(share * (1.15 * plane_bytes + table)) + payload.OVERHEAD
        )

    def read(
        self, file: int, window: Window | None, planes: Sequence[int]
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.float64], int]:
        """Read the tiles that a window of some planes touches.

        Parameters
        ----------
        file : int
            Descriptor of the open file.
        window : Window, optional
            The whole planes if None.
        planes : sequence of int
            Their numbers.

        Returns
        -------
        data : ndarray, shape (bytes,), uint8
            The tiles' bytes, and some that lie between them, then padding.
        plans : ndarray, shape (planes, numbers), int64
            See `readers.fits.payload`.
        scaling : ndarray, shape (planes, 3 * tiles), float64
            ZSCALE, ZZERO and ZBLANK (NaN for none) of each tile, if floats were quantised.
        input_bytes : int
            Bytes that were read.

        Raises
        ------
        ValueError
            If a descriptor points outside the file, or a tile cannot be what its image needs.
        """
        y, x, height, width = self.shape.place(window)
        across = -(-self.shape.width // self.tile_width)
        rows = range(y // self.tile_height, (y + height - 1) // self.tile_height + 1)
        columns = range(x // self.tile_width, (x + width - 1) // self.tile_width + 1)
        end = min(self.data_end, os.fstat(file).st_size)
        table = self._rows(file, planes, rows, end)
        if len(columns) < across:
            table = table.reshape(-1, across, self.row_bytes)[:, columns.start : columns.stop]
            table = table.reshape(-1, self.row_bytes)

        lengths, offsets = self._descriptors(table, "COMPRESSED_DATA")
        self._check_inside(offsets, lengths, end)
        compressed: Any = slice(None)
        stored: list[tuple[Any, ...]] = []
        if lengths.min() < self._least_bytes(self.tile_height * self.tile_width):
            compressed = lengths > 0
            sizes = np.tile(self._sizes(rows, columns), len(planes))
            if (lengths < self._least_bytes(sizes))[compressed].any():
                raise ValueError("a tile has fewer bytes than its pixels need")
            stored = [
                (tile, *self._stored_tile(file, table[tile : tile + 1], int(sizes[tile]), end))
                for tile in np.flatnonzero(~compressed)
            ]
        data, places, input_bytes = read_ranges(
            file,
            offsets[compressed],
            lengths[compressed],
            gap=_GAP,
            room=sum(len(values) for _, values, _, _ in stored) + payload.PADDING,
        )
        tiles = np.zeros((len(table), payload.PER_TILE), np.int64)
        tiles[compressed, payload.OFFSET] = places
        tiles[:, payload.LENGTH] = lengths
        behind = input_bytes
        for tile, values, bitpix, nbytes in stored:
            tiles[tile] = behind, len(values), bitpix
            data[behind : behind + len(values)] = np.frombuffer(values, np.uint8)
            behind += len(values)
            input_bytes += nbytes
        per_plane = self.num_tiles // self.shape.planes
        plans = [
            make_plan(
                plane_tiles,
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
                # The random numbers of a tile follow from its number in the whole table.
                seed=self.seed and (self.seed - 1 + plane * per_plane) % 10000 + 1,
            )
            for plane, plane_tiles in zip(
                planes, tiles.reshape(len(planes), -1, payload.PER_TILE), strict=True
            )
        ]
        table_bytes = len(planes) * len(rows) * across * self.row_bytes
        scaling = self._tile_scaling(table).reshape(len(planes), -1)
        return data, np.stack(plans), scaling, input_bytes + table_bytes

    def _rows(self, file: int, planes: Sequence[int], rows: range, end: int) -> NDArray[np.uint8]:
        """Give the table's rows of whole rows of tiles, shape (planes * tiles, bytes)."""
        across = -(-self.shape.width // self.tile_width)
        size = len(rows) * across * self.row_bytes
        found = np.empty((len(planes), size), np.uint8)
        for row, plane in zip(found, planes, strict=True):
            first = plane * (self.num_tiles // self.shape.planes) + rows.start * across
            start = self.start + first * self.row_bytes
            if start + size > end:
                raise ValueError(
                    f"the table of tiles lies outside the file: {size} bytes from {start}, "
                    f"the file ends at {end}"
                )
            read_into(row.data, file, start)
        return found.reshape(-1, self.row_bytes)

    def _descriptors(
        self, table: NDArray[np.uint8], name: str
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Give lengths in bytes, and offsets from the start of the file, of some tiles."""
        column = self.columns[name]
        found = column.of_rows(table, 2).astype(np.int64)
        return found[:, 0] * FIELD_BYTES[column.of], self.heap_start + found[:, 1]

    def _sizes(self, rows: range, columns: range) -> NDArray[np.int64]:
        """Give the pixels of each tile."""
        heights = np.minimum(
            self.shape.height - np.array(rows) * self.tile_height, self.tile_height
        )
        widths = np.minimum(self.shape.width - np.array(columns) * self.tile_width, self.tile_width)
        return np.outer(heights, widths).reshape(-1)

    def _check_inside(
        self, offsets: NDArray[np.int64], lengths: NDArray[np.int64], end: int
    ) -> None:
        start = self.heap_start
        if lengths.min() > 0 and offsets.min() >= start and (offsets <= end - lengths).all():
            return
        wrong = (lengths < 0) | ((lengths > 0) & ((offsets < start) | (offsets > end - lengths)))
        if wrong.any():
            tile = int(np.flatnonzero(wrong)[0])
            raise ValueError(
                f"a tile lies outside the file: {lengths[tile]} bytes from {offsets[tile]}, "
                f"expected between {start} and {end}"
            )

    def _least_bytes(self, pixels: Any) -> Any:
        """Give the bytes that a tile must have, before memory is taken for its pixels."""
        blocks = -(-pixels // self.blocksize)
        return -(-(8 * self.bytepix + blocks * _LENGTH_BITS[self.bytepix]) // 8)

    def _stored_tile(
        self, file: int, row: NDArray[np.uint8], size: int, end: int
    ) -> tuple[bytes, int, int]:
        """Give the values of a tile that RICE_1 could not shrink, their BITPIX, and bytes read."""
        for name in ("GZIP_COMPRESSED_DATA", "UNCOMPRESSED_DATA"):
            if name not in self.columns:
                continue
            lengths, offsets = self._descriptors(row, name)
            if lengths[0] == 0:
                continue
            self._check_inside(offsets, lengths, end)
            found = bytearray(int(lengths[0]))
            read_into(memoryview(found), file, int(offsets[0]))
            if name == "UNCOMPRESSED_DATA":
                values, bitpix = bytes(found), STORED_BITPIX[self.columns[name].of]
            else:
                # One byte more than any type has: enough to see that there is too much.
                values = zlib.decompressobj(wbits=31).decompress(found, 8 * size + 1)
                float_bitpix = {4: -32, 8: -64} if self.bitpix < 0 else {4: 32}
                bitpix = {1: 8, 2: 16, **float_bitpix}.get(len(values) // size, 0)
            if bitpix == 0 or len(values) != size * abs(bitpix) // 8:
                raise ValueError(f"a tile of {size} pixels has {len(values)} bytes in {name}")
            return values, bitpix, len(found)
        raise ValueError("a tile has no bytes in any column")

    def _tile_scaling(self, table: NDArray[np.uint8]) -> NDArray[np.float64]:
        if self.dither == payload.UNQUANTIZED:
            return np.zeros((len(table), 0))
        found = np.full((len(table), payload.PER_SCALING), self.zblank, np.float64)
        for place, name in enumerate(("ZSCALE", "ZZERO", "ZBLANK")):
            if name in self.columns:
                found[:, place] = self.columns[name].of_rows(table)[:, 0]
        return found


def _check(header: Mapping[str, Any]) -> None:
    """Refuse what makes the C code behind astropy read or write where it must not."""
    settings = codec_settings(header)
    if header.get("ZCMPTYPE") in ("RICE_1", "RICE_ONE"):
        bytepix, blocksize = settings.get("BYTEPIX", 4), settings.get("BLOCKSIZE", 32)
        if bytepix not in _LENGTH_BITS or not 1 <= blocksize <= _LONGEST_BLOCK:
            raise ValueError(
                f"RICE_1 has 1, 2 or 4 bytes a pixel and blocks of 1 to {_LONGEST_BLOCK}, "
                f"got BYTEPIX {bytepix} and BLOCKSIZE {blocksize}"
            )
    if "SUBTRACTIVE" in str(header.get("ZQUANTIZ")):
        seed = header.get("ZDITHER0")
        if not isinstance(seed, int) or not 1 <= seed <= 10000:
            raise ValueError(f"ZDITHER0 must be 1 to 10000 where ZQUANTIZ dithers, got {seed}")
