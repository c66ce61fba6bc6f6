"""Parse the outer structure of JPEG and PNG files, to find damage, EXIF data and the size.

Nothing is decoded. Overwritten entropy-coded bytes of a JPEG often look like a marker: libjpeg
stops there and leaves the rest of the image grey. Each chunk of a PNG has a checksum.

libjpeg (and so Pillow and browsers) skips bytes between the segments of a JPEG. DALI 2.4 fails on
such bytes, so they are not sent.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from isal import isal_zlib

_JPEG, _PNG = b"\xff\xd8", b"\x89PNG\r\n\x1a\n"
_EXIF = b"Exif\0\0"
_ADOBE, _ADOBE_NBYTES = b"Adobe", 12
_BLOCKS_OF_MCU, _LARGEST_FACTOR = 10, 4
"""Maximum number of blocks of an MCU in an interleaved scan, and largest sampling factor (ITU-T
T.81, B.2.2 and B.2.3)."""

_EOI, _SOS, _DQT, _DRI, _APP1, _APP14 = 0xD9, 0xDA, 0xDB, 0xDD, 0xE1, 0xEE
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_USUAL_FRAMES = frozenset((0xC0, 0xC1, 0xC2))
"""Baseline, sequential and progressive with Huffman codes (ITU-T T.81, table B.1)."""
_SEQUENTIAL = frozenset((0xC0, 0xC1))
_PNG_BITS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
"""Bits per sample by colour type (PNG, table 11.1)."""
_WITHOUT_LENGTH = frozenset((0x01, 0xD8))
_MARKER = re.compile(rb"\xff[^\0\xd0-\xd7\xff]")
"""Pattern of the next marker between segments. Like libjpeg it skips all else, also stuffed zeros,
restart markers and fill bytes."""
_SKIPPED = frozenset((0xDC, *range(0xE0, 0xF0), 0xFE))
"""Markers of segments whose length libjpeg does not check: DNL, APPn, COM."""
_AFTER_A_SCAN = frozenset((0xC4, 0xCC, _SOS, 0xDB, 0xDC, _DRI, *range(0xE0, 0xF0), 0xFE))
"""Markers that are allowed between the scans of a JPEG: DHT, DAC, SOS, DQT, DNL, DRI, APPn, COM."""

_HINTS = frozenset((b"gAMA", b"sRGB", b"iCCP", b"acTL"))
"""PNG chunks with which DALI does not decode the stored pixels: it linearises colours by the gamma
before the conversion to gray, and takes the first frame of an animation in place of the image."""
_TEXTS, _EXIF_IN_TEXT = frozenset((b"tEXt", b"zTXt", b"iTXt")), b"Raw profile type exif\0"
"""PNG text chunks, and the start of a text of ImageMagick with EXIF data."""
_NO_HINT = b"skIP"
"""Unknown chunk name, so that decoders skip the chunk."""


class DamagedError(ValueError):
    """The file is damaged."""


class UsualHeader(NamedTuple):
    """Header of an image that all decoders read in the same way."""

    format: str
    """Pillow's name of the format."""
    height: int
    """Pixel rows as stored."""
    width: int
    bits: int
    """Bits per decoded sample, 8 or 16."""


@dataclass(frozen=True, slots=True)
class Structure:
    """Segments and chunks found in a file."""

    exif: tuple[slice, ...] = ()
    """Positions of the EXIF blocks, without the name before them."""
    hints: tuple[slice, ...] = ()
    """Positions of PNG chunks with hints for display, from the name to the checksum. The hints must
    not change the values."""
    junk: tuple[slice, ...] = ()
    """Positions of bytes between the segments of a JPEG, and of segments shorter than their own
    length field."""
    header: UsualHeader | None = None
    """Size and depth; None if the image is incomplete, or if Pillow must examine it."""
    exif_in_text: bool = False
    """Whether a usual PNG has EXIF data in a text and no EXIF chunk."""
    is_doubtful: bool = False
    """Whether junk follows a scan. The junk may be the rest of the scan, after a damaged byte that
    looks like a marker. Only decoding can tell."""


