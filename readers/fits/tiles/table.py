"""The binary table of a compressed image: its columns and the settings of its codec."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from readers.fits.gunzip import inflated
from readers.fits.tiles.codecs import CodedTiles
from readers.places.contract import Place

_TFORM = re.compile(r"\s*(\d*)([LXBIJKAEDCMPQ])(\w?)")
FIELD_BYTES = {"L": 1, "B": 1, "A": 1, "I": 2, "J": 4, "E": 4, "K": 8, "D": 8, "C": 8, "M": 16}
FIELD_BYTES |= {"P": 8, "Q": 16}
STORED_BITPIX = {"B": 8, "I": 16, "J": 32, "E": -32, "D": -64}
"""BITPIX by TFORM letter."""
_FLOAT64 = np.dtype(">f8")
_NUMBERS = {
    letter: np.dtype(name)
    for letter, name in zip("PQIJKE", (">i4", ">i8", ">i2", ">i4", ">i8", ">f4"), strict=True)
}
"""Types of numbers by TFORM letter."""
_ARRAYS = ("COMPRESSED_DATA", "GZIP_COMPRESSED_DATA", "UNCOMPRESSED_DATA")
_LETTERS = {"ZSCALE": "ED", "ZZERO": "ED", "ZBLANK": "IJK"} | dict.fromkeys(_ARRAYS, "PQ")
"""Allowed TFORM letters by column."""


@dataclass(frozen=True, slots=True)
class TileColumn:
    """A column of the table."""

    start: int
    """First byte in each row."""
    letter: str
    """Type letter of TFORM."""
    of: str
    """Type letter of the values that a descriptor points to."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of its numbers, big-endian."""
        return _NUMBERS.get(self.letter, _FLOAT64)

    def of_rows(self, rows: NDArray[np.uint8], count: int = 1) -> NDArray[Any]:
        """Return the numbers in some rows of the table, shape (rows, count)."""
        end = self.start + count * self.dtype.itemsize
        return np.ascontiguousarray(rows[:, self.start : end]).view(self.dtype)


