"""FITS images, read by astropy in the reader process.

Integers travel as they are stored, with BSCALE, BZERO and BLANK beside them: a 16-bit frame takes
half the shared memory that its physical values would. The graph turns them into float32, see
`dali_pipelines.kernels.stored`. All else (64-bit, scaled floats) travels as float32.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from astropy.io import fits
from astropy.utils.exceptions import AstropyWarning
from numpy.typing import NDArray

from readers.columns import Row
from readers.errors import ReadError
from readers.sample import Peek, Sample, SampleSpec
from readers.window import Window

EMPTY = 0
"""In place of BITPIX: there are no stored values, the image is zero."""

_AS_STORED = (8, 16, 32, -32)
_UNSCALED_FLOAT = (-32, 1, 0, math.nan)


@dataclass(frozen=True)
class FitsReader:
    """One two-dimensional image of a FITS file: plain, ``.gz``, ``.fz`` or tile-compressed.

    Parameters
    ----------
    hdu : int, optional
        HDU to read, 0 for the primary, where the Index has no column ``hdu``. By default the
        first HDU that holds an image.

    Notes
    -----
    Values equal those of ``astropy.io.fits`` bit for bit, converted to float32. That holds for its
    ways with BLANK, too: it is not applied where BSCALE and BZERO make unsigned integers, nor
    where it is 0.
    """

    hdu: int | None = None

    specs: ClassVar[tuple[SampleSpec, ...]] = (
        # The numba operator learns the shape of its output from the shape of its first input.
        SampleSpec(name="shape", dtype="uint8", ndim=3, layout="HWC"),
        SampleSpec(name="stored", dtype="uint8", ndim=1),
        SampleSpec(name="scaling", dtype="float64", ndim=1),
    )
    """An empty array of shape (height, width, 0); the stored values' bytes, native order, rows from
    the first; and (BITPIX, BSCALE, BZERO, BLANK), NaN for no BLANK."""
    channels = 1

    def read(self, row: Row, window: Window | None) -> Sample:
        """Read the image, or the window with no more tiles than it touches."""
        before = _bytes_read()
        with self._open(row) as hdu:
            scaling = _scaling(hdu.header)
            if scaling is not None:
                return _sample(_pixels(hdu, window), scaling, before)
        with self._open(row, do_not_scale_image_data=False) as hdu:
            return _sample(_pixels(hdu, window).astype(np.float32), _UNSCALED_FLOAT, before)

    def peek(self, row: Row, window: Window | None) -> Peek:
        """Read the headers up to the image's."""
        with self._open(row) as hdu:
            height, width = image_shape(hdu)
            bitpix = hdu.header["BITPIX"]
        rows, columns = (window.height, window.width) if window else (height, width)
        item = abs(bitpix) // 8 if bitpix in _AS_STORED else 4
        return Peek(height=height, width=width, nbytes=rows * columns * item)

    def verify(self, row: Row) -> None:
        """Read the whole image."""
        self.read(row, None)

    def blank(self, height: int, width: int) -> Sample:
        """Give a sample that decodes to zeros and carries none."""
        arrays = {
            "shape": np.zeros((height, width, 0), np.uint8),
            "stored": np.zeros(0, np.uint8),
            "scaling": np.array((EMPTY, 1, 0, math.nan)),
        }
        return Sample(arrays)

    @contextmanager
    def _open(self, row: Row, *, do_not_scale_image_data: bool = True) -> Iterator[Any]:
        """Give the HDU of a row."""
        number = self.hdu if row.hdu is None else row.hdu
        with open_image(
            row.path, number, row=row.number, do_not_scale_image_data=do_not_scale_image_data
        ) as (hdus, found):
            yield hdus[found]


