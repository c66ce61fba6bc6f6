"""RICE_1 images: which tiles a window touches, and where their compressed bytes lie.

The bytes travel as they are, and the graph decodes them (`dali_pipelines.kernels`). astropy parses
the header; the table of tiles is read here, because astropy would read the whole of it and decode
each tile. Nothing in the file is trusted: each descriptor is checked before it is used. Images of
another codec are left to astropy.
"""

from __future__ import annotations

import math
import os
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from readers import plan
from readers.plan import make_plan
from readers.ranges import read_into, read_ranges
from readers.window import Window

_BLOCKSIZES = (16, 32, plan.MAX_BLOCKSIZE)
"""Other sizes are legal, but nobody writes them; astropy may decode them."""

_LONGEST_BLOCK = 1024

_LENGTH_BITS = {1: 3, 2: 4, 4: 5}
"""Bits that the shortest block takes, by bytes a pixel."""

_GAP = 64 << 10
"""Between two tiles, see `readers.ranges.read_ranges`."""

_DITHERS = {
    "NO_DITHER": plan.NO_DITHER,
    "SUBTRACTIVE_DITHER_1": plan.DITHER_1,
    "SUBTRACTIVE_DITHER_2": plan.DITHER_2,
}

_TFORM = re.compile(r"\s*(\d*)([LXBIJKAEDCMPQ])(\w?)")
_FIELD_BYTES = {"L": 1, "B": 1, "A": 1, "I": 2, "J": 4, "E": 4, "K": 8, "D": 8, "C": 8, "M": 16}
_FIELD_BYTES |= {"P": 8, "Q": 16}
_STORED = {"B": 8, "I": 16, "J": 32, "E": -32, "D": -64}
"""BITPIX by the letter of a TFORM."""


