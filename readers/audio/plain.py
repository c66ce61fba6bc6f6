"""Recordings with samples stored as numbers: WAV, RF64 and AIFF, read by byte ranges."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from readers.audio.contract import Sound
from readers.buffers import private
from readers.places.contract import Place

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_GUID_END = bytes.fromhex("000000001000800000aa00389b71")
"""End of an identifier that begins with the number of a format."""
_KINDS = {
    (_PCM, 8): "u1",
    (_PCM, 16): "i2",
    (_PCM, 24): "i3",
    (_PCM, 32): "i4",
    (_FLOAT, 32): "f4",
    (_FLOAT, 64): "f8",
}
"""Types of samples by the number of the format and bits per sample."""
_AIFC = {b"NONE": ">", b"twos": ">", b"sowt": "<", b"fl32": ">f", b"FL32": ">f", b"fl64": ">f"}
_AIFC |= {b"FL64": ">f", b"in24": ">", b"in32": ">"}
_STREAM = 0x7FFFF000
"""Lengths from here on mean an unknown length, e.g. of files that were written into a pipe."""
_MOST_CHUNKS = 10_000


@dataclass(frozen=True, slots=True)
class PlainSound(Sound):
    """Recording with samples stored as numbers."""

    start: int
    """First byte of the samples."""
    order: Literal["<", ">"]
    kind: str
    """Type of a sample: ``u1``, ``i1``, ``i2``, ``i3``, ``i4``, ``f4`` or ``f8``."""

    @property
    def frame_bytes(self) -> int:
        """Bytes of a sample of all channels."""
        return self.channels * int(self.kind[1])

    def read(self, start: int, out: NDArray[np.float32]) -> int:
        """Read samples."""
        content = private(len(out) * self.frame_bytes)
        self.place.read_many([(self.start + start * self.frame_bytes, content.data)])
        numbers = self._numbers(content)
        out[...] = numbers.reshape(out.shape)
        if self.kind == "u1":
            out -= 128
        if numbers.dtype.kind != "f":
            out *= np.float32(2.0 ** (1 - 8 * numbers.dtype.itemsize))
        return content.nbytes

    def _numbers(self, content: NDArray[np.uint8]) -> NDArray[Any]:
        """Return the samples as they are stored."""
        kind = self.kind
        if kind == "i3":  # as the upper bytes of 32-bit integers
            wide = np.zeros((len(content) // 3, 4), np.uint8)
            wide[:, slice(1, 4) if self.order == "<" else slice(0, 3)] = content.reshape(-1, 3)
            content, kind = wide.reshape(-1), "i4"
        return content.view(f"{self.order}{kind}")


def wav_sound(place: Place, head: bytes) -> PlainSound | None:
    """Return the recording of a WAV or RF64 file; None for other formats and codings.

    `head` are the first bytes of the file. ValueError if the file is damaged, cut off or empty.
    """
    if head[:4] not in (b"RIFF", b"RF64", b"BW64") or head[8:12] != b"WAVE":
        return None
    fmt = data = size64 = None
    for name, start, nbytes in _chunks(place, head, 12, "<"):
        if name == b"ds64":
            size64 = struct.unpack("<8xQ", _body(place, head, start, 16, "ds64"))[0]
        elif name == b"fmt ":
            fmt = _body(place, head, start, min(nbytes, 40), "fmt")
        elif name == b"data" and data is None:
            if nbytes == 0xFFFFFFFF and size64 is not None:
                nbytes = size64
            rest = place.nbytes - start
            is_unknown = nbytes >= _STREAM if nbytes else head[4:8] in _UNKNOWN
            data = start, rest if is_unknown and nbytes != size64 else nbytes
            if fmt is not None:
                break
    if fmt is None or len(fmt) < 16:
        raise ValueError("the WAV file has no description of its samples (chunk 'fmt ')")
    number, channels, rate, _, block, bits = struct.unpack("<HHIIHH", fmt[:16])
    if number == _EXTENSIBLE and len(fmt) >= 40:
        number = struct.unpack("<H", fmt[24:26])[0] if fmt[26:40] == _GUID_END else number
    _check(rate, channels)
    kind = _KINDS.get((number, block // channels * 8 if number == _PCM else bits))
    if kind is None or block != channels * int(kind[1]) or bits > 8 * int(kind[1]):
        return None
    if data is None:
        raise ValueError("the WAV file has no samples (chunk 'data'): it is empty or cut off")
    frames = _frames(place, *data, block)
    return PlainSound(place, f"WAV {kind}", rate, channels, frames, data[0], "<", kind)


_UNKNOWN = (b"\0\0\0\0", b"\xff\xff\xff\xff")
"""Lengths of RIFF files that were written into a pipe."""


def aiff_sound(place: Place, head: bytes) -> PlainSound | None:
    """Return the recording of an AIFF or AIFF-C file, like `wav_sound`."""
    if head[:4] != b"FORM" or head[8:12] not in (b"AIFF", b"AIFC"):
        return None
    comm = data = None
    for name, start, nbytes in _chunks(place, head, 12, ">"):
        if name == b"COMM":
            comm = _body(place, head, start, min(nbytes, 22), "COMM")
        elif name == b"SSND":
            skip = struct.unpack(">I", _body(place, head, start, 4, "SSND"))[0]
            data = start + 8 + skip, nbytes - 8 - skip
        if comm is not None and data is not None:
            break
    if comm is None or len(comm) < 18:
        raise ValueError("the AIFF file has no description of its samples (chunk 'COMM')")
    channels, frames, bits, exponent, mantissa = struct.unpack(">HIHHQ", comm[:18])
    rate = round(mantissa * 2.0 ** ((exponent & 0x7FFF) - 16383 - 63)) if exponent < 0x7FFF else 0
    _check(rate, channels)
    coding = _AIFC.get(comm[18:22]) if head[8:12] == b"AIFC" else ">"
    nbytes = -(-bits // 8)
    if coding is None or nbytes not in ((4, 8) if coding == ">f" else (1, 2, 3, 4)):
        return None
    if frames and data is None:
        raise ValueError("the AIFF file has no samples (chunk 'SSND'): it is cut off")
    first, held = data or (0, 0)
    block = channels * nbytes
    if held < frames * block:
        raise ValueError(
            f"the {frames} samples need {frames * block} bytes, but chunk 'SSND' has {held}: the "
            "file is damaged"
        )
    kind = f"{'f' if coding == '>f' else 'i'}{nbytes}"
    frames = _frames(place, first, frames * block, block)
    order: Literal["<", ">"] = "<" if coding == "<" else ">"
    return PlainSound(place, f"AIFF {kind}", rate, channels, frames, first, order, kind)


def _chunks(
    place: Place, head: bytes, at: int, order: Literal["<", ">"]
) -> Iterator[tuple[bytes, int, int]]:
    """Yield name, first byte and length of the chunks. A chunk of odd length is padded."""
    layout = struct.Struct(f"{order}4sI")
    for _ in range(_MOST_CHUNKS):
        begin = head[at : at + 8] if at + 8 <= len(head) else place.read(at, at + 8)
        if len(begin) < 8:
            return
        name, nbytes = layout.unpack(begin)
        yield name, at + 8, nbytes
        at += 8 + nbytes + nbytes % 2
    raise ValueError(f"the file has more than {_MOST_CHUNKS} chunks: it is damaged")


def _body(place: Place, head: bytes, start: int, nbytes: int, name: str) -> bytes:
    """Return the first bytes of a chunk."""
    stop = start + nbytes
    found = head[start:stop] if stop <= len(head) else place.read(start, stop)
    if len(found) < nbytes:
        raise ValueError(f"the file ends at byte {place.nbytes}, in chunk {name!r}: it is cut off")
    return found


def _check(rate: int, channels: int) -> None:
    if rate < 1 or channels < 1:
        raise ValueError(f"the header has {rate} Hz and {channels} channels, expected at least 1")


def _frames(place: Place, start: int, nbytes: int, block: int) -> int:
    """Return the number of samples in these bytes; ValueError if the file lacks some."""
    if start + nbytes > place.nbytes:
        raise ValueError(
            f"the file ends at byte {place.nbytes}, but its samples end at {start + nbytes}: it is "
            "cut off"
        )
    return nbytes // block
