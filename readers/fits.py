"""FITS images: what travels to the graph are the bytes of the file, of no more tiles than needed.

RICE_1 tiles travel compressed (`readers.tiles`), the rows of plain images as they are stored
(`readers.stored`). What is neither is decoded by astropy in the reader process, no more tiles than
needed either, and travels as it would be stored, with BSCALE, BZERO and BLANK beside it. The graph
makes float32 physical values of it all, see `dali_pipelines.kernels.physical`.
"""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, ClassVar

import numpy as np
from astropy.io import fits
from astropy.utils.exceptions import AstropyWarning
from numpy.typing import NDArray

from readers.columns import Row
from readers.errors import ReadError
from readers.files import open_regular
from readers.headers import compressed_header
from readers.plan import OVERHEAD, make_plan
from readers.sample import Peek, Sample, SampleSpec
from readers.stored import StoredImage, planned
from readers.tiles import RiceImage
from readers.window import Window

_AS_STORED = (8, 16, 32, -32, -64)
_STORED_INTEGERS = {"uint8": 8, "int16": 16, "int32": 32}


@dataclass(frozen=True)
class FitsReader:
    """One two-dimensional image of a FITS file: plain, ``.gz``, ``.fz`` or tile-compressed.

    Parameters
    ----------
    hdu : int, optional
        HDU to read, 0 for the primary, where the Index has no column ``hdu``. By default the
        first HDU that holds an image.
    stored : {"uint8", "int16", "int32"}, optional
        Leave integers as they are stored: BSCALE, BZERO and BLANK are not applied. An image of
        another BITPIX is refused.

    Notes
    -----
    Values equal those of ``astropy.io.fits`` bit for bit, converted to float32. That holds for its
    ways with BLANK, too: it is not applied where BSCALE and BZERO make unsigned integers, nor
    where it is 0.
    """

    hdu: int | None = None
    stored: str | None = None

    specs: ClassVar[tuple[SampleSpec, ...]] = (
        # The numba operator learns the shape of its output from the shape of its first input.
        SampleSpec(name="shape", dtype="uint8", ndim=3, layout="HWC"),
        SampleSpec(name="payload", dtype="uint8", ndim=1),
        SampleSpec(name="plan", dtype="int64", ndim=1),
        SampleSpec(name="scaling", dtype="float64", ndim=1),
    )
    """An empty array of shape (height, width, 0); bytes of the file; what they are, tile by tile
    (`readers.plan`); and BSCALE, BZERO, BLANK (NaN for none), then those of quantised tiles."""
    channels = 1

    def __post_init__(self) -> None:
        if self.stored not in (None, *_STORED_INTEGERS):
            raise ValueError(
                f"stored must be one of {tuple(_STORED_INTEGERS)} or None, got {self.stored!r}"
            )

    def read(self, row: Row, window: Window | None) -> Sample:
        """Read the image, or the window with no more tiles than it touches."""
        with self._described(row) as (header, image, file):
            scaling = self._scaling(header)
            if image is not None and scaling is not None:
                payload, plan, tile_scaling, input_bytes = image.read(file.fileno(), window)
                *_, height, width = image.place(window)
                arrays: dict[str, NDArray[Any]] = {
                    "shape": np.zeros((height, width, 0), np.uint8),
                    "payload": payload,
                    "plan": plan,
                    "scaling": np.concatenate((scaling, tile_scaling)),
                }
                return Sample(arrays, input_bytes + image.start)
        before = _bytes_read()
        with self._open(row, do_not_scale_image_data=scaling is not None) as (hdu, _):
            pixels = _pixels(hdu, window)
            if scaling is None:
                scaling, pixels = (1, 0, math.nan), pixels.astype(np.float32)
        payload, plan = planned(pixels)
        arrays = {
            "shape": np.zeros((*pixels.shape, 0), np.uint8),
            "payload": payload,
            "plan": plan,
            "scaling": np.array(scaling, np.float64),
        }
        return Sample(arrays, _bytes_read() - before)

    def peek(self, row: Row, window: Window | None) -> Peek:
        """Read the headers up to the image's."""
        with self._described(row) as (header, image, _):
            scaling = self._scaling(header)
        if image is not None and scaling is not None:
            nbytes = image.travelling_bytes(window)
            return Peek(height=image.height, width=image.width, nbytes=nbytes)
        with self._open(row) as (hdu, _):
            height, width = image_shape(hdu)
            bitpix = hdu.header["BITPIX"]
        rows, columns = (window.height, window.width) if window else (height, width)
        item = abs(bitpix) // 8 if bitpix in _AS_STORED else 4
        return Peek(height=height, width=width, nbytes=rows * (columns * item + 24) + OVERHEAD)

    def header(self, row: Row, keys: Collection[str]) -> fits.Header:
        """Read words of the image's header.

        Parameters
        ----------
        row : Row
            Path and HDU.
        keys : collection of str
            Words that are wanted, in capitals; of a long header the others take most of the time.

        Returns
        -------
        Header
            With these words, where the file has them, and some others. NAXISn are the image's also
            where it is compressed into a table.

        Raises
        ------
        ReadError
            Like `read`.
        """
        number = self.hdu if row.hdu is None else row.hdu
        with _read_errors(row.path, 1, row.number), open_regular(row.path) as file:
            found = compressed_header(file, number)
            if found is not None:
                header = found.header(keys)
                for word in ("NAXIS", "NAXIS1", "NAXIS2"):
                    header[word] = header[f"Z{word}"]
                return header
        with self._open(row) as (hdu, _):
            return hdu.header

    def verify(self, row: Row) -> None:
        """Decode the whole image by astropy."""
        with self._open(row) as (hdu, _):
            _pixels(hdu, None)

    def blank(self, height: int, width: int) -> Sample:
        """Give a sample that decodes to zeros and carries none."""
        no_tiles = np.zeros((0, 3), np.int64)
        arrays: dict[str, NDArray[Any]] = {
            "shape": np.zeros((height, width, 0), np.uint8),
            "payload": np.zeros(0, np.uint8),
            "plan": make_plan(
                no_tiles, bitpix=8, height=height, width=width, tile_height=1, tile_width=width
            ),
            "scaling": np.array((1, 0, math.nan)),
        }
        return Sample(arrays)

    def _scaling(self, header: Mapping[str, Any]) -> tuple[float, float, float] | None:
        if self.stored is None:
            return _scaling(header)
        if header["BITPIX"] != _STORED_INTEGERS[self.stored]:
            raise ValueError(
                f"BITPIX is {header['BITPIX']}, expected {_STORED_INTEGERS[self.stored]} for "
                f"stored values of type {self.stored}"
            )
        return 1, 0, math.nan

    @contextmanager
    def _described(
        self, row: Row
    ) -> Iterator[tuple[Mapping[str, Any], RiceImage | StoredImage | None, BinaryIO]]:
        """Give the words of an image's header, what can travel as it is or None, and the file."""
        number = self.hdu if row.hdu is None else row.hdu
        with _read_errors(row.path, 1, row.number), open_regular(row.path) as file:
            found = compressed_header(file, number)
            if found is not None:
                image = RiceImage.of(found.words, found.start, found.file_size)
                yield _image_words(found.words), image, file
                return
        with self._open(row, disable_image_compression=True) as (hdu, file):
            yield _image_words(hdu.header), _image(hdu), file

    @contextmanager
    def _open(self, row: Row, **options: bool) -> Iterator[tuple[Any, BinaryIO]]:
        """Give the HDU of a row, and the file that it is in."""
        number = self.hdu if row.hdu is None else row.hdu
        with open_image(row.path, number, row=row.number, **options) as (hdus, found, file):
            yield hdus[found], file


