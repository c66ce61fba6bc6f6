"""Decode a whole file to find damage that no header shows, for `index` and `verify`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import BinaryIO, cast

from isal import igzip

from dali_pipelines.aia.calibrate import decoded
from readers.contract import Row
from readers.errors import ReadError
from readers.fits.file import FitsFile, read_errors
from readers.fits.gunzip import MAGIC
from readers.fits.image import find_image
from readers.fits.reader import FitsReader
from readers.jpeg.reader import JpegReader
from readers.places.contract import Place
from readers.places.file_object import file_object


def check_whole(row: Row, planes: int = 1) -> None:
    """Decode a whole file by astropy or Pillow, and check DATASUM, or the checksums of a PNG.

    A JPEG is also decoded by libjpeg-turbo, and its warnings count as errors. If the JPEG is
    sequential with one scan, the toolkit's own kernel decodes its entropy-coded data, too. A FITS
    file is also read and decoded as in pipelines: the image in the HDU of the row, with this number
    of `planes`.

    Raises
    ------
    ReadError
        If something is wrong.
    """
    if row.hdu is not None:
        reader = FitsReader(row.hdu)
        # Before astropy, because astropy ignores some scalings, and streams that are cut off or
        # damaged.
        for plane in range(planes):
            one = replace(row, plane=plane if planes > 1 else None)
            decoded(one, reader.read(one, None))
        FitsReader(row.hdu, planes=range(planes) if planes > 1 else None).verify(
            replace(row, plane=None)
        )
        _check_data_sum(row.place, row.hdu)
        return
    JpegReader().verify(row)
    _check_rows(row.place)


@contextmanager
def unpacked_file(place: Place) -> Iterator[BinaryIO]:
    """Open a place as a file object for astropy; a gzipped file is unpacked."""
    with place, file_object(place) as (file, _):
        if place.read(0, len(MAGIC)) == MAGIC:
            file = cast("BinaryIO", igzip.open(file))  # type: ignore[no-untyped-call]
        yield file


def _check_data_sum(place: Place, hdu: int) -> None:
    """Check the DATASUM of the image's HDU, if it has one.

    CHECKSUM is not checked, because it includes the header. astropy corrects cards that break the
    standard, as in files of JSOC, and then computes another sum.
    """
    with read_errors(place.name, hdu, None), FitsFile.at(place, hdu) as file:
        found = find_image(file)
        file.need(found.start, found.stop)
        with file.by_astropy(found.header_start, disable_image_compression=True) as (hdus, number):
            is_wrong = hdus[number].verify_datasum() == 0
        if is_wrong:  # 1 means right, 2 missing
            reason = "DATASUM does not match the data: they were changed"
            raise ReadError(place.name, reason, hdu=hdu)


def _check_rows(place: Place) -> None:
    from readers.jpeg.header import NoRowsError
    from readers.jpeg.mcu.find import find_mcu_rows
    from readers.jpeg.mcu.rows import DamagedRowsError

    with suppress(NoRowsError), place:  # another coding, or not a JPEG
        try:
            find_mcu_rows(place.read(0, place.nbytes))
        except DamagedRowsError as error:
            raise ReadError(place.name, f"the file is damaged: {error}") from error