@dataclass(frozen=True, slots=True)
class _Column:
    start: int
    """In bytes from the start of a row."""
    letter: str
    """Of TFORM."""
    of: str
    """Letter of what a descriptor points to."""

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(
            {"P": ">i4", "Q": ">i8", "I": ">i2", "J": ">i4", "K": ">i8", "E": ">f4"}.get(
                self.letter, ">f8"
            )
        )

    def of_rows(self, rows: NDArray[np.uint8], count: int = 1) -> NDArray[Any]:
        """Give the numbers of some rows of the table, shape (rows, count)."""
        end = self.start + count * self.dtype.itemsize
        return np.ascontiguousarray(rows[:, self.start : end]).view(self.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class RiceImage:
    """An image in RICE_1 tiles, as its header describes it.

    Notes
    -----
    FITS Standard 4.0, section 10.1 (tiled image compression), 10.2 (quantised floats), 7.3.5
    (variable-length arrays).
    """

    bitpix: int
    height: int
    width: int
    tile_height: int
    tile_width: int
    bytepix: int
    blocksize: int
    dither: int
    seed: int
    zblank: float
    """Of the header; NaN for none."""
    columns: dict[str, _Column]
    start: int
    """Of the table of tiles, in bytes from the start of the file."""
    row_bytes: int
    num_tiles: int
    heap_start: int
    data_end: int

    @classmethod
    def of(cls, header: Mapping[str, Any], start: int, file_size: int) -> RiceImage | None:
        """Describe an image by the header of its table, or give None if astropy shall decode it.

        Parameters
        ----------
        header : Header or mapping
            Of the BINTABLE.
        start : int
            Of its data, in bytes from the start of the file.
        file_size : int
            In bytes.

        Raises
        ------
        ValueError
            If the header contradicts itself.
        """
        _check(header)
        if header.get("ZCMPTYPE") not in ("RICE_1", "RICE_ONE") or header.get("ZNAXIS") != 2:
            return None
        settings = _settings(header)
        blocksize, bytepix = settings.get("BLOCKSIZE", 32), settings.get("BYTEPIX", 4)
        bitpix, columns = header["ZBITPIX"], _columns(header)
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
            and (columns.get("COMPRESSED_DATA") or _Column(0, "", "")).of == "B"
        )
        if not plain:
            return None
        width, height = header["ZNAXIS1"], header["ZNAXIS2"]
        tile_width, tile_height = header.get("ZTILE1", width), header.get("ZTILE2", 1)
        if min(width, height, tile_width, tile_height) < 1:
            return None
        tile_width, tile_height = min(tile_width, width), min(tile_height, height)
        row_bytes, num_tiles = header["NAXIS1"], header["NAXIS2"]
        expected = -(-width // tile_width) * -(-height // tile_height)
        if num_tiles != expected:
            raise ValueError(f"the table has {num_tiles} tiles, the image needs {expected}")
        least = (8 * bytepix + _LENGTH_BITS[bytepix] * width * height // blocksize) // 8
        if least > max(file_size - start, 0):
            raise ValueError(f"{width}x{height} pixels need at least {least} bytes, the file ends")
        zblank = header.get("ZBLANK", header.get("BLANK"))
        return cls(
            bitpix=bitpix,
            height=height,
            width=width,
            tile_height=tile_height,
            tile_width=tile_width,
            bytepix=bytepix,
            blocksize=blocksize,
            dither=dither or 0,
            seed=header["ZDITHER0"] if dither in (plan.DITHER_1, plan.DITHER_2) else 0,
            zblank=math.nan if zblank is None else zblank,
            columns=columns,
            start=start,
            row_bytes=row_bytes,
            num_tiles=num_tiles,
            heap_start=start + header.get("THEAP", row_bytes * num_tiles),
            data_end=start + row_bytes * num_tiles + header["PCOUNT"],
        )

    def place(self, window: Window | None) -> tuple[int, int, int, int]:
        """Give (y, x, height, width) of a window, or of the whole image."""
        if window is None:
            return 0, 0, self.height, self.width
        y, x = window.place(self.height, self.width)
        return y, x, window.height, window.width

    def travelling_bytes(self, window: Window | None) -> int:
        """Estimate the bytes of payload and plan; other images of an archive may pack worse."""
        y, _, height, _ = self.place(window)
        rows = (y + height - 1) // self.tile_height + 1 - y // self.tile_height
        share = rows / -(-self.height // self.tile_height)
        table = (24 + 24 * (self.dither != plan.UNQUANTIZED)) * self.num_tiles
        return int(share * (1.15 * (self.data_end - self.heap_start) + table)) + plan.OVERHEAD

    def read(
        self, file: int, window: Window | None
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.float64], int]:
        """Read the tiles that a window touches.

        Parameters
        ----------
        file : int
            Descriptor of the open file.
        window : Window, optional
            The whole image if None.

        Returns
        -------
        payload : ndarray, shape (bytes,), uint8
            The tiles' bytes, and some that lie between them, then padding.
        plan : ndarray, shape (numbers,), int64
            See `readers.plan`.
        scaling : ndarray, shape (3 * tiles,), float64
            ZSCALE, ZZERO and ZBLANK (NaN for none) of each tile, if floats were quantised.
        input_bytes : int
            Bytes that were read.

        Raises
        ------
        ValueError
            If a descriptor points outside the file, or a tile cannot be what its image needs.
        """
        y, x, height, width = self.place(window)
        across = -(-self.width // self.tile_width)
        rows = range(y // self.tile_height, (y + height - 1) // self.tile_height + 1)
        columns = range(x // self.tile_width, (x + width - 1) // self.tile_width + 1)
        end = min(self.data_end, os.fstat(file).st_size)
        table = self._rows(file, rows.start * across, rows.stop * across, end)
        if len(columns) < across:
            table = table.reshape(len(rows), across, -1)[:, columns.start : columns.stop]
            table = table.reshape(len(rows) * len(columns), -1)

        lengths, offsets = self._descriptors(table, "COMPRESSED_DATA")
        self._check_inside(offsets, lengths, end)
        compressed: Any = slice(None)
        stored: list[tuple[Any, ...]] = []
        if lengths.min() < self._least_bytes(self.tile_height * self.tile_width):
            compressed, sizes = lengths > 0, self._sizes(rows, columns)
            if (lengths < self._least_bytes(sizes))[compressed].any():
                raise ValueError("a tile has fewer bytes than its pixels need")
            stored = [
                (tile, *self._stored_tile(file, table[tile : tile + 1], int(sizes[tile]), end))
                for tile in np.flatnonzero(~compressed)
            ]
        payload, places, input_bytes = read_ranges(
            file,
            offsets[compressed],
            lengths[compressed],
            gap=_GAP,
            room=sum(len(values) for _, values, _, _ in stored),
        )
        tiles = np.zeros((len(table), plan.PER_TILE), np.int64)
        tiles[compressed, plan.OFFSET] = places
        tiles[:, plan.LENGTH] = lengths
        behind = input_bytes
        for tile, values, bitpix, nbytes in stored:
            tiles[tile] = behind, len(values), bitpix
            payload[behind : behind + len(values)] = np.frombuffer(values, np.uint8)
            behind += len(values)
            input_bytes += nbytes
        made = make_plan(
            tiles,
            bitpix=self.bitpix,
            height=self.height,
            width=self.width,
            tile_height=self.tile_height,
            tile_width=self.tile_width,
            top=y,
            left=x,
            bytepix=self.bytepix,
            blocksize=self.blocksize,
            dither=self.dither,
            seed=self.seed,
        )
        table_bytes = len(rows) * across * self.row_bytes
        return payload, made, self._tile_scaling(table), input_bytes + table_bytes

    def _rows(self, file: int, first: int, last: int, end: int) -> NDArray[np.uint8]:
        """Give rows of the table of tiles, shape (rows, bytes)."""
        start, size = self.start + first * self.row_bytes, (last - first) * self.row_bytes
        if start + size > end:
            raise ValueError(
                f"the table of tiles lies outside the file: {size} bytes from {start}, "
                f"the file ends at {end}"
            )
        rows = np.empty((last - first, self.row_bytes), np.uint8)
        read_into(rows.reshape(-1).data, file, start)
        return rows

    def _descriptors(
        self, table: NDArray[np.uint8], name: str
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Give lengths in bytes, and offsets from the start of the file, of some tiles."""
        column = self.columns[name]
        found = column.of_rows(table, 2).astype(np.int64)
        return found[:, 0] * _FIELD_BYTES[column.of], self.heap_start + found[:, 1]

    def _sizes(self, rows: range, columns: range) -> NDArray[np.int64]:
        """Give the pixels of each tile."""
        heights = np.minimum(self.height - np.array(rows) * self.tile_height, self.tile_height)
        widths = np.minimum(self.width - np.array(columns) * self.tile_width, self.tile_width)
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
                values, bitpix = bytes(found), _STORED[self.columns[name].of]
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
        if self.dither == plan.UNQUANTIZED:
            return np.zeros(0)
        found = np.full((len(table), plan.PER_SCALING), self.zblank, np.float64)
        for place, name in enumerate(("ZSCALE", "ZZERO", "ZBLANK")):
            if name in self.columns:
                found[:, place] = self.columns[name].of_rows(table)[:, 0]
        return found.reshape(-1)


def _check(header: Mapping[str, Any]) -> None:
    """Refuse what makes the C code behind astropy read or write where it must not."""
    settings = _settings(header)
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


def _settings(header: Mapping[str, Any]) -> dict[str, Any]:
    """Give the parameters of the codec, ZNAMEi and ZVALi; of two the first, as astropy does."""
    settings: dict[str, Any] = {}
    number = 1
    while (name := header.get(f"ZNAME{number}")) is not None:
        settings.setdefault(str(name).upper(), header[f"ZVAL{number}"])
        number += 1
    return settings


def _columns(header: Mapping[str, Any]) -> dict[str, _Column] | None:
    """Give the columns of the table by name; None if astropy shall look at them.

    ``hdu.columns`` would tell the same, and take as long as all else that is done with the header.
    """
    columns: dict[str, _Column] = {}
    start = 0
    for number in range(1, header["TFIELDS"] + 1):
        found = _TFORM.match(header[f"TFORM{number}"])
        if found is None or f"TSCAL{number}" in header or f"TZERO{number}" in header:
            return None
        count, letter, name = int(found[1] or 1), found[2], header.get(f"TTYPE{number}")
        if not isinstance(name, str):
            return None
        columns[name] = _Column(start, letter, found[3])
        start += -(-count // 8) if letter == "X" else count * _FIELD_BYTES[letter]
    scalars = {"ZSCALE": "ED", "ZZERO": "ED", "ZBLANK": "IJK"}
    arrays = ("COMPRESSED_DATA", "GZIP_COMPRESSED_DATA", "UNCOMPRESSED_DATA")
    odd = [
        name
        for name, letters in scalars.items()
        if name in columns and columns[name].letter not in letters
    ]
    odd += [
        name
        for name in arrays
        if name in columns and (columns[name].letter not in "PQ" or columns[name].of not in _STORED)
    ]
    return None if odd or start != header["NAXIS1"] else columns
