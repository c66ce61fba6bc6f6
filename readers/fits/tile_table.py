"""The table of a compressed image: its columns, and the settings of its codec."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_TFORM = re.compile(r"\s*(\d*)([LXBIJKAEDCMPQ])(\w?)")
FIELD_BYTES = {"L": 1, "B": 1, "A": 1, "I": 2, "J": 4, "E": 4, "K": 8, "D": 8, "C": 8, "M": 16}
FIELD_BYTES |= {"P": 8, "Q": 16}
STORED_BITPIX = {"B": 8, "I": 16, "J": 32, "E": -32, "D": -64}
"""BITPIX by the letter of a TFORM."""


@dataclass(frozen=True, slots=True)
class TileColumn:
    """A column of the table, in each of its rows."""

    start: int
    """In bytes from the start of a row."""
    letter: str
    """Of TFORM."""
    of: str
    """Letter of what a descriptor points to."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of a number of it, big-endian."""
        return np.dtype(
            {"P": ">i4", "Q": ">i8", "I": ">i2", "J": ">i4", "K": ">i8", "E": ">f4"}.get(
                self.letter, ">f8"
            )
        )

    def of_rows(self, rows: NDArray[np.uint8], count: int = 1) -> NDArray[Any]:
        """Give the numbers of some rows of the table, shape (rows, count)."""
        end = self.start + count * self.dtype.itemsize
        return np.ascontiguousarray(rows[:, self.start : end]).view(self.dtype)


def codec_settings(header: Mapping[str, Any]) -> dict[str, Any]:
    """Give the parameters of the codec, ZNAMEi and ZVALi; of two the first, as astropy does."""
    settings: dict[str, Any] = {}
    number = 1
    while (name := header.get(f"ZNAME{number}")) is not None:
        settings.setdefault(str(name).upper(), header[f"ZVAL{number}"])
        number += 1
    return settings


def tile_columns(header: Mapping[str, Any]) -> dict[str, TileColumn] | None:
    """Give the columns of the table by name; None if astropy shall look at them.

    ``hdu.columns`` would tell the same, and take as long as all else that is done with the header.
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
        if name in columns
        and (columns[name].letter not in "PQ" or columns[name].of not in STORED_BITPIX)
    ]
    return None if odd or start != header["NAXIS1"] else columns
