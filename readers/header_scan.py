"""Read metadata from the headers of files for the columns of an Index. No pixels are read.

`file_facts` returns the metadata of one file; `readers.index.fact_table.FactTable` collects the
metadata of an archive. HDUs are chosen and images are rejected by the code of the Readers, so a
file that has metadata can also be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from readers.errors import ReadError
from readers.fits.file import read_errors
from readers.fits.headers import HduName, Value
from readers.fits.metadata import image_metadata
from readers.fits.planes import ImageShape
from readers.index.keywords import is_encoded as is_encoded
from readers.index.keywords import is_recording as is_recording
from readers.index.keywords import is_video as is_video
from readers.jpeg.reader import JpegReader, load
from readers.places.contract import Place
from readers.places.opener import LOCAL


def file_facts(
    file: str | Place,
    keys: Sequence[str] = (),
    hdu: HduName | None = None,
    planes: Sequence[int] | Literal["all"] | None = None,
    *,
    hdus: Sequence[int | str] | None = None,
    inherit: bool = False,
) -> list[dict[str, Value]]:
    """Return the metadata of a FITS file or of an encoded image.

    The suffix of a file, or the first bytes of a member of a container, tell which of the two.

    Parameters
    ----------
    file : str or Place
        Path of the file, or its unopened Place.
    keys : sequence of str
        Additional header keywords, in any case.
    hdu : int, str or (str, int), optional
        HDU with the image: number, EXTNAME, or (EXTNAME, EXTVER); by default the first HDU with an
        image. "all" means every HDU with an image.
    planes : sequence of int or "all", optional
        Planes of each image. The result has a row for each plane.
    hdus : sequence of int or str, optional
        In place of `hdu`: numbers, and EXTNAMEs with ``*`` for any characters, e.g. ``SCI*``. The
        result has a row for each matching image. Each entry must match an image.
    inherit : bool
        Whether to take missing keywords from the primary header even without INHERIT = T.

    Returns
    -------
    list of dict
        `readers.index.fact_table.COLUMNS` and keywords for each image and plane. For an encoded
        image ``codec`` is the format; ``hdu``, ``bitpix``, ``planes``, ``plane`` and the keywords
        are None.

    Raises
    ------
    ReadError
        If the file cannot be read, or lacks a requested image or plane.
    """
    rows: list[dict[str, Value]]
    place = LOCAL.at(file) if isinstance(file, str) else file
    path = place.name
    if is_encoded(place):
        image = image_facts(place)
        rows = [dict.fromkeys((*keys, "hdu", "bitpix", "planes", "plane")) | image]
        rows[0]["codec"] = rows[0].pop("format")
    else:
        found = image_metadata(place, keys, hdu, hdus, inherit=inherit)
        rows = [row for facts in found for row in _each(path, facts, planes)]
    with read_errors(path, None, None), place:  # the file may be deleted meanwhile
        return [row | {"path": path, "file_bytes": place.nbytes} for row in rows]


def _each(
    path: str, facts: dict[str, Value], planes: Sequence[int] | Literal["all"] | None
) -> list[dict[str, Value]]:
    if planes is None:
        return [facts | {"plane": None}]
    shape = ImageShape(*(int(facts[name] or 0) for name in ("planes", "height", "width")))
    try:
        return [facts | {"plane": plane} for plane in shape.chosen(planes)]
    except ValueError as error:
        number = facts["hdu"]
        raise ReadError(path, str(error), hdu=int(number or 0)) from error


def image_facts(file: str | Place) -> dict[str, Value]:
    """Read an encoded image like `JpegReader`; ReadError if it cannot be read.

    Return ``height`` and ``width`` as displayed, and ``format``, Pillow's name (``JPEG``, ``PNG``,
    ...).
    """
    place = LOCAL.at(file) if isinstance(file, str) else file
    image = load(place, JpegReader.channels)
    return {"height": image.height, "width": image.width, "format": image.format}
