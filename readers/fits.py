"""FITS images: what travels to the graph is as near to the bytes of the file as it can be.

RICE_1 tiles of integers travel compressed (`readers.tiles`). All else is decoded by astropy in the
reader process: integers travel as they are stored, which takes half the shared memory for a 16-bit
frame, with BSCALE, BZERO and BLANK beside them; what is neither (64-bit, scaled floats) as float32.
The graph makes float32 physical values of it, see `dali_pipelines.kernels.physical`.
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
from readers.tiles import RiceImage
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
        SampleSpec(name="payload", dtype="uint8", ndim=1),
        SampleSpec(name="plan", dtype="int64", ndim=1),
        SampleSpec(name="scaling", dtype="float64", ndim=1),
    )
    """An empty array of shape (height, width, 0); the bytes of tiles or of stored values (native
    order, rows from the first); 0 for stored values, or where the tiles lie; and (BITPIX, BSCALE,
    BZERO, BLANK), NaN for no BLANK."""
    channels = 1

    def read(self, row: Row, window: Window | None) -> Sample:
        """Read the image, or the window with no more tiles than it touches."""
        with self._open(row, disable_image_compression=True) as hdu:
            sample = _tiles(hdu, window)
        if sample is not None:
            return sample
        before = _bytes_read()
        with self._open(row) as hdu:
            scaling = _scaling(hdu.header)
            if scaling is not None:
                return _sample(_pixels(hdu, window), scaling, before)
        with self._open(row, do_not_scale_image_data=False) as hdu:
            return _sample(_pixels(hdu, window).astype(np.float32), _UNSCALED_FLOAT, before)

    def peek(self, row: Row, window: Window | None) -> Peek:
        """Read the headers up to the image's."""
        with self._open(row, disable_image_compression=True) as hdu:
            image = _rice_image(hdu)
        if image is not None:
            nbytes = image.travelling_bytes(window)
            return Peek(height=image.height, width=image.width, nbytes=nbytes)
        with self._open(row) as hdu:
            height, width = image_shape(hdu)
            bitpix = hdu.header["BITPIX"]
        rows, columns = (window.height, window.width) if window else (height, width)
        item = abs(bitpix) // 8 if bitpix in _AS_STORED else 4
        return Peek(height=height, width=width, nbytes=rows * columns * item)

    def verify(self, row: Row) -> None:
        """Decode the whole image by astropy."""
        with self._open(row) as hdu:
            _pixels(hdu, None)

    def blank(self, height: int, width: int) -> Sample:
        """Give a sample that decodes to zeros and carries none."""
        arrays: dict[str, NDArray[Any]] = {
            "shape": np.zeros((height, width, 0), np.uint8),
            "payload": np.zeros(0, np.uint8),
            "plan": _plan_of_stored(),
            "scaling": np.array((EMPTY, 1, 0, math.nan)),
        }
        return Sample(arrays)

    @contextmanager
    def _open(self, row: Row, **options: bool) -> Iterator[Any]:
        """Give the HDU of a row."""
        number = self.hdu if row.hdu is None else row.hdu
        with open_image(row.path, number, row=row.number, **options) as (hdus, found):
            yield hdus[found]


@contextmanager
def open_image(
    path: str,
    number: int | None,
    *,
    row: int | None = None,
    do_not_scale_image_data: bool = True,
    disable_image_compression: bool = False,
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
    disable_image_compression : bool
        Give a compressed image as the table that it is.

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
                    file,
                    memmap=False,
                    do_not_scale_image_data=do_not_scale_image_data,
                    disable_image_compression=disable_image_compression,
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
    if hdu.header.get("ZIMAGE") is True and hdu.header.get("XTENSION") == "BINTABLE":
        return True
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


def _plan_of_stored() -> NDArray[np.int64]:
    """Give the plan of a payload that is stored values, see `readers.tiles.RiceImage.read`."""
    return np.zeros(1, np.int64)


def _tiles(hdu: Any, window: Window | None) -> Sample | None:
    """Give the compressed tiles of an image, or None if astropy shall decode it."""
    image = _rice_image(hdu)
    if image is None:
        return None
    with open(hdu.fileinfo()["file"].name, "rb") as file:
        found = image.read(file.fileno(), window)
    scaling = _scaling(_image_header(hdu.header))
    if found is None or scaling is None:
        return None
    payload, plan, input_bytes = found
    *_, height, width = image.place(window)
    arrays: dict[str, NDArray[Any]] = {
        "shape": np.zeros((height, width, 0), np.uint8),
        "payload": payload,
        "plan": plan,
        "scaling": np.array(scaling, np.float64),
    }
    return Sample(arrays, input_bytes + hdu.fileinfo()["datLoc"])


def _rice_image(hdu: Any) -> RiceImage | None:
    # The bytes are read past astropy, so the file must be as it looks, not gzipped.
    if not isinstance(hdu, fits.BinTableHDU) or hdu.fileinfo()["file"].compression is not None:
        return None
    return RiceImage.of(hdu)


def _image_header(table: fits.Header) -> fits.Header:
    """Give the words of the image that `_scaling` needs, from the header of its table."""
    words = {name: table[name] for name in ("BSCALE", "BZERO", "BLANK") if name in table}
    if "ZBLANK" in table:
        words.setdefault("BLANK", table["ZBLANK"])
    return fits.Header({"BITPIX": table["ZBITPIX"], **words})


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
    arrays: dict[str, NDArray[Any]] = {
        "shape": np.zeros((*native.shape, 0), np.uint8),
        "payload": native.reshape(-1).view(np.uint8),
        "plan": _plan_of_stored(),
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
