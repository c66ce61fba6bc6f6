"""Open FITS files: as bytes, and through astropy where that is needed."""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, BinaryIO

from astropy.io import fits
from astropy.utils.exceptions import AstropyWarning

from readers.errors import ReadError
from readers.files import descriptor_of
from readers.fits.gunzip import MAGIC, UnpackedFits
from readers.fits.hdus import HduName, find_header, is_wanted, no_such_hdu
from readers.fits.headers import ImageHeader

_PACKED = {
    b"BZh": "bzip2",
    b"\xfd7zXZ\0": "xz",
    b"PK\x03\x04": "zip",
    b"\x1f\x9d": "compress",
}
_COUNT = re.compile(rb"(?:NAXIS|TFIELDS) {1,3}= +(\d{4,})[ /]")


class FitsFile:
    """An open FITS file, plain or gzipped, of which one HDU after the other can be read."""

    wanted: HduName | None = None
    """The HDU that is read; None for the first image."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = descriptor_of(path)
        self._unpacked: UnpackedFits | None = None
        try:
            begin = os.pread(self._file, 6, 0)
            for magic, name in _PACKED.items():
                if begin.startswith(magic):
                    raise ValueError(
                        f"the file is packed by {name}: unpack it, or pack it by gzip or fpack"
                    )
            if begin.startswith(MAGIC):
                self._unpacked = UnpackedFits(self._file)
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self) -> FitsFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)
        if self._unpacked is not None:
            self._unpacked.file.close()

    @property
    def fileno(self) -> int:
        """Descriptor of the FITS file; a gzipped one holds only headers before `need`."""
        return self._file if self._unpacked is None else self._unpacked.file.fileno()

    @classmethod
    @contextmanager
    def at(cls, path: str, wanted: HduName | None, *, every: bool = False) -> Iterator[FitsFile]:
        """Open a file to read one HDU.

        A gzipped one is unpacked up to its headers at first; with `every`, those of all HDUs.
        """
        with cls(path) as file:
            file.wanted = wanted
            if file._unpacked is not None:
                file._unpacked.find(wanted, every=every)
            yield file

    def each(self, wanted: Sequence[HduName | None]) -> Iterator[list[int]]:
        """Turn to one HDU after the other; yield the places in `wanted` of those that it is.

        Those of a gzipped file come in the order of the file, which is unpacked once.
        """
        left = list(range(len(wanted)))
        while self._unpacked is not None and left and (found := self._unpacked.next_hdu()):
            number, extent = found
            if here := [place for place in left if is_wanted(extent, number, wanted[place])]:
                left = [place for place in left if place not in here]
                self.wanted = number
                yield here
        for place in left:  # of a gzipped file, those that it lacks
            self.wanted = wanted[place]
            yield [place]

    def header(self) -> ImageHeader | None:
        """Read the header of the image; None if astropy must read it."""
        return find_header(self.fileno, self.path, self.wanted)

    def need(self, start: int, stop: int) -> None:
        """Unpack these bytes of the file, which the HDU needs. Call it once for each at most."""
        if self._unpacked is not None:
            self._unpacked.keep(start, stop)

    def input_bytes(self, read: int) -> int:
        """Return the bytes read from disk, given how many were read of the unpacked file."""
        return read if self._unpacked is None else self._unpacked.input_bytes

    @contextmanager
    def by_astropy(self, **options: bool) -> Iterator[tuple[fits.HDUList, int]]:
        """Open the file with astropy; yield the HDUs, and the number of the wanted one."""
        # astropy accepts truncated files; here they are errors.
        warnings.filterwarnings("error", message="File may have been truncated")
        # A descriptor of its own, since astropy closes it.
        with open(f"/proc/self/fd/{self.fileno}", "rb") as file, _opened(file, **options) as hdus:
            yield hdus, _find(hdus, self.wanted)


@dataclass
class Where:
    """The HDU that the error of a file names."""

    hdu: int | None


@contextmanager
def read_errors(path: str, hdu: HduName | None, row: int | None) -> Iterator[Where]:
    """Convert any exception inside to a ReadError; set the HDU of what is yielded when known."""
    where = Where(hdu if isinstance(hdu, int) else None)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd headers, values beyond float32
            yield where
    except ReadError:
        raise
    except Exception as error:
        # astropy raises many types on malformed input (TypeError, KeyError, VerifyError, ...).
        named = isinstance(error, (OSError, ValueError, AstropyWarning))
        reason = f"{error}" if named else f"{type(error).__name__}: {error}"
        reason = reason.replace(f": {path!r}", "")
        raise ReadError(path, reason, hdu=where.hdu, row=row) from error


@contextmanager
def open_image(
    path: str, wanted: HduName | None, *, row: int | None = None
) -> Iterator[tuple[fits.HDUList, int]]:
    """Open a file with astropy for its headers; exceptions inside become a ReadError.

    Yield the HDUs, and the number of the one that holds the image: `wanted`, or the first one that
    does. A gzipped file has no data here, and no HDUs after that one.
    """
    with (
        read_errors(path, wanted, row) as where,
        FitsFile.at(path, wanted) as file,
        file.by_astropy(do_not_scale_image_data=True) as (hdus, number),
    ):
        where.hdu = number
        yield hdus, number


@contextmanager
def open_images(path: str) -> Iterator[tuple[fits.HDUList, list[int]]]:
    """Open a file as `open_image` does; yield the HDUs, and the numbers of those with pixels."""
    with (
        read_errors(path, None, None),
        FitsFile.at(path, None, every=True) as file,
        file.by_astropy(do_not_scale_image_data=True) as (hdus, _),
    ):
        images = [n for n, hdu in enumerate(hdus) if _holds_image(hdu) and math.prod(hdu.shape)]
        if not images:
            raise no_such_hdu(None, ())
        yield hdus, images


def images_among(
    hdus: fits.HDUList, numbers: Sequence[int], wanted: Sequence[int | str]
) -> list[int]:
    """Return which of the HDUs are wanted, by number or by EXTNAME with ``*`` for any characters.

    Raise ValueError if there is none for one that is wanted.
    """
    names = {number: hdus[number].name.upper() for number in numbers}
    chosen: set[int] = set()
    for each in wanted:
        if isinstance(each, int):
            found = {each} & names.keys()
        else:
            pattern = each.strip().upper()
            found = {number for number, name in names.items() if fnmatchcase(name, pattern)}
        if not found:
            known = ", ".join(f"{number} ({name})" for number, name in names.items())
            raise ValueError(f"no image in HDU {each!r}, the file has images in {known}")
        chosen |= found
    return sorted(chosen)


def _opened(file: BinaryIO, **options: bool) -> fits.HDUList:
    _check_counts(file)
    try:
        return fits.open(file, memmap=False, **options)
    except OSError as error:
        # astropy's message recommends one of its own options.
        if "No SIMPLE card" not in str(error):
            raise
        begin = os.pread(file.fileno(), 8, 0)
        raise OSError(f"not a FITS file: it begins with {begin!r}") from None


def _check_counts(file: BinaryIO) -> None:
    """Reject more than 999 axes or columns in the first headers: astropy would loop over them."""
    headers = os.pread(file.fileno(), 16 * 2880, 0)
    if (found := _COUNT.search(headers)) is not None:
        raise ValueError(f"a header has {found[0].decode()!r}, the limit is 999")


def _find(hdus: fits.HDUList, wanted: HduName | None) -> int:
    if wanted is None:
        number = next((n for n, hdu in enumerate(hdus) if _holds_image(hdu)), None)
        if number is None:
            raise no_such_hdu(None, ())
        return number
    try:
        number = hdus.index_of(wanted)
        hdu = hdus[number]
    except (IndexError, KeyError):
        raise no_such_hdu(wanted, [hdu.name for hdu in hdus]) from None
    if not _holds_image(hdu):
        raise ValueError(f"HDU {wanted!r} holds no image, it is a {type(hdu).__name__}")
    return number


def _holds_image(hdu: Any) -> bool:
    if hdu.header.get("ZIMAGE") is True and hdu.header.get("XTENSION") == "BINTABLE":
        return True
    return bool(hdu.is_image) and hdu.header.get("NAXIS", 0) >= 1


def bytes_read() -> int:
    """Return the bytes that this process has read so far; astropy does not count its own."""
    try:
        with open("/proc/self/io", "rb") as counters:
            return int(counters.readline().split()[1])
    except OSError:  # hidden in some containers
        return 0