@contextmanager
def open_image(
    path: str,
    number: int | None,
    *,
    row: int | None = None,
    do_not_scale_image_data: bool = True,
    disable_image_compression: bool = False,
) -> Iterator[tuple[fits.HDUList, int, BinaryIO]]:
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
    HDUList, int, file
        The HDUs, the number of the one that holds the image, and the open file.
    """
    with _read_errors(path, number, row) as error:
        # astropy goes on when the file ends early; here that is a bad file.
        warnings.filterwarnings("error", message="File may have been truncated")
        # astropy leaves a file open that it cannot read, if it opened it.
        with (
            _not_endless(open_regular(path)) as file,
            _opened(
                file,
                do_not_scale_image_data=do_not_scale_image_data,
                disable_image_compression=disable_image_compression,
            ) as hdus,
        ):
            error.hdu = _find(hdus, number)
            yield hdus, error.hdu, file


@dataclass
class _Where:
    hdu: int | None


@contextmanager
def _read_errors(path: str, hdu: int | None, row: int | None) -> Iterator[_Where]:
    """Make a ReadError of whatever goes wrong inside; the HDU may be told when it is known."""
    where = _Where(hdu)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd headers, values beyond float32
            yield where
    except ReadError:
        raise
    except Exception as error:
        # astropy raises many types on hostile input (TypeError, KeyError, VerifyError, ...).
        named = isinstance(error, (OSError, ValueError, AstropyWarning))
        reason = f"{error}" if named else f"{type(error).__name__}: {error}"
        reason = reason.replace(f": {path!r}", "")
        raise ReadError(path, reason, hdu=where.hdu, row=row) from error


def _opened(file: BinaryIO, **options: bool) -> fits.HDUList:
    try:
        return fits.open(file, memmap=False, **options)
    except OSError as error:
        # astropy advises an option of its own then.
        if "No SIMPLE card" not in str(error):
            raise
        head = os.pread(file.fileno(), 8, 0)
        raise OSError(f"not a FITS file: it begins with {head!r}") from None


_COUNT = re.compile(rb"(?:NAXIS|TFIELDS) {1,3}= +(\d{4,})[ /]")


def _not_endless(file: BinaryIO) -> BinaryIO:
    """Give the file, unless its first headers count more axes or columns than the 999 there can be.

    astropy would look at each of them.
    """
    head = os.pread(file.fileno(), 16 * 2880, 0)
    if (found := _COUNT.search(head)) is not None:
        file.close()
        raise ValueError(f"a header has {found[0].decode()!r}, at most 999 is possible")
    return file


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


def _image(hdu: Any) -> RiceImage | StoredImage | None:
    """Describe an image whose bytes can travel as they are; None if astropy shall decode it."""
    # The bytes are read past astropy, so the file must be as it looks, not gzipped.
    if hdu.fileinfo()["file"].compression is not None:
        return None
    info = hdu.fileinfo()
    if isinstance(hdu, fits.BinTableHDU):
        return RiceImage.of(hdu.header, info["datLoc"], info["file"].size)
    for word in ("BITPIX", "NAXIS"):
        # After a damaged END two headers look like one, whose data begin elsewhere.
        if hdu.header.count(word) != 1:
            raise ValueError(f"the header has {word} more than once")
    height, width = image_shape(hdu)
    return StoredImage.of(hdu.header["BITPIX"], height, width, info["datLoc"])


def _image_words(header: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give the words of an image's header that `_scaling` needs; those of a table are others."""
    words = {name: header[name] for name in ("BSCALE", "BZERO", "BLANK") if name in header}
    if "ZIMAGE" not in header:
        return {"BITPIX": header["BITPIX"], **words}
    if "ZBLANK" in header:
        words.setdefault("BLANK", header["ZBLANK"])
    return {"BITPIX": header["ZBITPIX"], **words}


