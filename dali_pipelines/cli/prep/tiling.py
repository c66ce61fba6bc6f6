"""Copies of FITS files with square RICE_1 tiles: a window needs fewer bytes of them."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_pipelines.cli.prep.checksum import is_sound, ones_sum
from dali_pipelines.cli.prep.tiled_hdu import (
    inherited_cards,
    reason_to_copy,
    tiled_hdu,
    with_sums,
)
from readers.errors import ReadError
from readers.fits.file import FitsFile, read_errors
from readers.fits.gunzip import MAGIC
from readers.fits.hdus import check_data
from readers.fits.image import find_image
from readers.places.local import LocalPlace

if TYPE_CHECKING:
    from readers.contract import Row

_EMPTY = (
    "SIMPLE  =                    T / conforms to FITS standard",
    "BITPIX  =                    8 / array data type",
    "NAXIS   =                    0 / number of array dimensions",
    "EXTEND  =                    T",
)
"""Header of the empty HDU that comes before an image that was in HDU 0."""
_PIECE = 16 << 20


class _Part(NamedTuple):
    """An HDU of the file that is copied."""

    number: int
    start: int
    """First byte of its header."""
    data: int
    """First byte of its data."""
    stop: int
    """End of its last block."""
    shape: tuple[int, ...]
    """Of its pixels, if it is rewritten."""
    copied: str | None
    """Why it is copied as it is, see `reason_to_copy`; None if it is rewritten."""
    inherits: bool
    """Whether it has the keywords of the primary header that it lacks (INHERIT = T)."""
    datasum: str | None
    """None if its header has none, or none that is known (FITS Standard 4.0, 4.4.2.7)."""
    checksum: bool
    """Whether its header has a CHECKSUM that is known."""


@dataclass(frozen=True)
class Tiling:
    """Lossless copies of files: images of integers get RICE_1 tiles of `edge` x `edge` pixels."""

    edge: int

    def settings(self) -> dict[str, Any]:
        """Return the settings that determine the files, for JSON."""
        return {"tiles": self.edge}

    def write(self, row: Row, path: str) -> str:
        """Write the copy of a file, all its HDUs.

        Headers keep all cards that do not say how pixels are stored. Floats and tables are copied
        byte for byte. An image in HDU 0 moves to HDU 1, since a table cannot be the first. Of its
        keywords the new HDU 0 has a copy if other HDUs inherit them.

        Returns
        -------
        str
            Which images are copied as they are, and why; empty if none is.

        Raises
        ------
        ReadError
            If the file cannot be read, CHECKSUM or DATASUM of an HDU do not agree with its bytes,
            or the copy has other pixels.
        """
        with _unpacked(row, f"{path}.unpacked") as source, open(path, "wb") as copy:
            with read_errors(row.path, None, row.number):
                parts = _parts(source, self.edge)
            added = int(parts[0].copied is None)
            if added:
                copy.write(self._first_hdu(source, parts))
            for part in parts:
                self._write_hdu(row, source, part, copy, part.number + added)
        return "; ".join(f"HDU {part.number}: {part.copied}" for part in parts if part.copied)

    def _first_hdu(self, source: str, parts: Sequence[_Part]) -> bytes:
        """Return the empty HDU that comes before an image that was in HDU 0."""
        cards = [card.ljust(80).encode() for card in _EMPTY]
        if any(part.inherits for part in parts):
            with open(source, "rb") as file:
                cards += inherited_cards(file.read(parts[0].data))
        return with_sums(b"".join(cards))

    def _write_hdu(self, row: Row, source: str, part: _Part, copy: BinaryIO, number: int) -> None:
        """Write an HDU, which gets this number, and compare what was written with the source."""
        with read_errors(row.path, part.number, row.number):
            content = _checked_bytes(source, part)
            if part.copied is None:
                stored = _stored_pixels(source, part.number).reshape(part.shape)
                header = bytes(content[: part.data - part.start])
                content = memoryview(tiled_hdu(header, stored, self.edge))
        copy.write(content)
        copy.flush()
        if part.copied is None:
            with read_errors(row.path, part.number, row.number):
                found = _stored_pixels(copy.name, number).reshape(part.shape)
            same_type = np.can_cast(found.dtype, stored.dtype, "equiv")
            if not same_type or not np.array_equal(found, stored):
                reason = "astropy reads other pixels from the copy, which is not kept"
                raise ReadError(row.path, reason, hdu=part.number, row=row.number)


@contextmanager
def _unpacked(row: Row, path: str) -> Iterator[str]:
    """Yield the path of a plain FITS file; a gzipped one is unpacked to `path` meanwhile."""
    with read_errors(row.path, None, row.number), LocalPlace(row.path) as place:
        is_packed = place.read(0, len(MAGIC)) == MAGIC
    if not is_packed:
        yield row.path
        return
    with gzip.open(row.path) as packed, open(path, "wb") as plain:
        while True:
            with read_errors(row.path, None, row.number):
                piece = packed.read(_PIECE)
            if not piece:
                break
            plain.write(piece)
    yield path
    os.unlink(path)


def _parts(path: str, edge: int) -> list[_Part]:
    parts = []
    with (
        FitsFile.at(LocalPlace(path), None) as file,
        file.by_astropy(disable_image_compression=True) as opened,
    ):
        for number, hdu in enumerate(opened[0]):
            check_data(hdu, number, file.place)
            header, place = hdu.header, hdu.fileinfo()
            copied = reason_to_copy(header, edge)
            shape: tuple[int, ...] = ()
            if copied is None:
                letter = "Z" if "ZIMAGE" in header else ""
                axes = range(header[f"{letter}NAXIS"], 0, -1)
                shape = tuple(header[f"{letter}NAXIS{axis}"] for axis in axes)
            parts.append(
                _Part(
                    number,
                    place["hdrLoc"],
                    place["datLoc"],
                    place["datLoc"] + place["datSpan"],
                    shape,
                    copied,
                    header.get("INHERIT") is True,
                    str(header.get("DATASUM", "")).strip() or None,
                    bool(str(header.get("CHECKSUM", "")).strip(" 0")),
                )
            )
    return parts


def _checked_bytes(path: str, part: _Part) -> memoryview:
    """Return the bytes of an HDU, once they agree with the checksums in its header."""
    end = min(part.stop, os.path.getsize(path))
    content = np.memmap(path, np.uint8, "r", part.start, end - part.start).data
    if end < part.stop:  # of the last HDU
        is_text = bytes(content[:20]) == b"XTENSION= 'TABLE   '"
        content = memoryview(
            bytes(content).ljust(part.stop - part.start, b" " if is_text else b"\0")
        )
    if part.datasum is not None:
        found = ones_sum(content[part.data - part.start :])
        if part.datasum.lstrip("0") != str(found).lstrip("0"):
            raise ValueError(f"its DATASUM is {part.datasum}, but that of its data is {found}")
    if part.checksum and not is_sound(content):
        raise ValueError("its bytes do not agree with its CHECKSUM")
    return content


def _stored_pixels(path: str, number: int) -> NDArray[np.generic]:
    """Return the integers of an image as they are stored, shape (planes, height, width)."""
    with FitsFile.at(LocalPlace(path), number) as file:
        found = find_image(file)
        return found.pixels(file, None, list(range(found.shape.planes)), scaled=False)
