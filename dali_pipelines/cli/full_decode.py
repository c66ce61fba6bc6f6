"""Decode a file whole, and look for damage that no header shows, for `index` and `verify`."""

from __future__ import annotations

from contextlib import suppress

from astropy.io import fits

from readers.contract import Row
from readers.errors import ReadError
from readers.fits.file import read_errors
from readers.fits.reader import FitsReader
from readers.index.table import SUFFIXES
from readers.jpeg.reader import JpegReader


def check_whole(path: str, hdu: int | None = None, planes: int = 1) -> None:
    """Decode a file whole, by astropy or Pillow, and compare DATASUM, or the checksums of a PNG.

    Of a JPEG the entropy-coded data are gone through, too: by libjpeg-turbo, whose warnings count
    as errors, and, where they are coded sequentially in one scan, by the toolkit's own kernel.
    Of a FITS file, `hdu` is the one that holds the image, of so many `planes`.

    Raises
    ------
    ReadError
        If something is wrong.
    """
    if hdu is not None:
        FitsReader(hdu, planes=range(planes) if planes > 1 else None).verify(Row(0, path, hdu))
        _check_data_sum(path, hdu)
        return
    JpegReader().verify(Row(0, path))
    _check_rows(path)


def is_image(path: str) -> bool:
    """Return whether a path is that of an encoded image, and not of a FITS file."""
    return path.lower().endswith(SUFFIXES["jpeg"])


def _check_data_sum(path: str, hdu: int) -> None:
    """Compare the DATASUM of the image's HDU, where it has one.

    Not its CHECKSUM, which holds for the header as well: astropy corrects cards that are not as the
    standard has them, as JSOC's are, and finds another sum then.
    """
    with (
        read_errors(path, hdu, None),
        fits.open(path, memmap=False, disable_image_compression=True) as hdus,
    ):
        if hdus[hdu].verify_datasum() == 0:  # 1 if it is right, 2 if there is none
            raise ReadError(path, "DATASUM is not that of the data: they were changed", hdu=hdu)


def _check_rows(path: str) -> None:
    from dali_pipelines.jpeg_index import find_mcu_rows
    from readers.jpeg.header import NoRowsError
    from readers.jpeg.mcu_rows import DamagedRowsError

    with suppress(NoRowsError), open(path, "rb") as file:  # of another coding, or no JPEG
        try:
            find_mcu_rows(file.read())
        except DamagedRowsError as error:
            raise ReadError(path, f"the file is damaged: {error}") from error
