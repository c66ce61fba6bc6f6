"""Reader of NumPy's .npy files. It is the smallest one: read it first to learn the contract."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar

import numpy as np

from readers.byte_ranges import read_into
from readers.contract import Peek, Row, Sample, SampleSpec
from readers.errors import ReadError
from readers.files import open_regular
from readers.window import Window

_DTYPES = (
    *("float32", "float64", "float16", "uint8", "uint16", "uint32", "uint64"),
    *("int8", "int16", "int32", "int64", "bool"),
)


@dataclass(frozen=True)
class NpyReader:
    """Images stored by ``numpy.save`` with shape (height, width) or (height, width, channels).

    Parameters
    ----------
    dtype : str
        NumPy name of the element type of all files, e.g. ``"float32"``.
    channels : int
        Size of the last axis; 1 for two-dimensional arrays.

    Raises
    ------
    ValueError
        If there is no such type of numbers, or the size is no integer, at least 1.
    """

    dtype: str = "float32"
    channels: int = 1

    regions: ClassVar[bool] = True
    """It reads what `Window.within` gives."""

    def __post_init__(self) -> None:
        if not isinstance(self.dtype, str) or self.dtype not in _DTYPES:
            known = ", ".join(_DTYPES)
            raise ValueError(
                f"the element type of .npy files must be one of {known}, got {self.dtype!r}"
            )
        is_integer = isinstance(self.channels, Integral) and not isinstance(self.channels, bool)
        if not is_integer or self.channels < 1:
            raise ValueError(f"channels must be an integer, at least 1, got {self.channels!r}")

    @property
    def specs(self) -> tuple[SampleSpec, ...]:
        """One array, ``image``, of shape (height, width, channels)."""
        return (SampleSpec(name="image", dtype=self.dtype, ndim=3, layout="HWC"),)

    def read(self, row: Row, window: Window | None) -> Sample:
        """Read the rows of the window and cut out its columns, in native byte order."""
        try:
            stored = self._open(row)
            height, width, _ = stored.shape
            y, x, size = 0, 0, (height, width)
            if window is not None:
                window = window.within(*size)
                y, x = window.place(*size)
                height, width = window.height, window.width
            lines, input_bytes = read_rows(row.path, stored, y, height)
        except Exception as error:
            raise _read_error(row, error) from error
        image = lines[:, x : x + width]
        return Sample({"image": np.array(image, self.dtype, order="C")}, input_bytes, size)

    def peek(self, row: Row, window: Window | None) -> Peek:
        """Read the header of the file."""
        try:
            height, width = self._open(row).shape[:2]
            needed = window and window.within(height, width)
        except Exception as error:
            raise _read_error(row, error) from error
        rows, columns = (needed.height, needed.width) if needed else (height, width)
        nbytes = rows * columns * self.channels * np.dtype(self.dtype).itemsize
        return Peek(height=height, width=width, nbytes=nbytes)

    def verify(self, row: Row) -> None:
        """Read the whole file."""
        self.read(row, None)

    def blank(self, height: int, width: int) -> Sample:
        """Return zeros, shape (height, width, channels)."""
        return Sample({"image": np.zeros((height, width, self.channels), self.dtype)})

    def _open(self, row: Row) -> np.memmap:
        """Return the array without its elements, which must not be accessed, see `read_rows`."""
        open_regular(row.path).close()
        image: Any = np.lib.format.open_memmap(row.path, mode="r")
        if image.ndim == 2 and self.channels == 1:
            image = image[..., None]
        expected = f"expected {self.dtype} of shape (height, width, {self.channels})"
        if image.ndim != 3 or image.shape[2] != self.channels or image.size == 0:
            raise ValueError(f"{expected}, got shape {image.shape}")
        if image.dtype.newbyteorder("=") != np.dtype(self.dtype):
            raise ValueError(f"{expected}, got {image.dtype}")
        return image


def read_rows(path: str, stored: np.memmap, first: int, count: int) -> tuple[np.ndarray, int]:
    """Read rows of an array, and return the number of bytes read as well.

    Accessing the memory map would kill this process if the file has been truncated, or the disk has
    errors.
    """
    rows_first = stored.flags.c_contiguous  # otherwise in Fortran order, and read whole
    shape = (count, *stored.shape[1:]) if rows_first else stored.shape
    row_bytes = stored.nbytes // len(stored)
    content = np.empty(math.prod(shape) * stored.itemsize, np.uint8)
    with open_regular(path) as file:
        read_into(content.data, file.fileno(), stored.offset + first * row_bytes * rows_first)
    image = content.view(stored.dtype).reshape(shape, order="C" if rows_first else "F")
    return (image if rows_first else image[first : first + count]), content.nbytes


def _read_error(row: Row, error: Exception) -> ReadError:
    # NumPy raises many types on malformed headers (OverflowError, SyntaxError, ...).
    return ReadError(row.path, str(error).replace(f": {row.path!r}", ""), row=row.number)
