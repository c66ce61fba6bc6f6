"""Recordings for tests, by the standard library and soundfile."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

GUID_END = bytes.fromhex("000000001000800000aa00389b71")


def sound(frames: int, channels: int = 1, rate: int = 16000, seed: int = 0) -> NDArray[np.float32]:
    """Return tones and noise below 1, shape (frames, channels)."""
    rng = np.random.default_rng(seed)
    t = np.arange(frames)[:, None] / rate
    tones = [0.3 * np.sin(2 * np.pi * f * t + p) for f, p in rng.uniform(0.05, 0.4, (3, 2)) * rate]
    return (sum(tones) + rng.normal(0, 0.01, (frames, channels))).astype(np.float32)


def write(path: Path, samples: NDArray[Any], rate: int = 16000, **options: Any) -> Path:
    """Write a recording by soundfile; the suffix is the format unless the options name one."""
    import soundfile

    soundfile.write(path, samples, rate, **options)
    return path


def stored(path: Path | str, **options: Any) -> NDArray[np.float32]:
    """Return the samples that soundfile reads, shape (frames, channels)."""
    import soundfile

    return soundfile.read(path, dtype="float32", always_2d=True, **options)[0]


def chunk(name: bytes, body: bytes, nbytes: int | None = None, order: str = "<") -> bytes:
    """Return a chunk of RIFF, padded, perhaps with a length that it does not have."""
    length = len(body) if nbytes is None else nbytes
    return name + struct.pack(f"{order}I", length) + body + b"\0" * (len(body) % 2)


def fmt(
    channels: int = 1, rate: int = 16000, bits: int = 16, tag: int = 1, more: bytes = b""
) -> bytes:
    """Return the chunk that describes the samples of a WAV file."""
    block = channels * bits // 8
    return chunk(
        b"fmt ", struct.pack("<HHIIHH", tag, channels, rate, rate * block, block, bits) + more
    )


def extensible(bits: int, tag: int, end: bytes = GUID_END) -> bytes:
    """Return the description of mono samples with a GUID."""
    more = struct.pack("<HHIH", 22, bits, 4, tag) + end
    return fmt(bits=bits, tag=0xFFFE, more=more)


def riff(*chunks: bytes, name: bytes = b"RIFF", nbytes: int | None = None) -> bytes:
    """Return a WAV file, perhaps with a length that it does not have."""
    body = b"WAVE" + b"".join(chunks)
    return name + struct.pack("<I", len(body) if nbytes is None else nbytes) + body


def comm(frames: int, bits: int = 16, coding: bytes = b"") -> bytes:
    """Return the chunk that describes the mono samples of an AIFF file, of 16 kHz."""
    rate = struct.pack(">HQ", 16383 + 13, 16000 << 50)  # 80-bit float
    return chunk(b"COMM", struct.pack(">HIH", 1, frames, bits) + rate + coding, order=">")


def ssnd(data: bytes, skipped: int = 0) -> bytes:
    """Return the chunk with the samples of an AIFF file, after some bytes that are none."""
    body = struct.pack(">II", skipped, 0) + b"\7" * skipped + data
    return chunk(b"SSND", body, order=">")


def aiff(*chunks: bytes, name: bytes = b"AIFF") -> bytes:
    """Return an AIFF file, or AIFF-C by its name."""
    return chunk(b"FORM", name + b"".join(chunks), order=">")