def tile_columns(header: Mapping[str, Any]) -> dict[str, TileColumn] | None:
    """Return the columns of the table by name; None if unusual columns need astropy.

    ``hdu.columns`` of astropy would double the time for a header.
    """
    columns: dict[str, TileColumn] = {}
    start = 0
    for number in range(1, header["TFIELDS"] + 1):
        found = _TFORM.match(header[f"TFORM{number}"])
        if found is None or f"TSCAL{number}" in header or f"TZERO{number}" in header:
            return None
        count, letter, name = int(found[1] or 1), found[2], header.get(f"TTYPE{number}")
        if not isinstance(name, str):
            return None
        columns[name] = TileColumn(start, letter, found[3])
        start += -(-count // 8) if letter == "X" else count * FIELD_BYTES[letter]
    for name, column in columns.items():
        if column.letter not in _LETTERS.get(name, column.letter):
            return None
        if name in _ARRAYS and column.of not in STORED_BITPIX:
            return None
    return columns if start == header["NAXIS1"] else None


@dataclass(frozen=True, slots=True)
class TileTable:
    """Rows of the table, one for each tile, and the heap with the bytes of the tiles.

    Notes
    -----
    FITS Standard 4.0, section 7.3.5 (variable-length arrays).
    """

    columns: dict[str, TileColumn]
    start: int
    """First byte of the rows in the file."""
    row_bytes: int
    num_tiles: int
    """Tiles of all planes."""
    heap_start: int
    """First byte of the heap in the file."""
    data_end: int
    """End of the heap."""

    @classmethod
    def of(cls, header: Mapping[str, Any], columns: dict[str, TileColumn], start: int) -> TileTable:
        """Describe the table whose rows begin at byte `start` of the file."""
        row_bytes, num_tiles = header["NAXIS1"], header["NAXIS2"]
        rows_end = start + row_bytes * num_tiles
        heap_start = start + header.get("THEAP", row_bytes * num_tiles)
        return cls(columns, start, row_bytes, num_tiles, heap_start, rows_end + header["PCOUNT"])

    def end(self, place: Place) -> int:
        """Return the end of the heap, or of the file if that is shorter."""
        return min(self.data_end, place.nbytes)

    def rows(self, place: Place, firsts: Sequence[int], count: int) -> NDArray[np.uint8]:
        """Read `count` rows from each row of `firsts` on.

        The result has shape (len(firsts) * count, row_bytes).
        """
        end, nbytes = self.end(place), count * self.row_bytes
        found = np.empty((len(firsts), nbytes), np.uint8)
        starts = [self.start + first * self.row_bytes for first in firsts]
        for start in starts:
            if start + nbytes > end:
                raise ValueError(
                    f"the table of tiles has bytes {start} to {start + nbytes}, but the file ends "
                    f"at {end}: it is damaged or cut off"
                )
        place.read_many([(start, row.data) for start, row in zip(starts, found, strict=True)])
        return found.reshape(-1, self.row_bytes)

    def descriptors(
        self, place: Place, rows: NDArray[np.uint8], name: str
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the lengths of the tiles in a column, and their offsets in the file, in bytes.

        ValueError if a tile is outside the heap or the file.
        """
        column = self.columns[name]
        found = column.of_rows(rows, 2).astype(np.int64)
        lengths, offsets = found[:, 0] * FIELD_BYTES[column.of], self.heap_start + found[:, 1]
        start, end = self.heap_start, self.end(place)
        wrong = (lengths < 0) | ((lengths > 0) & ((offsets < start) | (offsets > end - lengths)))
        if wrong.any():
            tile = int(np.flatnonzero(wrong)[0])
            raise ValueError(
                f"a tile is outside the file: {lengths[tile]} bytes from {offsets[tile]}, expected "
                f"between {start} and {end}: the file is damaged or cut off"
            )
        return lengths, offsets

    def stored_values(
        self, place: Place, row: NDArray[np.uint8], pixels: int, *, floats: bool
    ) -> tuple[bytes, int, int]:
        """Read a tile that is stored without the codec.

        Return its values, their BITPIX, and the number of bytes read.
        """
        for name in ("GZIP_COMPRESSED_DATA", "UNCOMPRESSED_DATA"):
            if name not in self.columns:
                continue
            lengths, offsets = self.descriptors(place, row, name)
            if lengths[0] == 0:
                continue
            found = bytearray(int(lengths[0]))
            place.read_many([(int(offsets[0]), memoryview(found))])
            if name == "UNCOMPRESSED_DATA":
                values, bitpix = bytes(found), STORED_BITPIX[self.columns[name].of]
            else:
                values = inflated(found, 8 * pixels + 1)
                float_bitpix = {4: -32, 8: -64} if floats else {4: 32}
                bitpix = {1: 8, 2: 16, **float_bitpix}.get(len(values) // pixels, 0)
            if bitpix == 0 or len(values) != pixels * abs(bitpix) // 8:
                raise ValueError(f"a tile of {pixels} pixels has {len(values)} bytes in {name}")
            return values, bitpix, len(found)
        raise ValueError("a tile has no bytes in any column")


class FoundTiles(NamedTuple):
    """Tiles that a window touches, plane by plane and row by row."""

    table: NDArray[np.uint8]
    """Rows of the table for these tiles, shape (tiles, row_bytes)."""
    lengths: NDArray[np.int64]
    """In bytes, see `TileTable.descriptors`."""
    offsets: NDArray[np.int64]
    shapes: Callable[[], NDArray[np.int64]]
    """Returns the rows and columns of each tile, shape (tiles, 2)."""
    is_coded: Any
    """Index of the tiles in the image's codec."""
    stored: dict[int, tuple[bytes, int, int]]
    """All other tiles by number, see `TileTable.stored_values`."""
    input_bytes: int
    """Number of bytes read for the table and `stored`."""

    def coded(self, place: Place) -> CodedTiles:
        """Return the tiles in the image's codec; `place` is the file."""
        coded = self.is_coded
        return CodedTiles(
            place, self.offsets[coded], self.lengths[coded], lambda: self.shapes()[coded]
        )
