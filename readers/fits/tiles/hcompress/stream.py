"""A stream, which is the bytes of a tile, to its pixels.

Notes
-----
FITS Standard 4.0, section 10.4.4. The bytes of a stream are a header, the bit planes of the
coefficients' magnitudes, four bits of 0, and from the next whole byte on the signs.
"""

from __future__ import annotations

import struct
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from readers.fits.tiles.hcompress.codes import PADDING, peek
from readers.fits.tiles.hcompress.jit import JIT, njit
from readers.fits.tiles.hcompress.quadtree import halved, read_quadrant
from readers.fits.tiles.hcompress.signs import read_signs
from readers.fits.tiles.hcompress.transform import invert

_HEADER = struct.Struct(">2s3iq3B")
"""Magic number, rows, columns, scale, sum of all pixels, bit planes of the quadrants: the upper
left one, the two beside it, the lower right one."""
_MAGIC = b"\xdd\x99"
_MOST_PLANES = 62
"""Bits of an int64 without the sign, and one to spare."""


def decode_tile(
    stream: NDArray[np.uint8], rows: int, columns: int, *, smooth: bool = False
) -> NDArray[Any]:
    """Decode a tile.

    Parameters
    ----------
    stream : ndarray, shape (bytes,), uint8
        At least the 25 of its header.
    rows, columns : int
        Of the tile, at least 2; those in the header are not used.
    smooth : bool
        Whether to smooth it, if it was compressed with loss.

    Returns
    -------
    ndarray, shape (rows, columns), int32 or int64
        The lower 32 bits are those that CFITSIO's ``fits_hdecompress64`` gives.

    Raises
    ------
    ValueError
        If the stream is damaged.
    """
    magic, _, _, scale, total, *planes = _HEADER.unpack_from(stream.data)
    if magic != _MAGIC:
        raise ValueError(f"the stream begins with {magic!r}, expected {_MAGIC!r}")
    if max(planes) > _MOST_PLANES:
        raise ValueError(f"the stream has {max(planes)} bit planes, the limit is {_MOST_PLANES}")
    scale = max(scale, 1)
    largest_change = scale >> 1 if smooth and scale > 1 else None
    is_wide = _needs_int64(rows, columns, abs(total) * scale, scale << max(planes))
    is_wide |= largest_change is not None
    _compile_once(is_wide, largest_change is not None)
    tile = _Tile(rows, columns, scale, total, planes, largest_change, is_wide)
    return _decoded(stream[_HEADER.size :], tile)


def _needs_int64(rows: int, columns: int, total: int, largest: int) -> bool:
    """Return whether a sum of the inverse transform may exceed an int32.

    Pixels of each level are at most half of the sum of those above and three differences, so they
    never exceed the first or three times the largest of the latter. Rounding adds up to the unit.
    """
    unit = 4 << max(rows, columns).bit_length()
    return total + unit >= 1 << 29 or largest + unit >= 1 << 28


class _Tile(NamedTuple):
    """The numbers of a header, and those that follow from it."""

    rows: int
    columns: int
    scale: int
    total: int
    planes: list[int]
    largest_change: int | None
    """By smoothing."""
    is_wide: bool


def _decoded(body: NDArray[np.uint8], tile: _Tile) -> NDArray[Any]:
    words = np.zeros(-(-len(body) // 8) + PADDING, ">u8")
    words.view(np.uint8)[: len(body)] = body
    number: Any = np.int64 if tile.is_wide else np.int32
    shape, codes = (tile.rows, tile.columns), -(-tile.rows // 4) * -(-tile.columns // 4)
    magnitudes = np.empty((4, 4, codes), number)
    coefficients = np.empty(shape, number)
    is_sound = read_coefficients(
        words.astype(np.uint64),
        8 * len(body),
        np.array(tile.planes),
        number(tile.scale),
        tile.total,
        magnitudes,
        np.empty((2, codes), np.uint8),
        np.empty(codes, np.uint32),
        coefficients,
    )
    if not is_sound:
        raise ValueError("the stream is damaged")
    # In place of the magnitudes, which were read.
    pixels = magnitudes.reshape(-1)[: coefficients.size].reshape(shape)
    invert(coefficients, pixels, np.zeros((2, tile.columns), number), tile.largest_change)
    return pixels


@njit
def read_coefficients(words, end, planes, scale, total, magnitudes, codes, nodes, coefficients):  # type: ignore[no-untyped-def]
    """Read all coefficients of a tile; return False if the stream is damaged.

    `magnitudes`, `codes` and `nodes` are work space, see `read_quadrant`.
    """
    rows, columns = coefficients.shape
    top, left = halved(rows, 1), halved(columns, 1)
    at = np.int64(0)
    for quadrant in range(4):
        down = rows - top if quadrant >= 2 else top
        across = columns - left if quadrant & 1 else left
        count = planes[(quadrant + 1) >> 1]
        found = magnitudes[quadrant]
        at = read_quadrant(words, at, end, count, down, across, found, codes, nodes)
        if at < 0:
            return False
    if at + 4 > end or peek(words, at) >> np.uint64(60) != 0:
        return False
    at = read_signs(words, (at + 11) >> 3 << 3, end, scale, magnitudes, coefficients)
    number = coefficients.dtype.type
    coefficients[0, 0] = number(number(total) * scale)
    return at >= 0


@cache
def _compile_once(is_wide: bool, smooth: bool) -> None:
    """Compile for a type, or wait for another process that does."""
    change = 1 if smooth else None
    with JIT.turn():
        _decoded(np.zeros(1, np.uint8), _Tile(2, 2, 1, 0, [0, 0, 0], change, is_wide))


def compile_all() -> None:
    """Compile for all types."""
    for is_wide, smooth in product((False, True), repeat=2):
        _compile_once(is_wide, smooth)