def structure_of(data: bytes) -> Structure:
    """Return the structure of an encoded image or of its beginning; empty for other formats.

    DamagedError if the markers of a JPEG are in a wrong order, or a checksum of a PNG is wrong.
    """
    if data.startswith(_JPEG):
        return _jpeg(data)
    if data.startswith(_PNG):
        return _png(data)
    return Structure()


def _jpeg(data: bytes) -> Structure:
    exif: list[slice] = []
    junk: list[slice] = []
    frame: _Frame | None = None
    markers: _ScanMarkers | None = None
    is_usual, interval, at, end = True, 0, len(_JPEG), len(data)
    if not data.startswith(b"\xff", at):  # not a JPEG for Pillow or DALI
        raise DamagedError(f"a JPEG marker was expected at byte {at}")
    adobe = in_one_scan = is_last = is_doubtful = False
    while found := _MARKER.search(data, at):
        begin, behind, at = found.start(), at, found.start() + 1
        if data[behind:begin].strip(b"\xff"):
            junk.append(slice(behind, begin))
            is_doubtful |= markers is not None
        marker = data[at]
        if marker == _EOI:
            is_usual &= markers is not None and (adobe or frame is None or len(frame.ids) != 4)
            is_usual &= not is_doubtful
            header = frame.header if frame is not None and is_usual else None
            return Structure(
                tuple(exif),
                junk=tuple(junk),
                header=header,
                is_doubtful=is_doubtful,
            )
        is_usual &= marker in _AFTER_A_SCAN or marker in _USUAL_FRAMES
        if marker in _WITHOUT_LENGTH or not (markers is None or marker in _AFTER_A_SCAN):
            raise DamagedError(f"the JPEG marker {marker:#04x} at byte {at} is not allowed there")
        if at + 3 > end:
            break
        length = data[at + 1] << 8 | data[at + 2]
        content, at = at + 3, at + 1 + max(2, length)
        if length < 2 and marker not in _SKIPPED:
            raise DamagedError(f"the JPEG segment at byte {content} has a length of {length}")
        if length < 2:
            junk.append(slice(begin, at))
            is_doubtful |= markers is not None
        if at > end and markers is None:
            break
        if at > end:
            raise DamagedError(f"the JPEG segment at byte {content} ends after the file's end")
        if marker == _APP1 and data.startswith(_EXIF, content, at):
            exif.append(slice(content + len(_EXIF), at))
        elif marker == _DRI and length == 4:
            (interval,) = struct.unpack_from(">H", data, content)
        elif marker == _DQT:
            is_usual &= (length - 2) % 65 == 0 and max(data[content:at:65], default=4) < 4
        elif marker == _APP14:
            adobe |= data.startswith(_ADOBE, content) and length >= 2 + _ADOBE_NBYTES
        elif marker in _FRAMES:
            is_usual &= frame is None and markers is None
            frame = _frame(data[content:at])
            is_usual &= frame is not None
            in_one_scan = marker in _SEQUENTIAL
        elif marker == _SOS:
            if length != 6 + 2 * data[content]:
                raise DamagedError(f"the JPEG's scan at byte {content} has no valid header")
            if is_last:
                raise DamagedError(f"the scan at byte {content} repeats colours that are complete")
            ids = data[content + 1 : content + 1 + 2 * data[content] : 2]
            is_last = in_one_scan and frame is not None and len(ids) == len(frame.ids)
            is_usual &= frame is not None and ids in frame.ids
            markers = markers or _ScanMarkers(data, at)
            at = markers.end_of_scan(at, restarts=interval > 0)
    return Structure(tuple(exif))


class _Frame(NamedTuple):
    """Frame of a JPEG (ITU-T T.81, B.2.2)."""

    header: UsualHeader
    ids: bytes
    """Numbers of the components."""


def _frame(segment: bytes) -> _Frame | None:
    """Parse the frame of a usual JPEG, with 1, 3 or 4 components of 8 bits; None for others."""
    if len(segment) < 6:
        return None
    bits, height, width, count = struct.unpack_from(">BHHB", segment)
    ids, sampling = segment[6::3], [divmod(factors, 16) for factors in segment[7::3]]
    is_usual = bits == 8 and count in (1, 3, 4) and len(segment) == 6 + 3 * count
    if not (is_usual and height and width and len(set(ids)) == count and _is_usual(sampling)):
        return None
    return _Frame(UsualHeader("JPEG", height, width, 8), ids)