@contextmanager
def open_image(
    path: str, number: int | None, *, row: int | None = None, do_not_scale_image_data: bool = True
) -> Iterator[tuple[fits.HDUList, int]]:
    """Open a file and find its image; whatever goes wrong inside becomes a ReadError.

    Parameters
    ----------
    path : str
        The file.
    number : int or None
        HDU that must hold the image, 0 for the primary; None for the first one that does.
    row : int, optional
        Row of the Index, for the error.
    do_not_scale_image_data : bool
        Leave the values as they are stored.

    Yields
    ------
    HDUList, int
        The open file, and the number of the HDU that holds the image.
    """
    try:
        with warnings.catch_warnings():
            # Odd headers, values beyond float32.
            warnings.simplefilter("ignore")
            # astropy goes on when the file ends early; here that is a bad file.
            warnings.filterwarnings("error", message="File may have been truncated")
            # astropy leaves a file open that it cannot read, if it opened it.
            with (
                open(path, "rb") as file,
                fits.open(
                    file, memmap=False, do_not_scale_image_data=do_not_scale_image_data
                ) as hdus,
            ):
                number = _find(hdus, number)
                yield hdus, number
    except Exception as error:
        # astropy raises many types on hostile input (TypeError, KeyError, VerifyError, ...).
        named = isinstance(error, (OSError, ValueError, AstropyWarning))
        reason = f"{error}" if named else f"{type(error).__name__}: {error}"
        reason = reason.replace(f": {path!r}", "")
        raise ReadError(path, reason, hdu=number, row=row) from error


def _find(hdus: fits.HDUList, number: int | None) -> int:
    if number is not None:
        try:
            hdu = hdus[number]
        except IndexError:
            raise ValueError(f"there is no HDU {number}, the file has {len(hdus)}") from None
        if not _holds_image(hdu):
            raise ValueError(f"HDU {number} holds no image, it is a {type(hdu).__name__}")
        return number
    for found, hdu in enumerate(hdus):
        if _holds_image(hdu):
            return found
    raise ValueError("no HDU holds an image")


def _holds_image(hdu: Any) -> bool:
    return bool(hdu.is_image) and hdu.header.get("NAXIS", 0) >= 1


def image_shape(hdu: Any) -> tuple[int, int]:
    """Give (height, width); axes of length 1 before them do not count."""
    shape: tuple[int, ...] = hdu.shape
    height, width = (0, *shape)[-2:]
    if math.prod(shape[:-2]) != 1 or height * width == 0:
        raise ValueError(
            f"the image has shape {shape}, expected (height, width): cut cubes into planes first"
        )
    return height, width


def _pixels(hdu: Any, window: Window | None) -> NDArray[Any]:
    height, width = image_shape(hdu)
    if window is None:
        return hdu.data.reshape(height, width)
    y, x = window.place(height, width)
    plane = (0,) * (len(hdu.shape) - 2)
    return hdu.section[(*plane, slice(y, y + window.height), slice(x, x + window.width))]


def _scaling(header: fits.Header) -> tuple[float, float, float, float] | None:
    """Give (BITPIX, BSCALE, BZERO, BLANK) as astropy applies them, or None to leave it to astropy.

    Notes
    -----
    FITS Standard 4.0, section 4.4.2.5; what astropy makes of BLANK is in its
    ``_ImageBaseHDU._scale_data``.
    """
    bitpix = header["BITPIX"]
    bscale, bzero = header.get("BSCALE", 1), header.get("BZERO", 0)
    if bitpix not in _AS_STORED or (bitpix < 0 and (bscale, bzero) != (1, 0)):
        return None
    if bscale is None or bzero is None:
        raise ValueError("BSCALE or BZERO has no value")
    blank = header.get("BLANK")
    unsigned = bitpix > 8 and bscale == 1 and bzero == 1 << (bitpix - 1)
    if bitpix < 0 or unsigned or not blank or not isinstance(blank, int):
        blank = math.nan
    return bitpix, bscale, bzero, blank


def _sample(
    stored: NDArray[Any], scaling: tuple[float, float, float, float], before: int
) -> Sample:
    # DALI garbles other byte orders without a word.
    native = np.ascontiguousarray(stored, stored.dtype.newbyteorder("="))
    arrays = {
        "shape": np.zeros((*native.shape, 0), np.uint8),
        "stored": native.reshape(-1).view(np.uint8),
        "scaling": np.array(scaling, np.float64),
    }
    return Sample(arrays, _bytes_read() - before)


def _bytes_read() -> int:
    """Bytes that this process has read so far: astropy does not say how many it needed."""
    try:
        with open("/proc/self/io", "rb") as counters:
            return int(counters.readline().split()[1])
    except OSError:  # hidden in some containers
        return 0
