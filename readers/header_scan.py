"""What the headers of files say, as columns of an Index. No pixels are read.

`file_facts` gives the facts of one file, `FactTable` collects those of an archive. Which HDU holds
the image, and which images are refused, is the Readers' own rule, so that what has facts can be
read. Header values stay as they are until the table is made.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from astropy.io import fits
from PIL import Image

from readers.contract import Row
from readers.errors import ReadError
from readers.fits.file import open_image, open_images
from readers.fits.hdus import HduName
from readers.fits.planes import ImageShape
from readers.index.table import SUFFIXES
from readers.jpeg.reader import JpegReader
from readers.leapseconds import utc_of

if TYPE_CHECKING:
    import pyarrow as pa

Fact = bool | int | float | str | None

ALL = "all"
"""In place of an HDU: each that holds an image."""

COLUMNS = {
    "path": "large_string",
    "hdu": "int64",
    "planes": "int64",
    "plane": "int64",
    "height": "int64",
    "width": "int64",
    "bitpix": "int64",
    "codec": "string",
    "file_bytes": "int64",
}
"""Name and Arrow type of the columns before those of the header keys. ``planes`` is how many the
image has; ``plane`` is there where there is a row for each."""

_TIME_KEY = re.compile(r"DATE.*|T_(OBS|REC|START|STOP|END)")
# Years that fit into 64 bits of nanoseconds: for others NumPy wraps round without a word.
_TIME = re.compile(r"(1[7-9]|2[01])\d\d-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?")
_JSOC_TAI = re.compile(r"(\d{4})\.(\d\d)\.(\d\d)_([0-9:.]+)_TAI")
_BATCH_ROWS = 8192


def file_facts(
    path: str,
    keys: Sequence[str] = (),
    hdu: HduName | None = None,
    planes: Sequence[int] | Literal["all"] | None = None,
) -> list[dict[str, Fact]]:
    """Return the `COLUMNS` and header keywords of a file, FITS unless its suffix says otherwise.

    Parameters
    ----------
    path : str
        The file.
    keys : sequence of str
        Header keywords to give as well, in any case.
    hdu : int, str or (str, int), optional
        HDU that must hold the image: its number, EXTNAME, or EXTNAME and EXTVER; by default the
        first one that does. "all" for each that does.
    planes : sequence of int or "all", optional
        Planes that each image must have, for a row of each.

    Returns
    -------
    list of dict
        A row for each image and plane. For an encoded image, ``codec`` is its format, and ``hdu``,
        ``bitpix``, ``planes``, ``plane`` and the keys are None.

    Raises
    ------
    ReadError
        If the file cannot be read, or has no such image or plane.
    """
    rows: list[dict[str, Fact]]
    if path.lower().endswith(SUFFIXES["jpeg"]):
        image = image_facts(path)
        rows = [dict.fromkeys((*keys, "hdu", "bitpix", "planes", "plane")) | image]
        rows[0]["codec"] = rows[0].pop("format")
    else:
        rows = [row for facts in fits_facts(path, keys, hdu) for row in _each(path, facts, planes)]
    try:
        return [row | {"path": path, "file_bytes": os.path.getsize(path)} for row in rows]
    except OSError as error:  # gone since
        raise ReadError(path, str(error)) from error


def _each(
    path: str, facts: dict[str, Fact], planes: Sequence[int] | Literal["all"] | None
) -> list[dict[str, Fact]]:
    if planes is None:
        return [facts | {"plane": None}]
    shape = ImageShape(*(int(facts[name] or 0) for name in ("planes", "height", "width")))
    try:
        return [facts | {"plane": plane} for plane in shape.chosen(planes)]
    except ValueError as error:
        number = facts["hdu"]
        raise ReadError(path, str(error), hdu=int(number or 0)) from error


def fits_facts(
    path: str, keys: Sequence[str] = (), hdu: HduName | None = None
) -> list[dict[str, Fact]]:
    """Read the headers of a FITS file, up to the image's.

    Parameters
    ----------
    path : str
        The file: plain, ``.gz``, ``.fz`` or tile-compressed.
    keys : sequence of str
        Header keywords to give as well, in any case.
    hdu : int, str or (str, int), optional
        As for `file_facts`.

    Returns
    -------
    list of dict
        For each image the keys as they were given: None where the header lacks one, leaves it
        undefined or blank, cannot be parsed there, or says 'nan'. Then ``hdu`` (its number),
        ``planes``, ``height``, ``width``, ``bitpix`` (of the image, not of the table it is
        compressed into) and ``codec``, the tile compression (``RICE_1``, ``GZIP_2``, ...), empty
        for none.

    Raises
    ------
    ReadError
        If there is no such image, it has no pixels, or the file ends before it does. The end of a
        ``.gz`` file is not looked for: that takes unpacking it.

    Notes
    -----
    A key that the image's header lacks is looked up in the primary header where the image's says
    INHERIT = T (FITS Standard 4.0, appendix K).
    """
    if hdu != ALL:
        with open_image(path, hdu) as (hdus, number):
            return [_image_facts(hdus, number, keys)]
    with open_images(path) as (hdus, numbers):
        return [_image_facts(hdus, number, keys) for number in numbers]


def _image_facts(hdus: fits.HDUList, number: int, keys: Sequence[str]) -> dict[str, Fact]:
    image = hdus[number]
    shape = ImageShape.of(image.shape)
    headers = [image.header]
    if number > 0 and _value(image.header, "INHERIT") is True:
        headers.append(hdus[0].header)
    facts: dict[str, Fact] = {
        key: next((_value(header, key) for header in headers if key in header), None)
        for key in keys
    }
    codec = str(getattr(image, "compression_type", ""))
    return facts | {
        "hdu": number,
        **shape._asdict(),
        "bitpix": image.header["BITPIX"],
        "codec": "RICE_1" if codec == "RICE_ONE" else codec,  # an old spelling
    }


def image_facts(path: str) -> dict[str, Fact]:
    """Read the size of an encoded image as `JpegReader` does, so that a cut file is refused.

    Returns
    -------
    dict
        ``height`` and ``width`` as displayed, and ``format`` in Pillow's words (``JPEG``,
        ``PNG``, ...).

    Raises
    ------
    ReadError
        If it is not a readable image.
    """
    try:
        peek = JpegReader().peek(Row(0, path), None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the peek has seen it already
            with Image.open(path) as image:
                name = image.format
    except ReadError as error:
        raise ReadError(path, error.reason) from error  # there is no row yet
    except OSError as error:  # changed since the peek
        raise ReadError(path, str(error)) from error
    # MPO: a JPEG that more pictures follow.
    return {
        "height": peek.height,
        "width": peek.width,
        "format": "JPEG" if name == "MPO" else str(name),
    }


def _value(header: fits.Header, key: str) -> Fact:
    try:
        value = header.get(key)
    except fits.VerifyError:  # such as NaN without quotes, which FITS does not know
        return None
    if isinstance(value, bool | int | float):
        return value
    if value is None or isinstance(value, fits.card.Undefined):
        return None
    text = str(value).strip()
    return None if text.lower() in ("", "nan") else text


class FactTable:
    """Facts of many files, one row each in the order that they were added.

    Parameters
    ----------
    keys : sequence of str
        Header keywords, in capitals. Their columns are named as `column_name` says.
    has_planes : bool
        Whether there is a row for each plane, and a column ``plane``.

    Notes
    -----
    A column is of the narrowest type that holds all its values: integer, float (integers among
    floats become floats), or text. Text of the keys DATE..., T_OBS, T_REC, T_START, T_STOP and
    T_END becomes a time, in UTC; it may be ISO 8601, or as HMI has it (``2011.02.15_02:00:00_TAI``,
    from 1972 on). QUALITY is an unsigned word of 32 bits, which FITS can only store signed:
    negative values stand for those with the highest bit set.
    """

    def __init__(self, keys: Sequence[str], *, has_planes: bool = False) -> None:
        self.keys = tuple(keys)
        self._has_planes = has_planes
        self.not_times: dict[str, tuple[int, str]] = {}
        """By column, how many texts are no such times and were left empty by `table`, and the
        first of them."""
        self._rows: list[tuple[Fact, ...]] = []
        self._batches: list[list[pa.Array]] = []

    def add(self, facts: Mapping[str, Fact]) -> None:
        """Add a row, as `file_facts` gives it for the keys."""
        self._rows.append(tuple(facts[name] for name in (*COLUMNS, *self.keys)))
        if len(self._rows) == _BATCH_ROWS:  # Arrow takes a fifth of the memory
            self._pack()

    def table(self) -> pa.Table:
        """Return all rows; the type of a key that no file has is null."""
        import pyarrow as pa

        self._pack()
        columns: dict[str, pa.Array] = {}
        for place, name in enumerate((*COLUMNS, *self.keys)):
            column = _joined([batch[place] for batch in self._batches])
            if name == "plane" and not self._has_planes:
                continue
            if name in COLUMNS:
                columns[name] = column.cast(COLUMNS[name])
            elif _TIME_KEY.fullmatch(name) and column.type in (pa.string(), pa.null()):
                columns[column_name(name)], bad = _times(column)
                if bad:
                    self.not_times[column_name(name)] = len(bad), bad[0]
            else:
                columns[column_name(name)] = _bits(column) if name == "QUALITY" else column
        return pa.table(columns)

    def _pack(self) -> None:
        if self._rows:
            self._batches.append([_array(values) for values in zip(*self._rows, strict=True)])
            self._rows.clear()


def column_name(key: str) -> str:
    """Name the column of a header key: DATE-OBS is ``date_obs``."""
    return re.sub(r"\W", "_", key.lower())


def _array(values: Sequence[Fact]) -> pa.Array:
    import pyarrow as pa

    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError):  # of several types, or beyond 64 bits
        numeric = all(value is None or isinstance(value, int | float) for value in values)
        common = float if numeric else str
        return pa.array([None if value is None else common(value) for value in values])


def _joined(batches: list[pa.Array]) -> pa.Array:
    """Join the batches of a column, with types promoted as `_array` does."""
    import pyarrow as pa

    kinds = {batch.type for batch in batches} - {pa.null()}
    if len(kinds) > 1 and pa.string() in kinds:
        batches = [_array([v if v is None else str(v) for v in b.to_pylist()]) for b in batches]
        kinds = {pa.string()}
    kind = pa.float64() if len(kinds) > 1 else kinds.pop() if kinds else pa.null()
    return pa.concat_arrays([pa.nulls(0, kind), *(b.cast(kind, safe=False) for b in batches)])


def _bits(column: pa.Array) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.type not in (pa.int64(), pa.float64(), pa.null()):
        return column
    try:
        bits = column.cast(pa.int64())
    except pa.ArrowInvalid:  # fractions: another instrument's quality
        return column
    signed = pc.and_(pc.less(bits, 0), pc.greater_equal(bits, -(1 << 31)))
    return pc.if_else(signed, pc.add(bits, 1 << 32), bits)


def _times(column: pa.Array) -> tuple[pa.Array, list[str]]:
    """Return the times of a column of text, and the texts that are none."""
    import pyarrow as pa

    texts = column.to_pylist()
    times = [_nanoseconds(text) for text in texts]
    bad = [text for text, time in zip(texts, times, strict=True) if text and time is None]
    return pa.array(times, pa.timestamp("ns")), bad


def _nanoseconds(text: str | None) -> int | None:
    text = (text or "").removesuffix("Z")
    if found := _JSOC_TAI.fullmatch(text):
        year, month, day, clock = found.groups()
        tai = _nanoseconds(f"{year}-{month}-{day}T{clock}")
        return None if tai is None else utc_of(tai)
    if not _TIME.fullmatch(text):
        return None
    try:
        return int(np.datetime64(text, "ns").astype(np.int64))
    except ValueError:  # such as 30 February
        return None
