"""Reader of NumPy's .npy files, the smallest Reader: read it first to learn the contract."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from readers.buffers import Allocate, buffer, private
from readers.contract import Peek, Row, Sample, SampleSpec, row_errors
from readers.messages import FIRST_BYTES, pipeline_hint
from readers.places.contract import Place
from readers.values import check_integer
from readers.window import Window

_MAGIC = np.lib.format.MAGIC_PREFIX
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
"""Parsers by version of the format. Version 3 only differs in the names of fields."""
_USUAL_BYTES = 128
"""Header length of nearly all files."""
_HEAD_BYTES = 128 << 10
"""Bytes to fetch first: all of a small file."""
_DTYPES = (
    *("float32", "float64", "float16", "uint8", "uint16", "uint32", "uint64"),
    *("int8", "int16", "int32", "int64", "bool"),
)


@dataclass(frozen=True)
class NpyReader:
    """Reader of ``numpy.save`` files, shape (height, width) or (height, width, channels).

    Parameters
    ----------
    dtype : str
        NumPy name of the element type of all files, e.g. ``"float32"``.
    channels : int
        Size of the last axis; 1 for two-dimensional arrays.

    Raises
    ------
    ValueError
        If `dtype` is not a supported type of numbers, or `channels` is not a positive integer.
    """

    dtype: str = "float32"
    channels: int = 1

    regions: ClassVar[bool] = True
    """The Reader reads the pixels of `Window.within`."""

    def __post_init__(self) -> None:
        if not isinstance(self.dtype, str) or self.dtype not in _DTYPES:
            known = ", ".join(_DTYPES)
            raise ValueError(
                f"the element type of .npy files must be one of {known}, got {self.dtype!r}"
            )
        check_integer("channels", self.channels, 1)

    @property
    def specs(self) -> tuple[SampleSpec, ...]:
        """Spec of the array ``image``, shape (height, width, channels)."""
        return (SampleSpec(name="image", dtype=self.dtype, ndim=3, layout="HWC"),)

    def read(self, row: Row, window: Window | None) -> Sample:
        """Read the rows of the window and cut out its columns, in native byte order."""
        with row_errors(row), row.place as place:
            if window is None:
                place.fetch([(0, place.nbytes)])
            stored = self._stored(place)
            height, width, _ = stored.shape
            y, x, size = 0, 0, (height, width)
            if window is not None:
                window = window.within(*size)
                y, x = window.place(*size)
                height, width = window.height, window.width
            allocate = buffer if width == stored.shape[1] else private
            lines, input_bytes = stored.read_rows(place, y, height, allocate)
        image = lines[:, x : x + width]
        return Sample({"image": np.ascontiguousarray(image, self.dtype)}, input_bytes, size)

    def peek(self, row: Row, window: Window | None) -> Peek:
        """Read the header of the file."""
        with row_errors(row):
            with row.place as place:
                height, width = self._stored(place).shape[:2]
            needed = window and window.within(height, width)
        rows, columns = (needed.height, needed.width) if needed else (height, width)
        nbytes = rows * columns * self.channels * np.dtype(self.dtype).itemsize
        return Peek(height=height, width=width, nbytes=nbytes)

    def verify(self, row: Row) -> None:
        """Read the whole file."""
        self.read(row, None)

    def blank(self, height: int, width: int) -> Sample:
        """Return zeros, shape (height, width, channels)."""
        return Sample({"image": np.zeros((height, width, self.channels), self.dtype)})

    def _stored(self, place: Place) -> StoredArray:
        stored = StoredArray.of(place)
        shape = stored.shape
        if len(shape) == 2 and self.channels == 1:
            shape = (*shape, 1)
        expected = f"expected {self.dtype} of shape (height, width, {self.channels})"
        if len(shape) != 3 or shape[2] != self.channels or math.prod(shape) == 0:
            raise ValueError(f"{expected}, got shape {shape}")
        if stored.dtype.newbyteorder("=") != np.dtype(self.dtype):
            raise ValueError(f"{expected}, got {stored.dtype}")
        return stored if shape is stored.shape else replace(stored, shape=shape)


@dataclass(frozen=True, slots=True)
class StoredArray:
    """Array in a .npy file, described by the header."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    columns_first: bool
    """Whether the array is in Fortran order."""
    start: int
    """First byte of the first element in the file."""

    @classmethod
    def of(cls, place: Place) -> StoredArray:
        """Read the header of an open file; ValueError if it is not an array of numbers."""
        place.fetch([(0, _HEAD_BYTES)])
        begin = place.read(0, _USUAL_BYTES)
        if len(begin) < np.lib.format.MAGIC_LEN or not begin.startswith(_MAGIC):
            hint = pipeline_hint(begin[:FIRST_BYTES], "npy")
            raise ValueError(f"not a .npy file: it begins with {begin[:8]!r}{hint}")
        version = begin[6], begin[7]
        if version not in _HEADERS:
            raise ValueError(f"the .npy format has version {version}, expected (1, 0) or (2, 0)")
        length = begin[8:10] if version == (1, 0) else begin[8:12]
        start = 8 + len(length) + int.from_bytes(length, "little")
        if start > len(begin):
            begin = place.read(0, min(start, _HEAD_BYTES))
        shape, columns_first, dtype = _parsed(begin[:start], version)
        if dtype.hasobject:
            raise ValueError("the array has Python objects, expected numbers")
        if any(type(length) is not int or length < 0 for length in shape):
            raise ValueError(f"the header has shape {shape}, expected integers of at least 0")
        end, nbytes = start + math.prod(shape) * dtype.itemsize, place.nbytes
        if end > nbytes:
            raise ValueError(
                f"the file ends at {nbytes}, but its header needs {end} bytes: it is cut off"
            )
        return cls(shape, dtype, columns_first, start)

    def read_rows(
        self, place: Place, first: int, count: int, allocate: Allocate = private
    ) -> tuple[np.ndarray, int]:
        """Read some rows of the array; return the rows and the number of bytes read."""
        # An array in Fortran order is read whole.
        shape = self.shape if self.columns_first else (count, *self.shape[1:])
        skipped = 0 if self.columns_first else first * math.prod(shape[1:]) * self.dtype.itemsize
        content = allocate(math.prod(shape) * self.dtype.itemsize, 0)
        place.read_many([(self.start + skipped, content.data)])
        image = content.view(self.dtype).reshape(shape, order="F" if self.columns_first else "C")
        return (image[first : first + count] if self.columns_first else image), content.nbytes


@lru_cache(maxsize=256)
def _parsed(begin: bytes, version: tuple[int, int]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, order and dtype. Cached: parsing takes 0.1 ms, and archives repeat headers."""
    return _HEADERS[version](io.BytesIO(begin[8:]))
