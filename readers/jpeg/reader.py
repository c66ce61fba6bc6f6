"""JPEG reader, also for PNG and all other formats that Pillow reads.

Headers of usual JPEG and PNG files are parsed here for size and orientation, so a window can be
placed before decoding. The reader sends the encoded bytes, and the graph decodes them. All other
files are decoded by Pillow, because DALI decodes some of them to wrong values. The pixels of the
window are sent (`readers.jpeg.by_pillow`). Colours of more than 8 bits are an exception: Pillow
cuts them to 8 bits, so they are left to the graph (`readers.jpeg.sample_format`).

Files that Pillow cannot decode are rejected: one bad file makes DALI's decoder fail a whole batch,
and DALI fills windows of truncated files without a message. Files with a damaged structure are also
rejected (`readers.jpeg.structure`).

Of a sequential JPEG only the part that a window needs is sent, see `readers.jpeg.mcu.cut`. If the
Index has the positions of its MCU rows, only this part is read.
"""

from __future__ import annotations

import io
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from readers.contract import Peek, Row, Sample, SampleSpec
from readers.errors import ReadError, reason_of
from readers.jpeg.by_pillow import displayed, pnm
from readers.jpeg.entropy import check_entropy
from readers.jpeg.exif import with_exif_chunk, with_orientation
from readers.jpeg.header import JpegHeader, NoRowsError
from readers.jpeg.mcu.region import McuRegion, saves_time
from readers.jpeg.mcu.rows import ChangedRowsError, McuRows
from readers.jpeg.pixels import MAX_NBYTES, check_nbytes, check_pixels, of_any_size
from readers.jpeg.sample_format import check_parts, is_for_dali, stored_bits
from readers.jpeg.structure import DamagedError, UsualHeader, structure_of, without_hints
from readers.jpeg.turn import Box, Turn
from readers.messages import pipeline_hint
from readers.places.contract import Place
from readers.quiet import without_warnings
from readers.values import check_bool, is_integer
from readers.window import Window

_NOT_DECODED = {
    "EPS": "is a program, not an image: convert it, e.g. to PNG",
    "FITS": "is not for jpeg_pipeline",
}
"""Formats that Pillow opens but this package rejects, by Pillow's name, with the reason."""
_BITS = {"uint8": 8, "uint16": 16}
_PNM_HEADER_NBYTES = 32
"""Maximum size of a PNM header, in bytes."""
MODULES_TO_CUT = ("readers.jpeg.mcu.cut",)
"""Modules imported when the first window is cut out of a JPEG."""


