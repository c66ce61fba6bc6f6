"""Rewrite the EXIF orientation so that DALI and this package apply the same one.

DALI 2.4 and Pillow read EXIF data differently. Pillow uses XMP if EXIF has no orientation. DALI
ignores the data type, drops all tags if one is broken, and crashes if two EXIF segments disagree.
Windows would then be cut at the wrong position. So each EXIF block is replaced by a block with only
the orientation that is found here.
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
"""EXIF data in TIFF format: byte order, 42, position and number of tags; then one tag: number, type
(SHORT), count, value and padding. Zeros after it mean that no more tags follow."""


def with_orientation(data: bytes, exif: tuple[slice, ...]) -> tuple[bytes, int]:
    """Return an image with plain EXIF data, and its orientation, 1 to 8.

    `data` may be only the beginning of the image. `exif` has the positions of EXIF blocks, without
    the name before them.
    """
    large_enough = [span for span in exif if span.stop - span.start >= _BLOCK.size]
    if not large_enough:
        return data, 1
    # As in Pillow, several blocks are joined.
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
        with without_warnings:  # about broken tags
            # Image.getexif() would also read XMP.
            tags.load(block)
            found = tags.get(_ORIENTATION, 1)
    except Exception:  # Pillow's parser raises many types on broken blocks
        return 1
    return int(found) if found in range(1, 9) else 1


def with_exif_chunk(png: bytes) -> bytes:
    """Return a PNG with an EXIF chunk, made from a text chunk of ImageMagick with EXIF data.

    Broken data are left out.
    """
    with Image.open(io.BytesIO(png)) as image:
        image.load()  # the text may follow the pixels
        lines = image.info.get("Raw profile type exif", "").split("\n")
    try:
        chunk = b"eXIf" + bytes.fromhex("".join(lines[3:]))  # skip name and length
    except ValueError:
        return png
    length, checksum = struct.pack(">I", len(chunk) - 4), struct.pack(">I", zlib.crc32(chunk))
    return png[:_END_OF_IHDR] + length + chunk + checksum + png[_END_OF_IHDR:]


def forget_xmp(image: Image.Image) -> None:
    """Make Pillow ignore orientations in XMP."""
    for name in ("xmp", "XML:com.adobe.xmp"):
        image.info.pop(name, None)


def turn_of(image: Image.Image) -> Turn:
    """Return the turn for display of an image that Pillow has decoded, only by its EXIF data.

    Pillow turns a TIFF itself while decoding it: call `forget_xmp` before.
    """
    forget_xmp(image)  # XMP may follow the pixels
    try:
        with without_warnings:
            return Turn.of(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # Pillow's parser raises many types on broken blocks
        return Turn()
