"""A clip as a small MP4 file in memory: its packets as they are, without decoding."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

_ENTRIES = {
    "h264": (b"avc1", b"avcC"),
    "hevc": (b"hvc1", b"hvcC"),
    "vp8": (b"vp08", b""),
    "vp9": (b"vp09", b""),
    "mjpeg": (b"jpeg", b""),
}
"""Sample entry of each codec, and the box for the parameters of its decoder."""
_TICKS = 1000
"""Ticks of a second; a packet lasts one tick, as only the order of frames matters."""
_MATRIX = struct.pack(">9I", 1 << 16, 0, 0, 0, 1 << 16, 0, 0, 0, 1 << 30)
_LANGUAGE = 0x55C4  # undetermined


def clip_header(
    codec: str,
    extradata: bytes,
    size: tuple[int, int],
    nbytes: NDArray[np.integer[Any]],
    shown: NDArray[np.integer[Any]],
    is_key: NDArray[np.bool_],
) -> bytes:
    """Return the bytes of an MP4 file before its packets, which follow each other.

    Parameters
    ----------
    codec : {"h264", "hevc", "vp8", "vp9", "mjpeg"}
        Codec by FFmpeg's name.
    extradata : bytes
        Parameters of the decoder; for H.264 and HEVC as MP4 has them.
    size : (int, int)
        Height and width of a decoded frame, in pixels.
    nbytes : ndarray of int, shape (packets,)
        Bytes of each packet, in the order in which they are decoded.
    shown : ndarray of int, same shape
        Position of each packet's frame among those of the file, in the order in which they are
        shown.
    is_key : ndarray of bool, same shape
        Whether decoding can begin with the packet.
    """
    count = len(nbytes)
    entry, parameters = _ENTRIES[codec]
    height, width = size
    described = struct.pack(">6xH16xHHII4xH32xHh", 1, width, height, 72 << 16, 72 << 16, 1, 24, -1)
    described += _box(parameters, extradata) if parameters else b""
    late = shown - np.arange(count)  # MP4 has no times before decoding
    late = late - late.min()
    offsets = np.stack([np.ones(count), late], axis=1)
    keys = np.flatnonzero(is_key) + 1

    def movie(start: int) -> bytes:
        table = _box(
            b"stbl",
            _full(b"stsd", struct.pack(">I", 1), _box(entry, described)),
            _full(b"stts", struct.pack(">3I", 1, count, 1)),
            _full(b"ctts", struct.pack(">I", count), _numbers(offsets)),
            _full(b"stss", struct.pack(">I", len(keys)), _numbers(keys)),
            _full(b"stsc", struct.pack(">4I", 1, 1, count, 1)),
            _full(b"stsz", struct.pack(">2I", 0, count), _numbers(nbytes)),
            _full(b"co64", struct.pack(">IQ", 1, start)),
        )
        reference = _box(b"dref", bytes(4), struct.pack(">I", 1), _box(b"url ", b"\0\0\0\1"))
        media = _box(
            b"mdia",
            _full(b"mdhd", struct.pack(">4I2H", 0, 0, _TICKS, count, _LANGUAGE, 0)),
            _full(b"hdlr", struct.pack(">4x4s12xx", b"vide")),
            _box(b"minf", _box(b"vmhd", b"\0\0\0\1", bytes(8)), _box(b"dinf", reference), table),
        )
        head = struct.pack(">5I8x4H", 0, 0, 1, 0, count, 0, 0, 0, 0) + _MATRIX
        head += struct.pack(">2I", width << 16, height << 16)
        movie_head = struct.pack(">4IIH10x", 0, 0, _TICKS, count, 1 << 16, 1 << 8) + _MATRIX
        movie_head += bytes(24) + struct.pack(">I", 2)
        track = _box(b"trak", _box(b"tkhd", b"\0\0\0\3", head), media)
        return _box(b"moov", _full(b"mvhd", movie_head), track)

    begin = _box(b"ftyp", b"isom", struct.pack(">I", 512), b"isomiso2mp41")
    data = struct.pack(">I4sQ", 1, b"mdat", 16 + int(nbytes.sum()))
    return begin + movie(len(begin) + len(movie(0)) + len(data)) + data


def _box(name: bytes, *parts: bytes) -> bytes:
    content = b"".join(parts)
    return struct.pack(">I4s", 8 + len(content), name) + content


def _full(name: bytes, *parts: bytes) -> bytes:
    """Return a box with version and flags 0."""
    return _box(name, bytes(4), *parts)


def _numbers(values: NDArray[Any]) -> bytes:
    return values.astype(">u4").tobytes()
