"""EXIF orientation, made the same for us and for DALI.

DALI 2.4 and Pillow read EXIF data differently: Pillow takes an orientation from XMP where EXIF has
none, DALI ignores the data type, drops all where one tag is broken, and crashes where two EXIF
segments disagree. Windows would lie elsewhere than where they were placed. So each EXIF block
travels to the graph as one that holds nothing but the orientation that was found here.
"""

from __future__ import annotations

import struct
import zlib

from PIL import Image

from readers.jpeg.structure import Structure

_ORIENTATION = 0x0112
_PNG = b"\x89PNG"
_BLOCK = struct.Struct("<2sHIHHHIHH")
"""TIFF's form of EXIF data: byte order, 42, where the tags begin, their number; then the one tag,
with its type (SHORT), count, value and fill. What follows is zero: no more tags."""


def with_orientation(data: bytes, structure: Structure) -> tuple[bytes, int]:
    """Return an encoded image with plain EXIF data, and its orientation from 1 to 8.

    Parameters
    ----------
    data : bytes
        The file, or its beginning.
    structure : Structure
        Of `data`.
    """
    large_enough = [place for place in structure.exif if place.stop - place.start >= _BLOCK.size]
    if not large_enough:
        return data, 1
    # As Pillow does: where there are several, they are parts of one.
    orientation = _orientation(b"".join(data[place] for place in structure.exif))
    block = _BLOCK.pack(b"II", 42, 8, 1, _ORIENTATION, 3, 1, orientation, 0)
    changed = bytearray(data)
    for place in large_enough:
        changed[place] = block.ljust(place.stop - place.start, b"\0")
        if data.startswith(_PNG):
            checksum = zlib.crc32(memoryview(changed)[place.start - 4 : place.stop])
            struct.pack_into(">I", changed, place.stop, checksum)
    return bytes(changed), orientation


def _orientation(block: bytes) -> int:
    tags = Image.Exif()
    try:
        # Not Image.getexif(), which asks XMP as well.
        tags.load(block)
        found = tags.get(_ORIENTATION, 1)
    except Exception:  # Pillow's parser raises many types on broken blocks
        return 1
    return int(found) if found in range(1, 9) else 1