def _is_usual(sampling: list[tuple[int, int]]) -> bool:
    """Return whether all components are subsampled by whole factors."""
    finest = max(h for h, _ in sampling), max(v for _, v in sampling)
    whole = all(h and v and finest[0] % h == 0 == finest[1] % v for h, v in sampling)
    whole &= max(finest) <= _LARGEST_FACTOR
    return whole and (len(sampling) == 1 or sum(h * v for h, v in sampling) <= _BLOCKS_OF_MCU)


def without_hints(data: bytes, structure: Structure) -> bytes:
    """Return an image without hints and junk, which DALI decodes to the stored values."""
    if not (structure.hints or structure.junk):
        return data
    changed = bytearray(data)
    for span in reversed(structure.junk):
        del changed[span]
    for span in structure.hints:
        changed[span.start : span.start + 4] = _NO_HINT
        struct.pack_into(">I", changed, span.stop, isal_zlib.crc32(memoryview(changed)[span]))
    return bytes(changed)


class _ScanMarkers:
    """Markers of a JPEG from the start of its first scan."""

    def __init__(self, data: bytes, start: int) -> None:
        array = np.frombuffer(data, np.uint8)[start:]
        flags = array[:-1] == 0xFF
        flags &= array[1:] != 0  # 0xFF 0x00 is a scan byte
        self._data, self._first = data, start
        self._flags = flags.tobytes()  # `find` is faster than in an array

    def end_of_scan(self, start: int, *, restarts: bool) -> int:
        """Return the position of the first marker after a scan, or the end of the file."""
        expected, at = 0, start - self._first - 1
        while (at := self._flags.find(1, at + 1)) >= 0:
            byte = at + self._first
            code = self._data[byte + 1]
            if code == 0xFF:  # fill before a marker
                continue
            if code & 0xF8 != 0xD0:
                return byte
            if not restarts:
                raise DamagedError(f"a restart marker at byte {byte}, but the scan has no restarts")
            if code & 7 != expected:
                raise DamagedError(f"the restart marker at byte {byte} is out of order")
            expected = (expected + 1) % 8
        return len(self._data)


def _png(data: bytes) -> Structure:
    exif: list[slice] = []
    hints: list[slice] = []
    is_usual, in_text, view, at = True, False, memoryview(data), len(_PNG)
    while at + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        end = at + 12 + length
        if end > len(data):
            break
        (checksum,) = struct.unpack_from(">I", data, end - 4)
        # Chunks with a lower-case first letter do not affect the pixels.
        is_usual &= kind.isalpha()
        is_needed = kind[:1].isupper() or kind == b"eXIf"
        if is_needed and isal_zlib.crc32(view[at + 4 : end - 4]) != checksum:
            raise DamagedError(f"the checksum of the PNG chunk {kind!r} at byte {at} is wrong")
        if kind == b"eXIf":
            exif.append(slice(at + 8, end - 4))
        in_text |= kind in _TEXTS and data.startswith(_EXIF_IN_TEXT, at + 8)
        if kind in _HINTS:
            hints.append(slice(at + 4, end - 4))
        if kind == b"IEND":
            header = _png_header(data) if is_usual else None
            return Structure(
                tuple(exif),
                tuple(hints),
                header=header,
                exif_in_text=in_text and header is not None and not exif,
            )
        at = end
    raise DamagedError(f"the file ends within the PNG chunk at byte {at}: it is truncated")


def _png_header(data: bytes) -> UsualHeader | None:
    """Parse the IHDR chunk (PNG, 11.2.1) of a usual PNG; None for unusual ones."""
    name, width, height, *kind = struct.unpack_from(">4x4sIIBBBBB", data, len(_PNG))
    if name != b"IHDR" or not width or not height or b"IDAT" not in data:
        return None
    bits, colours, *methods = kind
    usual = bits in _PNG_BITS.get(colours, ()) and methods in ([0, 0, 0], [0, 0, 1])
    return UsualHeader("PNG", height, width, 16 if bits == 16 else 8) if usual else None
