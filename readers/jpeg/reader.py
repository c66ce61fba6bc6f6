"""JPEG reader, also for PNG and similar formats: send the encoded bytes; the graph decodes them.

Pillow parses the header of each file for size and orientation, so that a window can be placed
before anything is decoded. Files that Pillow cannot open are rejected here, because one bad file
makes DALI's decoder fail a whole batch, and it fills a window from a truncated file without a
message. So are files whose structure is damaged (`readers.jpeg.structure`), and those that DALI
cannot decode, or decodes to other values (`readers.jpeg.sample_format`).

If the Index has the positions of a file's rows of MCUs, only the rows that a window needs are sent,
see `readers.jpeg.crop_rows`.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from readers.contract import Peek, Row, Sample, SampleSpec
from readers.errors import ReadError
from readers.jpeg.crop_rows import cut_rows
from readers.jpeg.entropy import check_entropy
from readers.jpeg.exif import with_orientation
from readers.jpeg.header import JpegHeader, NoRowsError
from readers.jpeg.mcu_rows import ChangedError, McuRows
from readers.jpeg.sample_format import sample_bits, unidentified
from readers.jpeg.structure import DamagedError, structure_of, without_hints
from readers.places.contract import Place
from readers.quiet import without_warnings
from readers.window import Window

FORMATS = ("JPEG", "PNG", "BMP", "WEBP", "TIFF", "PPM", "JPEG2000")
"""Pillow's names of the formats that DALI's image decoder supports, on the CPU and on the GPU."""

_BITS = {"uint8": 8, "uint16": 16}


@dataclass(frozen=True)
class JpegReader:
    """Encoded images. The format is recognised by content, whatever the suffix.

    Parameters
    ----------
    channels : {3, 1}
        Decode to RGB, or to gray.
    stored : {"uint8", "uint16"}, optional
        Reject images of another depth. By default both are read, each at its own depth.
    check_entropy : bool
        Whether to check the entropy-coded data of each JPEG that is read whole, see
        `readers.jpeg.entropy.check_entropy`.

    Raises
    ------
    ValueError
        If an argument has another value.
    """

    channels: int = 3
    stored: str | None = None
    check_entropy: bool = False

    specs: ClassVar[tuple[SampleSpec, ...]] = (
        SampleSpec(name="encoded", dtype="uint8", ndim=1),
        SampleSpec(name="anchor", dtype="int32", ndim=1, unit="pixel"),
        SampleSpec(name="shape", dtype="int32", ndim=1, unit="pixel"),
        SampleSpec(name="deep", dtype="bool", ndim=0),
    )
    """The file's bytes, then (y, x) and (height, width) of the window in the displayed image, and
    whether its samples have 16 bits instead of 8."""
    regions: ClassVar[bool] = True
    """It reads what `Window.within` gives."""
    notes: ClassVar[tuple[str, ...]] = ("mcu_rows",)
    """Column of the Index that is used if present."""

    def __post_init__(self) -> None:
        if self.channels not in (1, 3):
            raise ValueError(f"channels must be 3 (RGB) or 1 (gray), got {self.channels!r}")
        if self.stored not in (None, *_BITS):
            raise ValueError(f"stored must be one of {tuple(_BITS)} or None, got {self.stored!r}")

    def read(self, row: Row, window: Window | None) -> Sample:
        """Read the bytes of the file, or of the rows that the window needs; place the window."""
        check = self.check_entropy
        if window is not None and row.notes.get("mcu_rows") and self.stored != "uint16":
            try:
                return _read_rows(row, row.notes["mcu_rows"], window)
            except ChangedError:  # replaced by another image, or damaged
                check = True
            except Exception:  # Pillow raises many types; reading the whole file finds the reason
                pass
        image = self._load(row, check=check)
        y, x, height, width = 0, 0, image.height, image.width
        size = height, width
        if window is not None:
            try:
                window = window.within(height, width)
                y, x = window.place(height, width)
            except ValueError as error:
                raise ReadError(row.name, str(error), row=row.number) from error
            height, width = window.height, window.width
        sample = _sample(image.encoded, y, x, height, width, deep=image.bits == 16)
        return replace(sample, image_size=size)

    def peek(self, row: Row, window: Window | None) -> Peek:
        """Read the file; the window does not matter, since all bytes are sent."""
        del window
        image = self._load(row)
        return Peek(height=image.height, width=image.width, nbytes=len(image.encoded))

    def verify(self, row: Row) -> None:
        """Decode the whole image with Pillow, and check the entropy-coded data of a JPEG."""
        self._load(row, decode=True, check=True)

    def blank(self, height: int, width: int) -> Sample:
        """Return a grey JPEG."""
        return _sample(_grey(height, width), 0, 0, height, width)

    def _load(self, row: Row, *, decode: bool = False, check: bool = False) -> EncodedImage:
        image = load(row.place, self.channels, row=row.number, decode=decode, check=check)
        if self.stored is not None and image.bits != _BITS[self.stored]:
            expected = f"expected {_BITS[self.stored]} for values of type {self.stored}"
            reason = f"{image.bits} bits per sample, {expected}"
            raise ReadError(row.name, reason, row=row.number)
        return image


def _read_rows(row: Row, packed: bytes, window: Window) -> Sample:
    """Read the rows of MCUs that hold the window; `JpegReader.read` ignores the errors."""
    rows = McuRows.unpack(packed)
    with row.place as place:
        header_bytes = place.read(0, rows.header_nbytes)
        if not rows.is_of(header_bytes, place.nbytes):
            raise NoRowsError("the file is another one")
        header = JpegHeader.parse(header_bytes)
        header_bytes, orientation = with_orientation(header_bytes, header.exif)
        turn = _TURNS.get(orientation, _Turn())
        height, width = (header.height, header.width)[:: -1 if turn.transposed else 1]
        shape = height, width
        window = window.within(*shape)
        anchor = np.array(window.place(*shape), np.int32)
        axis = 1 if turn.transposed else 0
        extent = (window.height, window.width)[axis]
        start = int(anchor[axis])
        if turn.reversed:
            start = header.height - start - extent
        # One more row on each side: subsampled colours are interpolated from neighbouring pixels.
        first = max(0, start // header.mcu_height - 1)
        last = min(header.num_rows - 1, (start + extent - 1) // header.mcu_height + 1)
        begin, end = rows.byte_range(first, last)
        coded = place.read(begin, end)
    rows.check(first, last, coded)
    cut = cut_rows(header_bytes, header, rows, coded, first, last)
    start += cut.above - first * header.mcu_height
    anchor[axis] = cut.height - start - extent if turn.reversed else start
    y, x = anchor.tolist()
    sample = _sample(cut.encoded, y, x, window.height, window.width)
    return Sample(sample.arrays, len(header_bytes) + len(coded), shape)


class _Turn(NamedTuple):
    """The display of stored rows, by EXIF orientation."""

    transposed: bool = False
    """Stored rows are displayed as columns."""
    reversed: bool = False
    """The last stored row is displayed first."""


_TURNS = {
    **dict.fromkeys((3, 4), _Turn(reversed=True)),
    **dict.fromkeys((5, 8), _Turn(transposed=True)),
    **dict.fromkeys((6, 7), _Turn(transposed=True, reversed=True)),
}


def _sample(
    encoded: bytes, y: int, x: int, height: int, width: int, *, deep: bool = False
) -> Sample:
    arrays: dict[str, NDArray[Any]] = {
        "encoded": np.frombuffer(encoded, np.uint8),
        "anchor": np.array((y, x), np.int32),
        "shape": np.array((height, width), np.int32),
        "deep": np.array(deep),
    }
    return Sample(arrays, len(encoded))


@lru_cache(maxsize=4)
def _grey(height: int, width: int) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (width, height), (128, 128, 128)).save(stream, "JPEG")
    return stream.getvalue()


class EncodedImage(NamedTuple):
    """An encoded image that DALI can decode."""

    encoded: bytes
    """The bytes to send."""
    format: str
    """One of `FORMATS`."""
    height: int
    """As displayed, in pixels."""
    width: int
    bits: int
    """Bits per sample, 8 or 16."""


def load(
    place: Place,
    channels: int,
    *,
    row: int | None = None,
    decode: bool = False,
    check: bool = False,
) -> EncodedImage:
    """Read and check a file, or raise ReadError.

    With `decode`, Pillow decodes it even if its structure is complete; with `check`, the
    entropy-coded data of a JPEG are checked.
    """
    try:
        with place:
            encoded = place.read(0, place.nbytes)
        # Pillow warns of odd EXIF data and the like; real errors are exceptions.
        with without_warnings:
            return _inspect(encoded, channels, decode=decode, check=check)
    except Exception as error:
        # Pillow's parsers raise many types on malformed input (SyntaxError, struct.error, ...).
        reason = str(error).replace(f": {place.name!r}", "")
        if isinstance(error, DamagedError):
            reason = f"the file is damaged: {reason}"
        elif not isinstance(error, OSError):
            reason = f"not a readable image: {reason}"
        raise ReadError(place.name, reason, row=row) from error


def _inspect(encoded: bytes, channels: int, *, decode: bool, check: bool) -> EncodedImage:
    if not encoded:
        raise OSError("the file is empty")
    structure = structure_of(encoded)
    encoded, orientation = with_orientation(encoded, structure.exif)
    encoded = without_hints(encoded, structure)
    try:
        with Image.open(io.BytesIO(encoded)) as image:
            # MPO: several JPEGs in one file; the first is decoded.
            kind = "JPEG" if image.format == "MPO" else str(image.format)
            if kind not in FORMATS:
                known = ", ".join(FORMATS)
                raise OSError(f"format {kind} is not decoded, expected one of {known}")
            bits = sample_bits(encoded, image, channels)
            width, height = image.size  # Pillow applies the orientation of a TIFF itself
            if decode or not structure.complete:
                image.load()
            if check and kind == "JPEG":
                check_entropy(encoded)
    except UnidentifiedImageError:
        raise OSError(unidentified(encoded, FORMATS)) from None
    if orientation in (5, 6, 7, 8):
        width, height = height, width
    return EncodedImage(encoded, kind, height, width, bits)
