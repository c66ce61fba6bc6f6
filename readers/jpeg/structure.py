"""Walk the outer structure of JPEG, PNG and WebP files, for damage and for EXIF data.

Nothing is decoded. In a JPEG, entropy-coded bytes that were overwritten contain by chance what
looks like a marker, at which libjpeg stops and leaves the rest of the image grey. A PNG has a
checksum in each chunk.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_JPEG, _PNG, _WEBP = b"\xff\xd8", b"\x89PNG\r\n\x1a\n", b"RIFF"
_EXIF = b"Exif\0\0"

_EOI, _SOS, _DRI, _APP1 = 0xD9, 0xDA, 0xDD, 0xE1
_WITHOUT_LENGTH = frozenset((0x00, 0x01, *range(0xD0, 0xD9)))
_BEHIND_A_SCAN = frozenset((0xC4, 0xCC, _SOS, 0xDB, 0xDC, _DRI, *range(0xE0, 0xF0), 0xFE))
"""Markers of segments that may come between the scans of a JPEG: DHT, DAC, SOS, DQT, DNL, DRI,
APPn, COM."""

_HINTS = frozenset((b"gAMA", b"sRGB", b"iCCP", b"acTL"))
"""PNG chunks by which DALI decodes other pixels than are stored: by a gamma it makes colours linear
before it adds them up to gray, and of an animation it takes the first frame, which need not be the
image."""
_NO_HINT = b"skIP"
"""A name of no chunk, which decoders skip."""


class DamagedError(ValueError):
    """The file cannot be as it was written."""


@dataclass(frozen=True, slots=True)
class Structure:
    """What was found in a file."""

    exif: tuple[slice, ...] = ()
    """Bytes of its EXIF blocks, in TIFF's form, without the name in front of them."""
    hints: tuple[slice, ...] = ()
    """Bytes of PNG chunks, from the name to the last before the checksum, that tell how to show the
    image and have no place where its values are asked for."""
    complete: bool = False
    """Whether the end of the image was found. Always False where a format has no checks at all:
    then only decoding can tell."""


def structure_of(data: bytes) -> Structure:
    """Walk through an encoded image, or the beginning of one.

    Parameters
    ----------
    data : bytes
        The file. Of a format other than JPEG, PNG and WebP nothing is found.

    Raises
    ------
    DamagedError
        If the markers of a JPEG do not follow each other as they must, or a checksum of a PNG is
        wrong.
    """
    if data.startswith(_JPEG):
        return _jpeg(data)
    if data.startswith(_PNG):
        return _png(data)
    if data.startswith(_WEBP):
        return _webp(data)
    return Structure()


def _jpeg(data: bytes) -> Structure:
    exif: list[slice] = []
    marks: _Marks | None = None
    interval, at = 0, len(_JPEG)
    while True:
        found = data.find(b"\xff", at)
        if found < 0:
            return Structure(tuple(exif))
        if marks is not None and found != at:
            raise DamagedError(f"a JPEG marker was expected at byte {at}")
        at = found
        while data[at : at + 1] == b"\xff":  # a marker may have fill bytes in front
            at += 1
        marker = data[at] if at < len(data) else 0
        if marker == _EOI:
            return Structure(tuple(exif), complete=True)
        if marks is not None and marker not in _BEHIND_A_SCAN:
            raise DamagedError(f"the JPEG marker {marker:#04x} at byte {at} has no place there")
        if marker in _WITHOUT_LENGTH:
            continue
        if at + 3 > len(data):
            return Structure(tuple(exif))
        (length,) = struct.unpack_from(">H", data, at + 1)
        content, at = at + 3, at + 1 + length
        if at > len(data) and marks is None:
            return Structure(tuple(exif))
        if at > len(data):
            raise DamagedError(f"the JPEG segment at byte {content} ends behind the file's end")
        if marker == _APP1 and data.startswith(_EXIF, content, at):
            exif.append(slice(content + len(_EXIF), at))
        elif marker == _DRI and length == 4:
            (interval,) = struct.unpack_from(">H", data, content)
        elif marker == _SOS:
            if length != 6 + 2 * data[content]:
                raise DamagedError(f"the JPEG's scan at byte {content} has no proper header")
            marks = marks or _Marks(data, at)
            at = marks.end_of_scan(at, restarts=interval > 0)


def without_hints(data: bytes, structure: Structure) -> bytes:
    """Return a PNG image whose pixels are decoded as they are stored.

    Parameters
    ----------
    data : bytes
        The file.
    structure : Structure
        Of `data`.
    """
    if not structure.hints:
        return data
    changed = bytearray(data)
    for place in structure.hints:
        changed[place.start : place.start + 4] = _NO_HINT
        struct.pack_into(">I", changed, place.stop, zlib.crc32(memoryview(changed)[place]))
    return bytes(changed)


class _Marks:
    """Markers behind the beginning of the first scan of a JPEG."""

    def __init__(self, data: bytes, start: int) -> None:
        array = np.frombuffer(data, np.uint8)
        places = np.flatnonzero(array[start:-1] == 0xFF) + start
        codes = array[places + 1]
        is_mark = (codes != 0) & (codes != 0xFF)  # else a byte of the scan, or fill
        self._places: NDArray[np.int64] = places[is_mark]
        self._codes: NDArray[np.uint8] = codes[is_mark]
        self._others = np.flatnonzero((self._codes & 0xF8) != 0xD0)
        """Which of them are no restart markers."""
        self._size = len(data)

    def end_of_scan(self, start: int, *, restarts: bool) -> int:
        """Return the byte at which the first marker behind a scan stands, or the file's size."""
        first = int(np.searchsorted(self._places, start))
        place = int(np.searchsorted(self._others, first))
        last = int(self._others[place]) if place < len(self._others) else len(self._places)
        found = self._codes[first:last]
        expected = 0xD0 + np.arange(len(found)) % 8
        if not restarts and len(found):
            raise DamagedError(f"a restart marker at byte {self._places[first]}, of none in use")
        if (wrong := np.flatnonzero(found != expected)).size:
            byte = self._places[first + wrong[0]]
            raise DamagedError(f"the restart marker at byte {byte} is out of order")
        return int(self._places[last]) if last < len(self._places) else self._size


def _png(data: bytes) -> Structure:
    exif: list[slice] = []
    hints: list[slice] = []
    view, at = memoryview(data), len(_PNG)
    while at + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        end = at + 12 + length
        if end > len(data):
            break
        (checksum,) = struct.unpack_from(">I", data, end - 4)
        # Chunks whose name begins with a small letter do not matter to the pixels.
        matters = kind[:1].isupper() or kind == b"eXIf"
        if matters and zlib.crc32(view[at + 4 : end - 4]) != checksum:
            raise DamagedError(f"the checksum of the PNG chunk {kind!r} at byte {at} is wrong")
        if kind == b"eXIf":
            exif.append(slice(at + 8, end - 4))
        if kind in _HINTS:
            hints.append(slice(at + 4, end - 4))
        if kind == b"IEND":
            return Structure(tuple(exif), tuple(hints), complete=True)
        at = end
    raise DamagedError(f"the file ends within the PNG chunk at byte {at}: it is truncated")


def _webp(data: bytes) -> Structure:
    exif: list[slice] = []
    at = 12
    while at + 8 <= len(data):
        kind, length = struct.unpack_from("<4sI", data, at)
        end = at + 8 + length
        if kind == b"EXIF" and end <= len(data):
            exif.append(slice(at + 8, end))
        at = end + length % 2
    return Structure(tuple(exif))