def _pixels(hdu: Any, window: Window | None) -> NDArray[Any]:
    height, width = image_shape(hdu)
    if window is None:
        return hdu.data.reshape(height, width)
    y, x = window.place(height, width)
    plane = (0,) * (len(hdu.shape) - 2)
    return hdu.section[(*plane, slice(y, y + window.height), slice(x, x + window.width))]


def _scaling(header: Mapping[str, Any]) -> tuple[float, float, float] | None:
    """Give (BSCALE, BZERO, BLANK) as astropy applies them, or None to leave it to astropy.

    Notes
    -----
    FITS Standard 4.0, section 4.4.2.5; what astropy makes of BLANK is in its
    ``_ImageBaseHDU._scale_data``.
    """
    bitpix = header["BITPIX"]
    bscale, bzero = header.get("BSCALE", 1), header.get("BZERO", 0)
    if bitpix not in _AS_STORED or (bitpix < 0 and (bscale, bzero) != (1, 0)):
        return None
    if not isinstance(bscale, int | float) or not isinstance(bzero, int | float):
        raise ValueError(f"BSCALE and BZERO must be numbers, got {bscale!r} and {bzero!r}")
    blank = header.get("BLANK")
    unsigned = bitpix > 8 and bscale == 1 and bzero == 1 << (bitpix - 1)
    if bitpix < 0 or unsigned or not blank or not isinstance(blank, int):
        blank = math.nan
    return float(bscale), float(bzero), float(blank)


def _bytes_read() -> int:
    """Bytes that this process has read so far: astropy does not say how many it needed."""
    try:
        with open("/proc/self/io", "rb") as counters:
            return int(counters.readline().split()[1])
    except OSError:  # hidden in some containers
        return 0