@dataclass(frozen=True)
class JpegReader:
    """Reader of encoded images. The format is recognised by content, not by suffix.

    Parameters
    ----------
    channels : {3, 1}
        Decode to RGB or to gray.
    stored : {"uint8", "uint16"}, optional
        Only accept images of this depth. By default both depths are accepted.
    needed_by : str, optional
        What needs this depth, for the message; by default values of this type.
    check_entropy : bool
        Whether to check the entropy-coded data of each JPEG that is read whole, see
        `readers.jpeg.entropy.check_entropy`.

    Raises
    ------
    ValueError
        If an argument has an invalid value.
    """

    channels: int = 3
    stored: str | None = None
    check_entropy: bool = False
    needed_by: str | None = None

    specs: ClassVar[tuple[SampleSpec, ...]] = (
        SampleSpec(name="encoded", dtype="uint8", ndim=1),
        SampleSpec(name="anchor", dtype="int32", shape=(2,), unit="pixel"),
        SampleSpec(name="shape", dtype="int32", shape=(2,), unit="pixel"),
        SampleSpec(name="sent_shape", dtype="int32", shape=(2,), unit="pixel"),
        SampleSpec(name="deep", dtype="bool", shape=()),
        SampleSpec(name="colour_png", dtype="bool", shape=()),
    )
    """``encoded``: an encoded image, the file or a part of it. ``anchor`` and ``shape``: (y, x) and
    (height, width) of the window in this image as displayed. ``sent_shape``: (height, width) of
    this image. ``deep``: whether samples have 16 bits instead of 8. ``colour_png``: whether this
    image is a PNG with 8-bit colours."""
    regions: ClassVar[bool] = True
    """The Reader reads the pixels of `Window.within`."""
    notes: ClassVar[tuple[str, ...]] = ("mcu_rows",)
    """Optional column of the Index."""

    def __post_init__(self) -> None:
        if not is_integer(self.channels) or self.channels not in (1, 3):
            raise ValueError(f"channels must be 3 (RGB) or 1 (gray), got {self.channels!r}")
        check_bool("check_entropy", self.check_entropy)
        if self.stored not in (None, *_BITS):
            raise ValueError(f"stored must be one of {tuple(_BITS)} or None, got {self.stored!r}")

    def read(self, row: Row, window: Window | None) -> Sample:
        """Read the file, or only the MCU rows that the window needs."""
        check = self.check_entropy
        packed = row.notes.get("mcu_rows", b"")
        if not isinstance(packed, bytes):
            kind = type(packed).__name__
            raise ReadError(
                row.name, f"column 'mcu_rows' must hold bytes, got {kind}", row=row.number
            )
        if window is not None and packed and self.stored != "uint16":
            try:
                return _read_rows(row, packed, window)
            except ChangedRowsError:  # the file was replaced or damaged
                check = True
            except Exception:  # reading the whole file finds the reason
                pass
        image = self._load(row, check=check)
        size = image.height, image.width
        part, box = image, (0, 0, *size)
        if window is not None:
            try:
                window = window.within(*size)
                y, x = window.place(*size)
            except ValueError as error:
                raise ReadError(row.name, str(error), row=row.number) from error
            part, box = _cut_out(image, (y, x, window.height, window.width))
        if part.pixels is not None and part.pixels.nbytes > MAX_NBYTES - _PNM_HEADER_NBYTES:
            reason = f"its pixels have {part.pixels.nbytes} bytes, the limit is {MAX_NBYTES}"
            raise ReadError(row.name, f"{reason}: set a crop", row=row.number)
        return _sample(part, box, size, len(image.encoded))

    def peek(self, row: Row, window: Window | None) -> Peek:
        """Read the file. A window needs up to all of its bytes, or pixels decoded by Pillow."""
        image = self._load(row)
        nbytes, is_cut = len(image.encoded), window is not None and image.format == "JPEG"
        if image.pixels is not None:
            part = image.pixels
            if window is not None:
                with suppress(ValueError):  # `read` rejects windows that are too large
                    needed = window.within(*part.shape[:2])
                    part = part[: needed.height, : needed.width]
            nbytes, is_cut = len(pnm(part)), False
        return Peek(
            height=image.height,
            width=image.width,
            nbytes=nbytes,
            modules=MODULES_TO_CUT if is_cut else (),
            decoder_nbytes=0 if window is None else _whole_nbytes(image),
        )

    def verify(self, row: Row) -> None:
        """Decode the whole image with Pillow, and check the entropy-coded data of a JPEG."""
        self._load(row, decode=True, check=True)

    def blank(self, height: int, width: int) -> Sample:
        """Return a black PNG."""
        image = EncodedImage(_black(height, width), "PNG", height, width, bits=8)
        return _sample(image, (0, 0, height, width), None, len(image.encoded))

    def _load(self, row: Row, *, decode: bool = False, check: bool = False) -> EncodedImage:
        image = load(row.place, self.channels, row=row.number, decode=decode, check=check)
        if self.stored is not None and image.bits != (bits := _BITS[self.stored]):
            needed_by = self.needed_by or f"values of type {self.stored}"
            reason = f"{image.bits} bits per sample, expected {bits} for {needed_by}"
            raise ReadError(row.name, reason, row=row.number)
        return image


def _whole_nbytes(image: EncodedImage) -> int:
    """Return the bytes of the pixels if DALI must decode the whole image for a window; else 0."""
    if image.pixels is not None:
        return 0
    if image.format == "JPEG":
        with suppress(NoRowsError):
            JpegHeader.parse(image.encoded)
            return 0
    return 3 * image.height * image.width * image.bits // 8  # RGB, also for gray


