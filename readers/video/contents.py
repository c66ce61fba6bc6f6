"""Check, without decoding, that each packet of a clip is one frame of the usual kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from readers.video.bits import Bits
from readers.video.packets import Stream

_SPS_H264, _IDR, _OTHER_H264 = 7, 5, (10, 11, 14, 15, 20)
"""Types of NAL units: SPS; slice of an IDR picture; ends of a sequence, and further layers."""
_SPS_HEVC, _SLICES, _IRAP, _OTHER_HEVC = 33, range(32), range(16, 22), (16, 17, 18, 36, 37)
"""Types of NAL units: SPS; slices; those of pictures with which decoding can begin; broken links
and ends of a sequence."""
_BASELINE, _MAIN, _HIGH = 66, 77, 100
_CONSTRAINED = 0x40
_VP9_HEADER = 24
"""Bytes of a frame of VP9 that include its size."""
_VP8_SYNC = b"\x9d\x01\x2a"
_SOF = (0xC0, 0xC1, 0xC2)
"""Markers of JPEG before the size of an image."""


def is_progressive_h264(extradata: bytes) -> bool:
    """Return whether H.264 of MP4 is of a usual profile, and has no interlaced pictures.

    False if that is not known.
    """
    if len(extradata) < 8 or extradata[0] != 1:
        return False
    profile, constraints = extradata[1], extradata[2]
    if profile not in (_BASELINE, _MAIN, _HIGH):
        return False
    if profile == _BASELINE and not constraints & _CONSTRAINED:
        return False
    count = extradata[5] & 31
    length = int.from_bytes(extradata[6:8])
    try:
        return count == 1 and _is_progressive(extradata[8 : 8 + length])
    except ValueError:
        return False


def _is_progressive(sps: bytes) -> bool:
    bits = Bits(sps[1:].replace(b"\0\0\3", b"\0\0"))
    profile = bits.take(8)
    bits.take(16)  # constraints, level
    bits.golomb()  # its number
    if profile == _HIGH:
        for _ in range(3):  # chroma, bits of brightness and colours
            bits.golomb()
        bits.take(1)
        if bits.take(1):  # own matrices follow
            return False
    bits.golomb()  # most frames
    if (order := bits.golomb()) == 0:
        bits.golomb()
    elif order == 1:
        bits.take(1)
        bits.golomb()
        bits.golomb()
        for _ in range(bits.golomb()):
            bits.golomb()
    bits.golomb()  # reference frames
    bits.take(1)
    bits.golomb()  # width
    bits.golomb()  # height
    return bool(bits.take(1))


def is_plain(parts: Sequence[memoryview], stream: Stream, *, hidden: bool) -> bool:
    """Return whether each packet holds a frame of the stream's size, and nothing unusual.

    Parameters
    ----------
    parts : sequence of memoryview
        Packets in the order in which they are decoded.
    stream : Stream
        What they belong to.
    hidden : bool
        Whether packets of VP9 may also hold frames that are not shown, or show earlier ones.

    Raises
    ------
    IndexError, ValueError
        If a packet ends too early.
    """
    if stream.codec in ("h264", "hevc"):
        return _CHECKS[stream.codec](parts, stream.extradata)
    size = stream.height, stream.width
    if stream.codec == "vp9":
        return all(_is_vp9(bytes(part), size, hidden) for part in parts)
    return all(
        (_vp8_size if stream.codec == "vp8" else _jpeg_size)(part) in (size, None) for part in parts
    )


def _h264(parts: Sequence[memoryview], extradata: bytes) -> bool:
    length_bytes = (extradata[4] & 3) + 1
    begins = False
    for number, part in enumerate(parts):
        for unit in _units(part, length_bytes):
            kind = unit[0] & 0x1F
            begins |= number == 0 and kind == _IDR
            if kind in _OTHER_H264 or (kind == _SPS_H264 and bytes(unit) not in extradata):
                return False
    return begins


def _hevc(parts: Sequence[memoryview], extradata: bytes) -> bool:
    length_bytes = (extradata[21] & 3) + 1
    begins = False
    for number, part in enumerate(parts):
        for unit in _units(part, length_bytes):
            kind, layer = unit[0] >> 1 & 0x3F, (unit[0] & 1) << 5 | unit[1] >> 3
            if number == 0 and kind in _SLICES:
                begins = kind in _IRAP
            elif kind in _OTHER_HEVC:
                return False
            if layer or (kind == _SPS_HEVC and bytes(unit) not in extradata):
                return False
    return begins


_CHECKS: dict[str, Callable[[Sequence[memoryview], bytes], bool]] = {"h264": _h264, "hevc": _hevc}


def _units(packet: memoryview, length_bytes: int) -> Iterator[memoryview]:
    """Yield the NAL units of a packet of MP4."""
    at = 0
    while at < len(packet):
        start = at + length_bytes
        at = start + int.from_bytes(packet[at:start])
        if at > len(packet) or at == start:
            raise ValueError("a NAL unit does not end with its packet")
        yield packet[start:at]


def _vp8_size(packet: memoryview) -> tuple[int, int] | None:
    """Return the height and width of a key frame; None for other frames."""
    if packet[0] & 1:
        return None
    if packet[3:6] != _VP8_SYNC:
        raise ValueError("a key frame of VP8 lacks its start code")
    width, height = (int.from_bytes(packet[at : at + 2], "little") & 0x3FFF for at in (6, 8))
    return height, width


def _jpeg_size(packet: memoryview) -> tuple[int, int]:
    """Return the height and width of the image."""
    at = 2
    while packet[at + 1] not in _SOF:
        if packet[at] != 0xFF:
            raise ValueError("a JPEG lacks a marker")
        at += 2 + int.from_bytes(packet[at + 2 : at + 4])
    return int.from_bytes(packet[at + 5 : at + 7]), int.from_bytes(packet[at + 7 : at + 9])


def _is_vp9(packet: bytes, size: tuple[int, int], hidden: bool) -> bool:
    frames = _vp9_frames(packet)
    return (hidden or len(frames) == 1) and all(_is_vp9_frame(one, size, hidden) for one in frames)


def _vp9_frames(packet: bytes) -> list[bytes]:
    """Return the frames of a packet. A packet of several frames has an index at its end."""
    marker = packet[-1]
    count, width = (marker & 7) + 1, (marker >> 3 & 3) + 1
    index = packet[-2 - count * width :]
    if marker & 0xE0 != 0xC0 or index[0] != marker:
        return [packet]
    frames, start = [], 0
    for at in range(1, 1 + count * width, width):
        stop = start + int.from_bytes(index[at : at + width], "little")
        frames.append(packet[start:stop])
        start = stop
    return frames


def _is_vp9_frame(frame: bytes, size: tuple[int, int], hidden: bool) -> bool:
    """Return whether a frame is of profile 0 and this size."""
    bits = Bits(frame[:_VP9_HEADER])
    if bits.take(4) != 0b1000:  # marker, profile
        return False
    if bits.take(1):  # an earlier frame is shown
        return hidden
    refers, is_shown, is_resilient = bits.take(1), bits.take(1), bits.take(1)
    if not (is_shown or hidden):
        return False
    if not refers:
        bits.take(24 + 3 + 1)  # start code, matrix, range
    else:
        if not is_shown and bits.take(1):  # without references
            return False
        bits.take((0 if is_resilient else 2) + 8 + 3 * 4)
        if any(bits.take(1) for _ in range(3)):  # of the size of a reference
            return True
    width, height = bits.take(16) + 1, bits.take(16) + 1
    return (height, width) == size
