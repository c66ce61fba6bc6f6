"""Open FITS files: as bytes, and through astropy if needed."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import BinaryIO

from astropy.io import fits
from astropy.utils.exceptions import AstropyWarning

from readers.errors import ReadError, reason_of
from readers.fits.gunzip import MAGIC, UnpackedFits
from readers.fits.hdus import (
    FoundHdu,
    HeaderReader,
    check_data,
    find_opened,
    names_of,
    with_pixels,
)
from readers.fits.headers import BLOCK, HduName, NeedsAstropy, is_wanted
from readers.messages import pipeline_hint
from readers.places.contract import Place
from readers.places.file_object import file_object
from readers.quiet import without_warnings

_PACKED = {
    b"BZh": "bzip2",
    b"\xfd7zXZ\0": "xz",
    b"PK\x03\x04": "zip",
    b"\x1f\x9d": "compress",
}
_SIMPLE = re.compile(rb"SIMPLE\s*=\s*[TF]")
"""Start of a FITS file, even if its columns deviate from the standard."""
_HEAD_BYTES = 128 << 10
"""Bytes to fetch first from an unknown file: usually all headers and the table of tiles."""
_WHOLE_BYTES = 1 << 20
"""Largest file, in bytes, that is fetched whole: this is faster than a second request."""
Expected = Callable[[Hashable | None], Sequence[tuple[int, int]]]
"""Function of the stamp of a file that returns the ranges to fetch."""
_COUNT = re.compile(rb"(?:NAXIS|TFIELDS) {1,3}= +(\d{4,})[ /]")
"""Number of axes or columns with four or more digits."""


def whole_if_small(nbytes: int | None) -> Expected | None:
    """Return the whole file as the range to read, if its length is known and small."""
    return None if nbytes is None or nbytes > _WHOLE_BYTES else lambda _: [(0, nbytes)]


class FitsFile:
    """An open FITS file, plain or gzipped.

    Parameters
    ----------
    place : Place
        Bytes of the file. The place is opened here, and closed with the file.
    expected : callable, optional
        Function of the place's stamp that returns the ranges to read. One request fetches them all.

    Raises
    ------
    OSError
        If the file cannot be opened.
    ValueError
        If the file is compressed by a program other than gzip.
    """

    wanted: HduName | None = None
    """HDU to read; None for the first image."""
    header_bytes: int = 0
    """Bytes of the headers that were read."""

    def __init__(self, place: Place, expected: Expected | None = None) -> None:
        self._unpacked: UnpackedFits | None = None
        self._of_astropy = 0
        self._stored = place.__enter__()
        try:
            self._stamp = place.stamp
            known = [] if self._stamp is None else _known_plain(self._stamp)
            ranges = [] if expected is None else expected(self._stamp)
            if ranges or not known:
                place.fetch(ranges or [(0, _HEAD_BYTES)])
            if not known and not self._unpack():
                known.append(True)
        except BaseException:
            self.__exit__()
            raise

    def _unpack(self) -> bool:
        """Begin to unpack a gzipped file; return False for a plain file."""
        begin = self._stored.read(0, 6)
        for magic, name in _PACKED.items():
            if begin.startswith(magic):
                raise ValueError(
                    f"the file is packed by {name}: unpack it, or pack it by gzip or fpack"
                )
        if not begin.startswith(MAGIC):
            return False
        self._unpacked = UnpackedFits(self._stored)
        self._unpacked.place.__enter__()
        return True

    def __enter__(self) -> FitsFile:
        return self

    def __exit__(self, *_: object) -> None:
        if self._unpacked is not None:
            self._unpacked.place.__exit__(None, None, None)
        self._stored.__exit__(None, None, None)

    @property
    def place(self) -> Place:
        """Bytes of the FITS file. Data of a gzipped file are only here after a call of `need`."""
        return self._stored if self._unpacked is None else self._unpacked.place

    @property
    def stamp(self) -> Hashable | None:
        """Stamp of the file; None for a gzipped file, because each read unpacks the file again."""
        return self._stamp if self._unpacked is None else None

    @classmethod
    @contextmanager
    def at(
        cls,
        place: Place,
        wanted: HduName | None,
        *,
        every: bool = False,
        expected: Expected | None = None,
    ) -> Iterator[FitsFile]:
        """Open a file to read one HDU.

        A gzipped file is unpacked up to the header of this HDU, or up to the last header with
        `every`.
        """
        with cls(place, expected) as file:
            file.wanted = wanted
            if file._unpacked is not None:
                file._unpacked.find(wanted, every=every)
            yield file

    def each(self, wanted: Sequence[HduName | None]) -> Iterator[list[int]]:
        """Select the wanted HDUs one after the other; yield the indices in `wanted` of each HDU.

        HDUs of a gzipped file come in the order of the file, so the file is unpacked once.
        """
        left = list(range(len(wanted)))
        while self._unpacked is not None and left and (found := self._unpacked.next_hdu()):
            number, extent = found
            if here := [place for place in left if is_wanted(extent, number, wanted[place])]:
                left = [place for place in left if place not in here]
                self.wanted = number
                yield here
        for place in left:  # all of a plain file, or the HDUs that a gzipped file lacks
            self.wanted = wanted[place]
            yield [place]

    def header(self) -> FoundHdu | None:
        """Read the header of the image; None if there is no image or only astropy can read it."""
        try:
            found = HeaderReader(self.place, self.stamp).find(self.wanted)
        except NeedsAstropy:
            return None
        return found if found.extent.image else None

    def names(self, last: int = sys.maxsize) -> list[tuple[str, int]]:
        """Return EXTNAME, in capitals, and EXTVER of the HDUs up to number `last`.

        A gzipped file is unpacked again, up to this HDU.
        """
        if self._unpacked is not None:
            unpacked = UnpackedFits(self._stored)
            found: list[tuple[str, int]] = []
            with unpacked.place:
                while len(found) <= last and (hdu := unpacked.next_hdu()) is not None:
                    found.append(hdu[1].names)
            return found
        try:
            return HeaderReader(self.place, self.stamp).names(last)
        except NeedsAstropy:
            with self.by_astropy(do_not_scale_image_data=True) as (hdus, _):
                opened = [hdu for number, hdu in enumerate(hdus) if number <= last]
                for number, hdu in enumerate(opened):
                    check_data(hdu, number, self.place)
                return [names_of(hdu) for hdu in opened]

    def need(self, start: int, stop: int) -> None:
        """Unpack a range of data bytes of a gzipped file. Call this once for each range."""
        if self._unpacked is not None:
            self._unpacked.keep(start, stop)

    def input_bytes(self, read: int) -> int:
        """Return the number of bytes read from the file.

        `read` is the number of data bytes that the caller has read from `place`. Headers, and the
        bytes that astropy has read, are added.
        """
        if self._unpacked is not None:
            return self._unpacked.input_bytes
        return read + self.header_bytes + self._of_astropy

    @contextmanager
    def by_astropy(self, extension: int = 0, **options: bool) -> Iterator[tuple[fits.HDUList, int]]:
        """Open the file with astropy; yield the HDUs, and the number of the wanted HDU.

        astropy takes some ms to parse each HDU. With `extension`, the first byte of an HDU, it only
        sees this HDU, after an empty primary HDU.
        """
        if not extension:
            _check_counts(self.place)
        before = _empty_primary() if extension else b""
        with file_object(self.place, extension, before, BLOCK) as (file, nbytes_read):
            try:
                with _opened(file, **options) as hdus:
                    number = 1
                    if not extension:
                        number = find_opened(hdus, self.wanted, self.place)
                        check_data(hdus[number], number, self.place)
                    yield hdus, number
            except OSError as error:
                if type(error) is not OSError or error.errno is not None:
                    raise
                # Of astropy, e.g. "Header missing END card."
                reason = str(error).rstrip(".")
                raise ValueError(
                    f"{reason}: the file is damaged or cut off, copy it again"
                ) from error
            finally:
                self._of_astropy += nbytes_read()


@cache
def _empty_primary() -> bytes:
    return fits.PrimaryHDU().header.tostring().encode()


@lru_cache(maxsize=4096)
def _known_plain(stamp: Hashable) -> list[bool]:
    """Return the cached list of a file; an entry in the list means that the file is not packed."""
    del stamp
    return []


@dataclass
class Where:
    """The HDU in the message of an error."""

    hdu: int | None


@contextmanager
def read_errors(path: str, hdu: HduName | None, row: int | None) -> Iterator[Where]:
    """Convert any exception inside to a ReadError; set ``hdu`` of the yielded object once known."""
    where = Where(hdu if isinstance(hdu, int) else None)
    try:
        with without_warnings:  # about odd headers and values beyond float32
            yield where
    except ReadError:
        raise
    except Exception as error:
        # astropy raises many types on malformed input (TypeError, KeyError, VerifyError, ...).
        named = isinstance(error, (OSError, ValueError, AstropyWarning))
        reason = reason_of(error, path) if named else f"{type(error).__name__}: {error}"
        reason = reason.replace(repr(fits.card.UNDEFINED), "no value")
        raise ReadError(path, reason, hdu=where.hdu, row=row) from error


@contextmanager
def open_image(
    place: Place, wanted: HduName | None, *, row: int | None = None
) -> Iterator[tuple[fits.HDUList, int]]:
    """Open a file with astropy for its headers; exceptions inside become a ReadError.

    Yield the HDUs, and the number of the HDU with the image. This is `wanted`, or by default the
    first HDU with an image. A gzipped file only has the headers up to this HDU.
    """
    with (
        read_errors(place.name, wanted, row) as where,
        FitsFile.at(place, wanted) as file,
        file.by_astropy(do_not_scale_image_data=True) as (hdus, number),
    ):
        where.hdu = number
        yield hdus, number


@contextmanager
def open_images(place: Place) -> Iterator[tuple[fits.HDUList, list[int]]]:
    """Open a file like `open_image`; yield the HDUs, and the numbers of the HDUs with pixels."""
    with (
        read_errors(place.name, None, None),
        FitsFile.at(place, None, every=True) as file,
        file.by_astropy(do_not_scale_image_data=True) as (hdus, _),
    ):
        yield hdus, with_pixels(hdus, file.place)


def hdu_names(place: Place, last: int = sys.maxsize) -> list[tuple[str, int]]:
    """Return EXTNAME and EXTVER of HDUs of a file, see `FitsFile.names`. Raises ReadError."""
    with read_errors(place.name, None, None), FitsFile(place) as file:
        return file.names(last)


def _opened(file: BinaryIO, **options: bool) -> fits.HDUList:
    begin = file.read(80)
    if begin and not _SIMPLE.match(begin):
        hint = pipeline_hint(begin, "fits")
        raise ValueError(f"not a FITS file: it begins with {begin[:8]!r}{hint}")
    file.seek(0)
    hdus = fits.open(file, memmap=False, **options)
    if hdus[0].header.get("SIMPLE") is False:  # astropy takes the rest of the file for its data
        raise ValueError(
            "the first header has SIMPLE = F, expected T: the file is not standard FITS"
        )
    return hdus


def _check_counts(place: Place) -> None:
    """Reject more than 999 axes or columns in the first headers: astropy would loop over all."""
    if (found := _COUNT.search(place.read(0, 16 * BLOCK))) is not None:
        raise ValueError(f"a header has {found[0].decode()!r}, the limit is 999")
