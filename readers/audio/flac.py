"""FLAC by frames: only the frames of a segment are read and decoded."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from readers.audio.coded import CutSound, OddError, checked, fill, guessed
from readers.places.contract import Place

_MARK = b"\xff\xf8"
"""First bytes of a frame, in streams whose frames have the same number of samples."""
_MARGIN = 8 << 10
_MOST_BLOCKS = 1000
"""Maximum number of blocks of metadata."""
_MOST_BYTES = 1 << 26
"""Maximum size of a segment that is read here, in bytes; libsndfile reads longer segments."""
_TRIES = 24
_DEPTHS = {8: "PCM_S8", 16: "PCM_16", 24: "PCM_24"}
"""libsndfile's names by bits of a sample."""
_DEPTH_CODES = {8: (0, 1), 16: (0, 4), 24: (0, 6)}
"""Codes in the header of a frame by bits of a sample; code 0 means the bits of the stream."""
_LENGTHS = (0, 192, 576, 1152, 2304, 4608, 0, 0, *(256 << n for n in range(8)))
"""Samples of a frame by the code in its header; 0 if reserved, or stored after other fields."""


def _table() -> tuple[int, ...]:
    found = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc << 1 ^ (0x107 if crc & 0x80 else 0)
        found.append(crc)
    return tuple(found)


_CRC8 = _table()


class _Frame(NamedTuple):
    at: int
    """First byte."""
    begin: int
    """First sample."""
    end: int


@dataclass(frozen=True, slots=True)
class FlacSound(CutSound):
    """Recording in FLAC."""

    bits: int
    block: int
    """Samples of each frame but the last."""
    info: bytes
    """Mark and description of the stream."""
    first: int
    """First byte of the frames."""

    def read_part(self, start: int, out: NDArray[np.float32]) -> int:
        """Read samples by their frames, or raise OddError."""
        content, begin = self._frames_of(start, start + len(out))
        found = np.empty((start - begin + len(out), self.channels), np.float32)
        with checked() as library, library.SoundFile(io.BytesIO(self.info + content)) as file:
            fill(file, found)
        out[...] = found[start - begin :]
        return len(content)

    def _frames_of(self, start: int, stop: int) -> tuple[bytes, int]:
        """Return the bytes of the frames with these samples, and the first sample in them."""
        low, high = (self.first, 0), (self.place.nbytes, self.frames)
        each = (high[0] - low[0]) / self.frames  # average bytes of a sample
        margin = round(each * self.block) + _MARGIN
        for number in range(_TRIES):
            at = max(low[0], guessed(low, high, start, number) - margin)
            content = self.place.read(at, at + round(each * (stop - start)) + 3 * margin)
            after, known = None, (low, high)
            for frame in self._found(content, 0):
                if not low[1] <= frame.begin < frame.end <= high[1]:
                    continue  # other bytes that look like a header
                if frame.end > start:
                    after = frame
                    break
                low = at + frame.at, frame.begin
            if after is not None:
                if after.begin <= start:
                    return self._whole(content, at, after, stop), after.begin
                if at <= low[0]:
                    raise OddError
                high = at + after.at, after.begin
            margin *= 2 if (low, high) == known else 1
        raise OddError

    def _whole(self, content: bytes, at: int, frame: _Frame, stop: int) -> bytes:
        """Return the bytes from a frame on to the end of the samples up to `stop`."""
        first, sample, end = frame.at, frame.end, frame.at + 1
        while True:
            for one in self._found(content, end):
                if one.begin == sample:
                    end, sample = one.at, one.end
                    if one.begin >= stop:
                        return content[first:end]
                    end += 1
            more = self.place.read(at + len(content), at + 2 * len(content))
            if not more and sample >= stop:
                return content[first:]
            if not more or len(content) > _MOST_BYTES:
                raise OddError
            content += more

    def _found(self, content: bytes, at: int) -> Iterator[_Frame]:
        """Yield the headers of frames in some bytes, from a position on."""
        while (at := content.find(_MARK, at)) >= 0:
            if (frame := self._frame(content, at)) is not None:
                yield frame
            at += 1

    def _frame(self, content: bytes, at: int) -> _Frame | None:
        """Return the frame whose header begins here; None if there is none."""
        header = content[at : at + 16]
        if len(header) < 16:
            return None
        length, channels, depth = header[2] >> 4, header[3] >> 4, header[3] >> 1 & 7
        fits = channels == self.channels - 1 or (self.channels == 2 and 8 <= channels <= 10)
        if not fits or depth not in _DEPTH_CODES[self.bits] or header[3] & 1 or not length:
            return None
        number, end = header[4], 5
        if number >= 0x80:  # coded as in UTF-8
            more = 7 - (number ^ 0xFF).bit_length()
            if not 1 <= more <= 6:
                return None
            number &= 0x3F >> more
            for byte in header[5 : 5 + more]:
                number = number << 6 | byte & 0x3F
            end += more
        samples = _LENGTHS[length]
        if length in (6, 7):
            samples = int.from_bytes(header[end : end + length - 5], "big") + 1
            end += length - 5
        end += {12: 1, 13: 2, 14: 2}.get(header[2] & 15, 0)
        crc = 0
        for byte in header[:end]:
            crc = _CRC8[crc ^ byte]
        if end >= 16 or crc != header[end] or not samples:
            return None
        begin = number * self.block
        return _Frame(at, begin, begin + samples)


def flac_sound(place: Place, head: bytes) -> FlacSound | None:
    """Return the recording of a FLAC file; None if libsndfile must read the file.

    `head` are the first bytes of the file.
    """
    if head[:4] != b"fLaC" or len(head) < 42 or head[4] & 0x7F or head[5:8] != b"\0\0\x22":
        return None
    least, most = struct.unpack(">HH", head[8:12])
    numbers = int.from_bytes(head[18:26], "big")
    rate, channels = numbers >> 44, (numbers >> 41 & 7) + 1
    bits, frames = (numbers >> 36 & 31) + 1, numbers & (1 << 36) - 1
    if not rate or bits not in _DEPTHS or not frames or not 16 <= least == most:
        return None
    at, is_last = 42, head[4] >> 7
    for _ in range(_MOST_BLOCKS):
        if is_last:
            break
        block = head[at : at + 4] if at + 4 <= len(head) else place.read(at, at + 4)
        if len(block) < 4:
            return None
        is_last = block[0] >> 7
        at += 4 + int.from_bytes(block[1:], "big")
    if (head[at : at + 2] if at + 2 <= len(head) else place.read(at, at + 2)) != _MARK:
        return None
    info = head[:4] + b"\x80" + head[5:42]
    name = f"FLAC {_DEPTHS[bits]}"
    return FlacSound(place, name, rate, channels, frames, head, bits, most, info, at)
