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
from readers.fits.headers import BLOCK, HduExtent, HduName, NeedsAstropy, is_wanted
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
"""Start of a FITS file, also of one that deviates from the columns of the standard."""
_HEAD_BYTES = 128 << 10
"""Bytes to fetch of an unknown file: its headers, and usually the table of tiles."""
_WHOLE_BYTES = 1 << 20
"""Largest file that is fetched whole, as this is faster than another request."""
Expected = Callable[[Hashable | None], Sequence[tuple[int, int]]]
_COUNT = re.compile(rb"(?:NAXIS|TFIELDS) {1,3}= +(\d{4,})[ /]")


def whole_if_small(nbytes: int | None) -> Expected | None:
    """Return the whole file as the range to read, if its length is known and small."""
    return None if nbytes is None or nbytes > _WHOLE_BYTES else lambda _: [(0, nbytes)]


class FitsFile:
    """An open FITS file, plain or gzipped, whose HDUs are read one after the other.

    Parameters
    ----------
    place : Place
        Its bytes. The place is opened here, and closed with the file.
    expected : callable, optional
        Function of the place's stamp that returns the ranges to read, so that one request fetches
        them all.

    Raises
    ------
    OSError
        If it cannot be opened.
    ValueError
        If it is compressed by a program other than gzip.
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
        """Begin to unpack a gzipped file; return False for a plain one."""
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
        """Bytes of the FITS file. A gzipped file only has headers before `need`."""
        return self._stored if self._unpacked is None else self._unpacked.place

    @property
    def stamp(self) -> Hashable | None:
        """Stamp of the file; None if it is gzipped, because each read unpacks it again."""
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

        A gzipped file is first unpacked up to the header of this HDU, or with `every` of the last.
        """
        with cls(place, expected) as file:
            file.wanted = wanted
            if file._unpacked is not None:
                file._unpacked.find(wanted, every=every)
            yield file

    def each(self, wanted: Sequence[HduName | None]) -> Iterator[list[int]]:
        """Select one HDU after the other; yield the indices in `wanted` that name it.

        HDUs of a gzipped file come in the order of the file, so it is unpacked once.
        """
        left = list(range(len(wanted)))
        while self._unpacked is not None and left and (found := self._unpacked.next_hdu()):
            number, extent = found
            if here := [place for place in left if is_wanted(extent, number, wanted[place])]:
                left = [place for place in left if place not in here]
                self.wanted = number
                yield here
        for place in left:  # the headers that a gzipped file still lacks
            self.wanted = wanted[place]
            yield [place]

    def header(self) -> FoundHdu | None:
        """Read the header of the image; None if it has no image, or if only astropy can read it."""
        try:
            found = HeaderReader(self.place, self.stamp).find(self.wanted)
        except NeedsAstropy:
            return None
        return found if found.extent.image else None

    def names(self, last: int = sys.maxsize) -> list[tuple[str, int]]:
        """Return EXTNAME, in capitals, and EXTVER of all HDUs, or of those up to number `last`.

        A gzipped file is unpacked again, up to there.
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
        """Unpack a range of bytes that the HDU needs. Do not ask twice for the same bytes."""
        if self._unpacked is not None:
            self._unpacked.keep(start, stop)

    def input_bytes(self, read: int) -> int:
        """Return the bytes read from disk, from the number of data bytes of the unpacked file.

        Headers, and bytes that astropy has read, are counted here.
        """
        if self._unpacked is not None:
            return self._unpacked.input_bytes
        return read + self.header_bytes + self._of_astropy

    @contextmanager
    def by_astropy(self, extension: int = 0, **options: bool) -> Iterator[tuple[fits.HDUList, int]]:
        """Open the file with astropy; yield the HDUs, and the number of the wanted one.

        With `extension`, the first byte of an HDU, astropy sees an empty primary HDU and this one:
        it takes some ms for each HDU that it parses.
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
                if type(error) is OSError and error.errno is None and _lacks_end(self.place):
                    raise ValueError(
                        "a header has no END card, probably because the file is cut off: copy it "
                        "again"
                    ) from error
                raise
            finally:
                self._of_astropy += nbytes_read()


@cache
def _empty_primary() -> bytes:
    return fits.PrimaryHDU().header.tostring().encode()


@lru_cache(maxsize=4096)
def _known_plain(stamp: Hashable) -> list[bool]:
    """Return the cached list for a file; an entry in it means that the file is not packed."""
    del stamp
    return []


@dataclass
class Where:
    """The HDU that the error of a file names."""

    hdu: int | None


@contextmanager
def read_errors(path: str, hdu: HduName | None, row: int | None) -> Iterator[Where]:
    """Convert any exception inside to a ReadError; set the HDU of the yielded object once known."""
    where = Where(hdu if isinstance(hdu, int) else None)
    try:
        with without_warnings:  # of odd headers, values beyond float32
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

    Yield the HDUs, and the number of the HDU with the image: `wanted`, or the first with an image.
    A gzipped file only has the headers up to this HDU.
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
    """Open a file as `open_image` does; yield the HDUs, and the numbers of those with pixels."""
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
    if hdus[0].header.get("SIMPLE") is False:  # astropy takes all bytes after it for its data
        raise ValueError("its first header has SIMPLE = F, expected T: it is not standard FITS")
    return hdus


def _check_counts(place: Place) -> None:
    """Reject more than 999 axes or columns in the first headers: astropy would loop over them."""
    if (found := _COUNT.search(place.read(0, 16 * BLOCK))) is not None:
        raise ValueError(f"a header has {found[0].decode()!r}, the limit is 999")


def _lacks_end(place: Place) -> bool:
    """Return whether the file ends inside a header: astropy's errors have no type for this."""
    headers, at, number = HeaderReader(place), 0, 0
    while at < place.nbytes:
        if not (text := headers.read(at)):
            return True
        at, number = HduExtent.by_astropy(text, at, number).end, number + 1
    return False
