"""Bytes, paths and arrays as rows for Readers, like the rows of an Index."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from readers.channels import ChannelsReader
from readers.contract import Reader, Row
from readers.errors import ReadError
from readers.fits.multi_hdu import HdusReader
from readers.fits.reader import FitsReader
from readers.index.columns import Columns
from readers.jpeg.reader import JpegReader
from readers.npy import NpyReader
from readers.places.memory import MemoryPlaces

WHOLE = "path"
"""Name of the main file of a sample that also has parts, as in an Index."""
_NAME = "content"
"""Name of each file in messages of Readers, which do not know the number of the content. The files
of a sample also have the name of their part, so that all names differ."""


class Contents(Columns):
    """Contents of one call as rows. Rows after the last content cannot be read.

    Parameters
    ----------
    parts : sequence of str
        Names of the parts, for samples of several files; empty for single files.
    reader : Reader
        Reader of the rows. Arrays are encoded in its format.
    """

    def __init__(self, parts: Sequence[str], reader: Reader) -> None:
        super().__init__({})
        self._names = tuple(parts)
        self._reader = reader
        self._rows: list[Row] = []
        self._rejected: Mapping[int, str] = {}

    def hold(
        self, contents: Sequence[Any], rejected: Mapping[int, str] | None = None, first: int = 0
    ) -> None:
        """Set the contents, and the reasons for contents that are already rejected.

        Messages count contents from `first` on.

        Raises
        ------
        TypeError
            If a content is not bytes, a path or an array; or, with parts, not a mapping to these.
        """
        self._rows = [self._row(k, first + k, one) for k, one in enumerate(contents)]
        self._rejected = rejected or {}

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, number: int) -> Row:
        """Return a content for a Reader. ReadError if it is rejected or does not exist."""
        if number >= len(self._rows):
            raise ReadError(_NAME, "it does not exist", row=number)
        if number in self._rejected:
            raise ReadError(_NAME, self._rejected[number], row=number)
        return self._rows[number]

    def _row(self, number: int, name: int, content: Any) -> Row:
        if not self._names:
            return self._file(number, _NAME, f"content {name}", content)
        if not isinstance(content, Mapping) or not {*content} <= {WHOLE, *self._names}:
            found = sorted(map(str, content)) if isinstance(content, Mapping) else type(content)
            raise TypeError(
                f"content {name} must be a mapping from the names of files, "
                f"{', '.join(self._names)}, to contents, got {found}"
            )
        parts = {
            part: None
            if content.get(part) is None
            else self._file(
                number, f"{_NAME}.{part}", f"content {name}, part {part}", content[part]
            )
            for part in self._names
        }
        if content.get(WHOLE) is not None:
            whole = self._file(number, _NAME, f"content {name}", content[WHOLE])
            return Row(number, whole.path, parts=parts, places=whole.places)
        return Row(number, _NAME, parts=parts, places=MemoryPlaces())

    def _file(self, number: int, path: str, title: str, content: Any) -> Row:
        if isinstance(content, str | os.PathLike):
            return Row(number, os.fspath(content))
        return Row(number, path, places=MemoryPlaces(contents={path: self._bytes(title, content)}))

    def _bytes(self, title: str, content: Any) -> bytes | memoryview:
        if isinstance(content, bytes):
            return content
        if isinstance(content, bytearray | memoryview):
            view = memoryview(content)
            return view.cast("B") if view.c_contiguous else view.tobytes()
        if not hasattr(content, "__array__"):
            raise TypeError(
                f"{title} must be the bytes of a file, a path or an array, got "
                f"{type(content).__name__}"
            )
        array = np.asarray(content)
        if array.ndim == 1 and array.dtype == np.uint8:
            return array.tobytes()
        try:
            return encoded(array, self._reader)
        except ValueError as error:
            raise TypeError(f"{title}: {error}") from error


def encoded(image: NDArray[Any], reader: Reader) -> bytes:
    """Encode an image in the format of a Reader: .npy, PNM or FITS, uncompressed.

    Raises
    ------
    ValueError
        If the format cannot store the image.
    """
    if isinstance(reader, ChannelsReader):
        reader = reader.reader
    file = io.BytesIO()
    if isinstance(reader, NpyReader):
        np.save(file, image, allow_pickle=False)
        return file.getvalue()
    if isinstance(reader, JpegReader):
        return _as_pnm(image)
    if isinstance(reader, FitsReader | HdusReader):
        from astropy.io import fits

        if image.ndim < 2:
            raise ValueError(f"an image must have at least two axes, got {image.ndim}")
        try:
            fits.PrimaryHDU(image).writeto(file)
        except KeyError:
            raise ValueError(f"FITS has no {image.dtype}: convert it") from None
        return file.getvalue()
    raise ValueError(
        f"a {type(reader).__name__} cannot read arrays of {image.dtype} with {image.ndim} axes: "
        "pass the bytes of a file, as bytes or as uint8 with one axis"
    )


def _as_pnm(image: NDArray[Any]) -> bytes:
    channels = image.shape[2] if image.ndim == 3 else 1
    if image.ndim not in (2, 3) or channels not in (1, 3) or image.dtype not in ("uint8", "uint16"):
        raise ValueError(
            "an image must be uint8 or uint16 of shape (height, width) or (height, width, 3), got "
            f"{image.dtype} of shape {image.shape}"
        )
    height, width = image.shape[:2]
    kind, most = (6 if channels == 3 else 5), np.iinfo(image.dtype).max
    header = f"P{kind} {width} {height} {most}\n".encode()
    return header + image.astype(image.dtype.newbyteorder(">")).tobytes()
