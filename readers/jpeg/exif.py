"""Rewrite the EXIF orientation so that DALI applies the same one as this package.

DALI 2.4 and Pillow read EXIF data differently. Pillow takes an orientation from XMP if EXIF has
none; DALI ignores the data type, drops all tags if one is broken, and crashes if two EXIF segments
disagree. Windows would be cut at the wrong position. So each EXIF block is replaced by one that
contains only the orientation found here.
"""

from __future__ import annotations

import io
import struct
import zlib

from PIL import Image

from readers.jpeg.turn import Turn
from readers.quiet import without_warnings

_ORIENTATION = 0x0112
"""Number of the tag in EXIF and TIFF."""
_PNG, _END_OF_IHDR = b"\x89PNG", 33
_BLOCK = struct.Struct("<2sHIHHHIHH")
"""EXIF data in TIFF format: byte order, 42, position and number of tags; then one tag with its type
(SHORT), count, value and padding. The zeros that follow mean that there are no more tags."""


def with_orientation(data: bytes, exif: tuple[slice, ...]) -> tuple[bytes, int]:
    """Return an image, or its beginning, with plain EXIF data, and its orientation, 1 to 8.

    `exif` has the positions of its EXIF blocks, in TIFF format, without the name before them.
    """
    large_enough = [span for span in exif if span.stop - span.start >= _BLOCK.size]
    if not large_enough:
        return data, 1
    # As in Pillow, several blocks are parts of one.
    orientation = _orientation(b"".join(data[span] for span in exif))
    block = _BLOCK.pack(b"II", 42, 8, 1, _ORIENTATION, 3, 1, orientation, 0)
    changed = bytearray(data)
    for span in large_enough:
        changed[span] = block.ljust(span.stop - span.start, b"\0")
        if data.startswith(_PNG):
            checksum = zlib.crc32(memoryview(changed)[span.start - 4 : span.stop])
            struct.pack_into(">I", changed, span.stop, checksum)
    return bytes(changed), orientation


def _orientation(block: bytes) -> int:
    tags = Image.Exif()
    try:
        with without_warnings:  # about broken tags: as errors they would hide the orientation
            # Not Image.getexif(), which would also read XMP.
            tags.load(block)
            found = tags.get(_ORIENTATION, 1)
    except Exception:  # Pillow's parser raises many types on broken blocks
        return 1
    return int(found) if found in range(1, 9) else 1


def with_exif_chunk(png: bytes) -> bytes:
    """Return a PNG with an EXIF chunk, made from the text in which ImageMagick stores EXIF data.

    Broken data are left out.
    """
    with Image.open(io.BytesIO(png)) as image:
        image.load()  # the text may follow the pixels
        lines = image.info.get("Raw profile type exif", "").split("\n")
    try:
        chunk = b"eXIf" + bytes.fromhex("".join(lines[3:]))  # after a name and the length
    except ValueError:
        return png
    length, checksum = struct.pack(">I", len(chunk) - 4), struct.pack(">I", zlib.crc32(chunk))
    return png[:_END_OF_IHDR] + length + chunk + checksum + png[_END_OF_IHDR:]


def forget_xmp(image: Image.Image) -> None:
    """Make Pillow take the orientation only from EXIF."""
    for name in ("xmp", "XML:com.adobe.xmp"):
        image.info.pop(name, None)


def turn_of(image: Image.Image) -> Turn:
    """Return the turn for display of an image that Pillow has decoded, only from its EXIF data.

    Pillow turns a TIFF itself while decoding it: call `forget_xmp` before.
    """
    forget_xmp(image)  # XMP may follow the pixels
    try:
        with without_warnings:
            return Turn.of(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # Pillow's parser raises many types on broken blocks
        return Turn()
