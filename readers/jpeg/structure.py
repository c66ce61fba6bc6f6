"""Parse the outer structure of JPEG, PNG and WebP files, to find damage and EXIF data.

Nothing is decoded. Overwritten entropy-coded bytes of a JPEG often look like a marker, at which
libjpeg stops and leaves the rest of the image grey. A PNG has a checksum in each chunk.
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
_AFTER_A_SCAN = frozenset((0xC4, 0xCC, _SOS, 0xDB, 0xDC, _DRI, *range(0xE0, 0xF0), 0xFE))
"""Markers of segments that are allowed between the scans of a JPEG: DHT, DAC, SOS, DQT, DNL, DRI,
APPn, COM."""

_HINTS = frozenset((b"gAMA", b"sRGB", b"iCCP", b"acTL"))
"""PNG chunks that make DALI decode other pixels than are stored: with a gamma it linearises colours
before it converts them to gray; of an animation it takes the first frame, which need not be the
image."""
_NO_HINT = b"skIP"
"""A chunk name that does not exist, so that decoders skip it."""


class DamagedError(ValueError):
    """The file is damaged."""


@dataclass(frozen=True, slots=True)
class Structure:
    """Segments and chunks found in a file."""

    exif: tuple[slice, ...] = ()
    """Bytes of its EXIF blocks, in TIFF format, without the name before them."""
    hints: tuple[slice, ...] = ()
    """Bytes of PNG chunks, from the name up to the checksum, that say how to display the image and
    must not change its values."""
    complete: bool = False
    """Whether the end of the image was found. Always False for formats without checks: only
    decoding finds damage there."""


def structure_of(data: bytes) -> Structure:
    """Return the structure of an encoded image, or of its beginning; empty for other formats.

    Raises
    ------
    DamagedError
        If the markers of a JPEG are in a wrong order, or a checksum of a PNG is wrong.
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
    markers: _ScanMarkers | None = None
    interval, at = 0, len(_JPEG)
    while True:
        found = data.find(b"\xff", at)
        if found < 0:
            return Structure(tuple(exif))
        if markers is not None and found != at:
            raise DamagedError(f"a JPEG marker was expected at byte {at}")
        at = found
        while data[at : at + 1] == b"\xff":  # fill bytes may precede a marker
            at += 1
        marker = data[at] if at < len(data) else 0
        if marker == _EOI:
            return Structure(tuple(exif), complete=True)
        if markers is not None and marker not in _AFTER_A_SCAN:
            raise DamagedError(f"the JPEG marker {marker:#04x} at byte {at} is not allowed there")
        if marker in _WITHOUT_LENGTH:
            continue
        if at + 3 > len(data):
            return Structure(tuple(exif))
        (length,) = struct.unpack_from(">H", data, at + 1)
        content, at = at + 3, at + 1 + length
        if at > len(data) and markers is None:
            return Structure(tuple(exif))
        if at > len(data):
            raise DamagedError(f"the JPEG segment at byte {content} ends after the file's end")
        if marker == _APP1 and data.startswith(_EXIF, content, at):
            exif.append(slice(content + len(_EXIF), at))
        elif marker == _DRI and length == 4:
            (interval,) = struct.unpack_from(">H", data, content)
        elif marker == _SOS:
            if length != 6 + 2 * data[content]:
                raise DamagedError(f"the JPEG's scan at byte {content} has no valid header")
            markers = markers or _ScanMarkers(data, at)
            at = markers.end_of_scan(at, restarts=interval > 0)


def without_hints(data: bytes, structure: Structure) -> bytes:
    """Return a PNG image whose pixels are decoded as they are stored."""
    if not structure.hints:
        return data
    changed = bytearray(data)
    for span in structure.hints:
        changed[span.start : span.start + 4] = _NO_HINT
        struct.pack_into(">I", changed, span.stop, zlib.crc32(memoryview(changed)[span]))
    return bytes(changed)


class _ScanMarkers:
    """Markers from the beginning of the first scan of a JPEG on."""

    def __init__(self, data: bytes, start: int) -> None:
        array = np.frombuffer(data, np.uint8)
        positions = np.flatnonzero(array[start:-1] == 0xFF) + start
        codes = array[positions + 1]
        is_marker = (codes != 0) & (codes != 0xFF)  # else a byte of the scan, or fill
        self._positions: NDArray[np.int64] = positions[is_marker]
        self._codes: NDArray[np.uint8] = codes[is_marker]
        self._others = np.flatnonzero((self._codes & 0xF8) != 0xD0)
        """Indices of those that are not restart markers."""
        self._file_bytes = len(data)

    def end_of_scan(self, start: int, *, restarts: bool) -> int:
        """Return the position of the first marker after a scan, or the end of the file."""
        first = int(np.searchsorted(self._positions, start))
        after = int(np.searchsorted(self._others, first))
        last = int(self._others[after]) if after < len(self._others) else len(self._positions)
        found = self._codes[first:last]
        expected = 0xD0 + np.arange(len(found)) % 8
        if not restarts and len(found):
            byte = self._positions[first]
            raise DamagedError(f"a restart marker at byte {byte}, but the scan has no restarts")
        if (wrong := np.flatnonzero(found != expected)).size:
            byte = self._positions[first + wrong[0]]
            raise DamagedError(f"the restart marker at byte {byte} is out of order")
        return int(self._positions[last]) if last < len(self._positions) else self._file_bytes


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
        # Chunks whose name begins in lower case do not affect the pixels.
        is_needed = kind[:1].isupper() or kind == b"eXIf"
        if is_needed and zlib.crc32(view[at + 4 : end - 4]) != checksum:
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