def _read_rows(row: Row, packed: bytes, window: Window) -> Sample:
    """Read the MCU rows that contain the window; `JpegReader.read` handles the errors."""
    rows = McuRows.unpack(packed)
    with row.place as place:
        header_bytes = place.read(0, rows.header_nbytes)
        if not rows.is_of(header_bytes, place.nbytes):
            raise NoRowsError("the file has changed since its rows were recorded")
        header = JpegHeader.parse(header_bytes)
        check_pixels("JPEG", header.height, header.width)
        header_bytes, orientation = with_orientation(header_bytes, header.exif)
        turn, stored = Turn.of(orientation), (header.height, header.width)
        shape = stored[::-1] if turn.transposed else stored
        window = window.within(*shape)
        box = turn.stored((*window.place(*shape), window.height, window.width), *stored)
        region = McuRegion.around(header, *box).without_columns(header)
        first, last = region.top, region.top + region.rows - 1
        begin, end = rows.byte_range(first, last)
        coded = place.read(begin, end)
    rows.check(first, last, coded)
    from readers.jpeg.mcu.cut import cut_rows

    encoded = cut_rows(header_bytes, header, region, rows, coded)
    image, box = _cut_image(encoded, header, region, box, orientation)
    return _sample(image, box, shape, len(header_bytes) + len(coded))


def _cut_out(image: EncodedImage, box: Box) -> tuple[EncodedImage, Box]:
    """Return the part of an image that a box needs, and the box in this part."""
    if image.pixels is not None:
        y, x, rows, columns = box
        pixels = image.pixels[y : y + rows, x : x + columns]
        part = image._replace(pixels=pixels, height=rows, width=columns)
        return part, (0, 0, rows, columns)
    turn = Turn.of(image.orientation)
    size = (image.width, image.height) if turn.transposed else (image.height, image.width)
    stored = turn.stored(box, *size)
    if image.format != "JPEG" or not saves_time(stored, *size):
        return image, box
    try:
        header = JpegHeader.parse(image.encoded)
        region = McuRegion.around(header, *stored)
        from readers.jpeg.mcu.cut import cut_file

        encoded = cut_file(image.encoded, header, region)
    except NoRowsError:  # another coding, or damaged
        return image, box
    return _cut_image(encoded, header, region, stored, image.orientation)


def _cut_image(
    encoded: bytes, header: JpegHeader, region: McuRegion, box: Box, orientation: int
) -> tuple[EncodedImage, Box]:
    """Return a region of a JPEG as an image, and a box in this image as displayed.

    `box` is in the stored image of the whole JPEG.
    """
    y, x, rows, columns = box
    y, x = y - region.top * header.mcu_height, x - region.left * header.mcu_width
    height, width = region.size(header)
    turn = Turn.of(orientation)
    shape = (width, height) if turn.transposed else (height, width)
    image = EncodedImage(encoded, "JPEG", *shape, 8, orientation)
    return image, turn.displayed((y, x, rows, columns), height, width)


def _sample(
    image: EncodedImage, box: Box, size: tuple[int, int] | None, input_bytes: int
) -> Sample:
    arrays: dict[str, NDArray[Any]] = {
        "encoded": np.frombuffer(image.encoded, np.uint8)
        if image.pixels is None
        else pnm(image.pixels),
        "anchor": np.array(box[:2], np.int32),
        "shape": np.array(box[2:], np.int32),
        "sent_shape": np.array((image.height, image.width), np.int32),
        "deep": np.array(image.bits == 16),
        "colour_png": np.array(image.is_colour_png),
    }
    return Sample(arrays, input_bytes, size)


@lru_cache(maxsize=4)
def _black(height: int, width: int) -> bytes:
    stream = io.BytesIO()
    Image.new("1", (width, height)).save(stream, "PNG")  # small, and of any size
    return stream.getvalue()


class EncodedImage(NamedTuple):
    """Image that was checked."""

    encoded: bytes
    """Bytes of the file, for DALI."""
    format: str
    """Pillow's name of the format."""
    height: int
    """Pixel rows as displayed."""
    width: int
    bits: int
    """Bits per sample, 8 or 16."""
    orientation: int = 1
    """EXIF orientation in the bytes, 1 to 8."""
    pixels: NDArray[Any] | None = None
    """Pixels as displayed, see `readers.jpeg.by_pillow.displayed`. They are sent in place of the
    bytes; None if DALI decodes the bytes."""

    @property
    def is_colour_png(self) -> bool:
        """Whether DALI decodes a PNG with 8-bit colours or a palette."""
        is_png = self.format == "PNG" and self.pixels is None
        return is_png and self.bits == 8 and self.encoded[25] & 2 != 0


