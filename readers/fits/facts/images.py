"""Facts of the images of a FITS file, from its headers alone."""

from __future__ import annotations

from collections.abc import Sequence

from astropy.io import fits

from readers.fits.facts.cards import Fact, Unusual
from readers.fits.facts.inherited import headers_of
from readers.fits.facts.usual import keyword_facts, usual_images
from readers.fits.file import FitsFile, Where, read_errors
from readers.fits.hdus import HduName
from readers.fits.opened_hdus import images_among, with_pixels
from readers.fits.planes import ImageShape
from readers.places.contract import Place
from readers.places.opener import LOCAL

ALL = "all"
"""Stands for each HDU that holds an image."""


def fits_facts(
    file: str | Place,
    keys: Sequence[str] = (),
    hdu: HduName | None = None,
    hdus: Sequence[int | str] | None = None,
    *,
    inherit: bool = False,
) -> list[dict[str, Fact]]:
    """Read the headers of a FITS file, up to the image's.

    Parameters are those of `readers.header_scan.file_facts`.

    Returns
    -------
    list of dict
        For each image the keywords as they are spelt in `keys`: None if the value is missing,
        undefined, blank, or cannot be parsed; ``TIMESYS:KEY`` is the time scale of KEY, see
        `readers.fits.facts.inherited.headers_of`. Then ``hdu`` (its number), ``planes``,
        ``height``, ``width``, ``bitpix`` (of the image, not of the table it is compressed into) and
        ``codec``, the tile compression (``RICE_1``, ``GZIP_2``, ...), empty for none.

    Raises
    ------
    ReadError
        If there is no such image, it has no pixels, or the file is truncated. The end of a ``.gz``
        file is not checked, since that needs unpacking it.

    Notes
    -----
    If the image's header has INHERIT = T, or `inherit` is true, keywords that it lacks are taken
    from the primary header (FITS Standard 4.0, appendix K), but for those of its own data, such as
    BZERO. If there is an array below it, BUNIT, DATAMAX, DATAMIN and coordinates (CRVAL1, CD1_1 and
    the like) are of that array, and not taken either; RADESYS, EQUINOX and all others are.
    """
    place = LOCAL.at(file) if isinstance(file, str) else file
    every = hdu == ALL or hdus is not None
    wanted = None if every else hdu
    with (
        read_errors(place.name, wanted, None) as where,
        FitsFile.at(place, wanted, every=every) as opened,
    ):
        try:
            primary, images = usual_images(opened, wanted, hdus, every=every)
            return [
                keyword_facts(primary, image, keys, inherit=inherit)
                | _facts(image.number, image.axes, image.bitpix, image.codec or "")
                for image in images
            ]
        except Unusual:
            return _by_astropy(opened, where, keys, hdus, every=every, inherit=inherit)


def _by_astropy(
    file: FitsFile,
    where: Where,
    keys: Sequence[str],
    wanted: Sequence[int | str] | None,
    *,
    every: bool,
    inherit: bool,
) -> list[dict[str, Fact]]:
    with file.by_astropy(do_not_scale_image_data=True) as (hdus, number):
        if not every:
            where.hdu = number
        numbers = with_pixels(hdus, file.place) if every else [number]
        if wanted is not None:
            names = {number: hdus[number].name.strip().upper() for number in numbers}
            numbers = images_among(names, wanted)
        return [_image_facts(hdus, number, keys, inherit=inherit) for number in numbers]


def _image_facts(
    hdus: fits.HDUList, number: int, keys: Sequence[str], *, inherit: bool
) -> dict[str, Fact]:
    image = hdus[number]
    headers = [image.header]
    if number > 0 and (inherit or _value(image.header, "INHERIT") is True):
        headers.append(hdus[0].header)
    has_array = min(hdus[0].shape, default=0) > 0
    facts: dict[str, Fact] = {}
    for key in keys:
        name, among = headers_of(key, headers, fits.Header.__contains__, has_array=has_array)
        facts[key] = next((_value(header, name) for header in among if name in header), None)
    codec = str(getattr(image, "compression_type", ""))
    return facts | _facts(number, image.shape, image.header["BITPIX"], codec)


def _facts(number: int, axes: Sequence[int], bitpix: int, codec: str) -> dict[str, Fact]:
    return {
        "hdu": number,
        **ImageShape.of(axes)._asdict(),
        "bitpix": bitpix,
        "codec": "RICE_1" if codec == "RICE_ONE" else codec,  # an old spelling
    }


def _value(header: fits.Header, key: str) -> Fact:
    try:
        value = header.get(key)
    except fits.VerifyError:  # e.g. NaN without quotes, which is not valid in FITS
        return None
    if isinstance(value, bool | int | float):
        return value
    if value is None or isinstance(value, fits.card.Undefined):
        return None
    return str(value).rstrip() or None
