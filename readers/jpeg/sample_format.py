"""Find colours of more than 8 bits per sample, and choose their decoder.

Pillow cuts such colours to 8 bits. DALI 2.4 keeps their depth, but decodes some kinds to wrong
values without a message, and fails on other kinds, which loses a whole batch. DALI only gets kinds
that were compared with the encoded values (tests/dali_pipelines/test_depth.py).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from typing import Any

from PIL import Image

_COMPRESSIONS = {1, 5, 8, 32773, 32946, 50000}
"""Supported TIFF compressions: none, LZW, deflate, PackBits, deflate's old code, Zstandard."""
_RGB, _PREMULTIPLIED, _SAME_PLANE = 2, 1, 1
"""Supported PhotometricInterpretation, ExtraSamples and PlanarConfiguration of TIFF."""
_SRGB = 16
"""Supported colour space of JPEG 2000 (ISO/IEC 15444-1, table I.10). DALI decodes sYCC as RGB."""


def stored_bits(encoded: bytes, image: Image.Image) -> int:
    """Return the bits per sample of a file if Pillow may keep fewer; otherwise 8.

    `image` is the file opened by Pillow.
    """
    if image.format == "TIFF":
        return int(max(values_of(image.tag_v2, 258)))  # type: ignore[attr-defined]
    if image.format == "JPEG2000":
        return encoded[_codestream(encoded) + 42] % 128 + 1  # the highest bit marks signed samples
    if image.format == "PPM" and image.mode in ("RGB", "I"):
        return _largest_of_pnm(encoded).bit_length()
    return encoded[24] if image.format == "PNG" else 8


def is_for_dali(encoded: bytes, image: Image.Image) -> bool:
    """Return whether DALI decodes a file's colours of 9 to 16 bits to the stored values."""
    if image.format == "TIFF":
        return _is_usual_tiff(image.tag_v2)  # type: ignore[attr-defined]
    if image.format == "JPEG2000":
        return _is_usual_jpeg2000(encoded)
    return image.format == "PPM" and _largest_of_pnm(encoded) == 65535


def check_parts(tags: Mapping[int, Any]) -> None:
    """Raise OSError if a TIFF lacks strips or tiles: their pixels would be undefined."""
    width, height = tags[256], tags[257]
    if 324 in tags:
        expected = -(-width // tags[322]) * -(-height // tags[323])
        found = len(values_of(tags, 324))
    else:
        expected = -(-height // min(height, tags.get(278, height)))
        found = len(values_of(tags, 273))
    if values_of(tags, 284)[0] != _SAME_PLANE:
        expected *= values_of(tags, 277)[0]
    if found < expected:
        raise OSError(f"the TIFF has {found} of {expected} strips or tiles: it is damaged")


def values_of(tags: Mapping[int, Any], tag: int) -> tuple[int, ...]:
    """Return the values of a TIFF tag. The default 1 suits all tags that are used here."""
    value = tags.get(tag, 1)
    return value if isinstance(value, tuple) else (value,)


def _is_usual_tiff(tags: Mapping[int, Any]) -> bool:
    return (
        {*values_of(tags, 258)} == {16}
        and {*values_of(tags, 339)} == {1}  # unsigned
        and tags.get(259) in _COMPRESSIONS
        and tags.get(262) == _RGB
        and values_of(tags, 284)[0] == _SAME_PLANE
        and _PREMULTIPLIED not in tags.get(338, ())
    )


def _largest_of_pnm(encoded: bytes) -> int:
    """Return the largest possible value of a PGM or PPM."""
    return int(re.sub(rb"#[^\r\n]*", b"", encoded[:65536]).split(maxsplit=4)[3])


def _is_usual_jpeg2000(encoded: bytes) -> bool:
    start = _codestream(encoded)
    x, y = struct.unpack_from(">II", encoded, start + 16)
    (count,) = struct.unpack_from(">H", encoded, start + 40)
    components = {encoded[start + 42 + 3 * n : start + 45 + 3 * n] for n in range(count)}
    # Box with the number of the colour space (I.5.3.3); a bare codestream has none.
    space = re.search(rb"colr\x01..\0\0\0(.)", encoded[:start], re.DOTALL)
    return (
        # All components are equal, unsigned, of 9 to 16 bits, and not subsampled.
        components in ({bytes((depth - 1, 1, 1))} for depth in range(9, 17))
        and count in (3, 4)
        and (x, y) == (0, 0)
        and (space is None or space[1][0] == _SRGB)
        and b"\0\0\0\1jp2c" not in encoded[:start]  # 64-bit length
    )


def _codestream(encoded: bytes) -> int:
    """Return the position of the codestream in a JPEG 2000 file (ISO/IEC 15444-1, annex I)."""
    at = 0
    while not encoded.startswith(b"\xff\x4f\xff\x51", at):
        length, kind = struct.unpack_from(">I4s", encoded, at)
        header = 8
        if length == 1:
            header, (length,) = 16, struct.unpack_from(">Q", encoded, at + 8)
        at += header if kind == b"jp2c" else max(length, header)
    return at