def load(
    place: Place,
    channels: int,
    *,
    row: int | None = None,
    decode: bool = False,
    check: bool = False,
) -> EncodedImage:
    """Read and check a file, or raise ReadError.

    With `decode` Pillow always decodes the file. With `check` the entropy-coded data of a JPEG are
    checked.
    """
    try:
        with place:
            check_nbytes(place.nbytes)
            encoded = place.read(0, place.nbytes)
        return _inspect(encoded, channels, decode=decode, check=check)
    except Exception as error:
        # Pillow's parsers raise many types for malformed input (SyntaxError, struct.error, ...).
        reason = reason_of(error, place.name)
        if isinstance(error, DamagedError):
            reason = f"the file is damaged: {reason}"
        elif not isinstance(error, OSError):
            reason = f"not a readable image: {reason}"
        raise ReadError(place.name, reason, row=row) from error


def _inspect(encoded: bytes, channels: int, *, decode: bool, check: bool) -> EncodedImage:
    if not encoded:
        raise OSError("the file is empty")
    structure, orientation = structure_of(encoded), 1
    if structure.header is not None:
        check_pixels(*structure.header[:3])
    if structure.exif_in_text:
        with without_warnings:
            encoded = of_any_size(partial(with_exif_chunk, encoded))
        structure = structure_of(encoded)
    if structure.exif:
        encoded, orientation = with_orientation(encoded, structure.exif)
    encoded = without_hints(encoded, structure)
    header, pixels = structure.header, None
    if decode or header is None:
        by_pillow = partial(_by_pillow, encoded, header, channels, decode=decode)
        with without_warnings:  # about odd data
            header, pixels = of_any_size(by_pillow)
    if (check or structure.is_doubtful) and header.format == "JPEG":
        check_entropy(encoded)
    kind, height, width, bits = header
    if pixels is None and orientation in (5, 6, 7, 8):
        width, height = height, width
    return EncodedImage(encoded, kind, height, width, bits, orientation, pixels)


def _by_pillow(
    encoded: bytes, header: UsualHeader | None, channels: int, *, decode: bool
) -> tuple[UsualHeader, NDArray[Any] | None]:
    """Return the header of a file, and its pixels as displayed unless DALI decodes the file."""
    try:
        with Image.open(io.BytesIO(encoded)) as image:
            # MPO has several JPEGs; the first one is decoded.
            kind = "JPEG" if image.format == "MPO" else str(image.format)
            if kind in _NOT_DECODED:
                raise OSError(f"{kind} {_NOT_DECODED[kind]}{pipeline_hint(encoded, 'jpeg')}")
            check_pixels(kind, image.height, image.width)
            if header is not None:
                if decode:
                    image.load()
                return header, None
            if kind == "TIFF":
                check_parts(image.tag_v2)  # type: ignore[attr-defined]
            bits = stored_bits(encoded, image)
            pixels = displayed(image, channels, bits)
            height, width = pixels.shape[:2]
            if bits <= 8 * pixels.itemsize:
                return UsualHeader(kind, height, width, 8 * pixels.itemsize), pixels
            if is_for_dali(encoded, image):
                return UsualHeader(kind, height, width, 16), None
    except UnidentifiedImageError:
        raise OSError(_unidentified(encoded)) from None
    raise OSError(
        f"a {kind} of {bits} bits per sample is not decoded with these colours, planes or alpha: "
        "save it with 8 bits, or as PNG with 16 bits"
    )


def _unidentified(encoded: bytes) -> str:
    """Return the message for a file that Pillow cannot open."""
    begin, hint = f"it begins with {encoded[:8]!r}", pipeline_hint(encoded, "jpeg")
    first = encoded[:16].ljust(16, b"\0")
    for kind, (_, accepts) in Image.OPEN.items():
        # `accepts` returns a text if Pillow lacks the library for the format.
        if not hint and accepts is not None and accepts(first) is True:
            return (
                f"not decoded: {begin}, like {kind}, but it is damaged, or of a type that Pillow "
                "does not open, such as a 12-bit JPEG or a 64-bit TIFF: convert it"
            )
    return f"not an image: {begin}, expected a JPEG, PNG, TIFF or other format of Pillow{hint}"
