"""NumPy's .npy files: the smallest Reader. Read this one first to learn the contract."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from readers.columns import Row
from readers.errors import ReadError
from readers.files import open_regular
from readers.sample import Peek, Sample, SampleSpec
from readers.window import Window


@dataclass(frozen=True)
class NpyReader:
    """Images stored by ``numpy.save`` with shape (height, width) or (height, width, channels).

    Parameters
    ----------
    dtype : str
        NumPy name of the element type that all files have, as ``"float32"``.
    channels : int
        Size of the last axis; 1 for two-dimensional arrays.
    """

    dtype: str = "float32"
    channels: int = 1

    @property
    def specs(self) -> tuple[SampleSpec, ...]:
        """One array, ``image``, of shape (height, width, channels)."""
        return (SampleSpec(name="image", dtype=self.dtype, ndim=3, layout="HWC"),)

    def read(self, row: Row, window: Window | None) -> Sample:
        """Map the file and copy the window out of it, in native byte order."""
        try:
            image = self._open(row)
            if window is not None:
                y, x = window.place(*image.shape[:2])
                image = image[y : y + window.height, x : x + window.width]
        except Exception as error:
            raise _refusal(row, error) from error
        return Sample({"image": np.array(image, self.dtype, order="C")}, image.nbytes)

    def peek(self, row: Row, window: Window | None) -> Peek:
        """Read the header of the file."""
        try:
            height, width = self._open(row).shape[:2]
        except Exception as error:
            raise _refusal(row, error) from error
        rows, columns = (window.height, window.width) if window else (height, width)
        nbytes = rows * columns * self.channels * np.dtype(self.dtype).itemsize
        return Peek(height=height, width=width, nbytes=nbytes)

    def verify(self, row: Row) -> None:
        """Read the whole file."""
        self.read(row, None)

    def blank(self, height: int, width: int) -> Sample:
        """Give zeros, shape (height, width, channels)."""
        return Sample({"image": np.zeros((height, width, self.channels), self.dtype)})

    def _open(self, row: Row) -> np.ndarray:
        open_regular(row.path).close()
        image: np.ndarray = np.lib.format.open_memmap(row.path, mode="r")
        if image.ndim == 2 and self.channels == 1:
            image = image[..., None]
        expected = f"expected {self.dtype} of shape (height, width, {self.channels})"
        if image.ndim != 3 or image.shape[2] != self.channels or image.size == 0:
            raise ValueError(f"{expected}, got shape {image.shape}")
        if image.dtype.newbyteorder("=") != np.dtype(self.dtype):
            raise ValueError(f"{expected}, got {image.dtype}")
        return image


def _refusal(row: Row, error: Exception) -> ReadError:
    # NumPy raises many types on hostile headers (OverflowError, SyntaxError, ...).
    return ReadError(row.path, str(error).replace(f": {row.path!r}", ""), row=row.number)
