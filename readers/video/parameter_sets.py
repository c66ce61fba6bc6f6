"""Parameter sets of H.264 and HEVC between frames, without which later frames are misread."""

from __future__ import annotations

import re
from collections.abc import Iterator

_START = re.compile(rb"\x00\x00\x01")
_AVC_KINDS, _HEVC_KINDS = (7, 8), (32, 33, 34)
"""Types of NAL units with parameter sets."""


class ParameterSets:
    """Parameter sets of packets, given in decoding order.

    A decoder that begins at a key frame knows the parameter sets of the container, and those of the
    key frame. In joined files others may have come in between.

    Parameters
    ----------
    decoder : str
        Decoder of FFmpeg.
    extradata : bytes
        Parameters that the container holds.
    """

    def __init__(self, decoder: str, extradata: bytes) -> None:
        self._is_avc = decoder == "h264"
        self._has_any = decoder in ("h264", "hevc")
        self._extradata = extradata
        self._latest: tuple[bytes, ...] = ()
        at = 4 if self._is_avc else 21
        has_lengths = len(extradata) > at and extradata[0] == 1
        self._length_bytes = (extradata[at] & 3) + 1 if has_lengths else 0

    def suffice(self, packet: bytes) -> bool:
        """Return whether the parameter sets suffice to begin decoding with a packet."""
        if not self._has_any:
            return True
        if own := tuple(filter(self._is_set, self._units(packet))):
            self._latest = own
            return True
        return all(one in self._extradata for one in self._latest)

    def _is_set(self, unit: bytes) -> bool:
        if self._is_avc:
            return unit[0] & 0x1F in _AVC_KINDS
        return unit[0] >> 1 & 0x3F in _HEVC_KINDS

    def _units(self, packet: bytes) -> Iterator[bytes]:
        """Yield the NAL units of a packet, none of them empty."""
        if self._length_bytes:
            at = 0
            while at + self._length_bytes < len(packet):
                start = at + self._length_bytes
                at = start + int.from_bytes(packet[at:start])
                if unit := packet[start:at]:
                    yield unit
            return
        starts = [found.end() for found in _START.finditer(packet)]
        for start, stop in zip(starts, [*starts[1:], len(packet) + 3], strict=True):
            if unit := packet[start : stop - 3].rstrip(b"\0"):
                yield unit
