"""Bit depth of an encoded image, and a check that DALI decodes it correctly.

Some images that Pillow opens make DALI 2.4 fail, which loses a whole batch; others are decoded to
wrong values without a message. Both are rejected here, with the reason. Each limit was measured on
the CPU against the encoded values (tests/dali_pipelines/test_depth.py).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from typing import Any

from PIL import Image

from readers.messages import pipeline_hint

_JPEG, _TIFF = b"\xff\xd8", (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")

_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
"""Markers of JPEG frames (ITU-T T.81, table B.1)."""
_DECODED_FRAMES = {0xC0, 0xC1, 0xC2, 0xC9, 0xCA}
"""Baseline, sequential and progressive ones; neither lossless nor hierarchical."""
_SCAN = 0xDA
_NO_SEGMENT = {0x00, 0x01, *range(0xD0, 0xD9)}

_COMPRESSIONS = {1, 5, 7, 8, 32773, 32946, 50000}
"""TIFF compressions: none, LZW, JPEG, deflate, PackBits, the old code of deflate, Zstandard."""
_PHOTOMETRIC = {8: {0, 1, 2, 3, 5, 6}, 16: {1, 2}}
"""TIFF photometric interpretations by bits: white is 0, black is 0, RGB, palette, CMYK, YCbCr. With
16 bits DALI confuses white and black."""
_MODES = {"L", "I;16", "RGB", "RGBA"}
"""Pillow's modes of JPEG 2000 images."""
_COLOUR_SPACES = {16, 17}
"""JPEG 2000 colour spaces: sRGB, gray (ISO/IEC 15444-1, table I.10). DALI decodes sYCC as RGB."""
_TIFF_KINDS = "8 or 16 bits, unsigned, with 1, 3 or 4 samples per pixel"


def sample_bits(encoded: bytes, image: Image.Image, channels: int) -> int:
    """Return the bits per sample that a file is decoded to: 8 for up to 8 bits, otherwise 16.

    The image is the same file, opened; it is decoded to 1 or 3 channels.

    Raises
    ------
    OSError
        If DALI cannot decode the image at its full depth.
    """
    if image.format in ("JPEG", "MPO"):
        return _jpeg_bits(encoded)
    if image.format == "PNG":
        return 16 if encoded[24] == 16 else 8
    if image.format == "TIFF":
        return _tiff_bits(image.tag_v2)  # type: ignore[attr-defined]
    if image.format == "PPM":
        return _pnm_bits(encoded)
    if image.format == "JPEG2000":
        return _jpeg2000_bits(encoded, image.mode, channels)
    if image.format == "BMP":
        return _bmp_bits(encoded)
    return 8


def unidentified(encoded: bytes, formats: tuple[str, ...]) -> str:
    """Return the reason why Pillow cannot open a file."""
    if encoded.startswith(_JPEG):
        try:
            _jpeg_bits(encoded)
        except OSError as error:
            return str(error)
    if encoded.startswith(_TIFF):
        return f"a TIFF image of a kind that is not decoded, expected {_TIFF_KINDS}"
    known, hint = ", ".join(formats), pipeline_hint(encoded, "jpeg")
    return f"not an image: it begins with {encoded[:8]!r}, expected one of {known}{hint}"


def _jpeg_bits(encoded: bytes) -> int:
    frames = _jpeg_frames(encoded)
    if len(frames) > 1:
        raise OSError("a JPEG of several frames is not decoded: it is damaged")
    marker, bits = frames[0] if frames else (0xC0, 8)
    if marker not in _DECODED_FRAMES:
        kind = "lossless" if marker in (0xC3, 0xCB) else "hierarchical or lossless"
        raise OSError(f"a {kind} JPEG is not decoded, expected a baseline or progressive one")
    if bits != 8:
        raise OSError(f"a JPEG of {bits} bits is not decoded, expected 8")
    return 8


def _jpeg_frames(encoded: bytes) -> list[tuple[int, int]]:
    """Return the markers of the frames before the first scan, and their bits per sample."""
    frames, at = [], 2
    while (at := encoded.find(b"\xff", at) + 1) and at + 4 <= len(encoded):
        marker = encoded[at]
        if marker in _FRAMES:
            frames.append((marker, encoded[at + 3]))
        if marker == _SCAN:
            break
        if marker not in _NO_SEGMENT and marker != 0xFF:
            at += 1 + int.from_bytes(encoded[at + 1 : at + 3], "big")
    return frames


def _tiff_bits(tags: Mapping[int, Any]) -> int:
    bits, forms = {*_values(tags, 258)}, {*_values(tags, 339)}
    if forms != {1} or bits not in ({8}, {16}):
        form = {1: "unsigned", 2: "signed", 3: "floating-point"}.get(max(forms), "unknown")
        number = "/".join(map(str, sorted(bits)))
        raise OSError(f"a TIFF of {number} bits, {form}, is not decoded, expected {_TIFF_KINDS}")
    (depth,) = bits
    planes = {1, 2} if depth == 8 or _values(tags, 277)[0] == 1 else {1}  # DALI mixes them up
    for name, tag, decoded in (
        ("Compression", 259, _COMPRESSIONS),
        ("PhotometricInterpretation", 262, _PHOTOMETRIC[depth]),
        ("PlanarConfiguration", 284, planes),
    ):
        # DALI and Pillow have different defaults for the first two.
        value = _values(tags, tag)[0] if tag in tags or tag == 284 else "missing"
        if value not in decoded:
            known = ", ".join(map(str, sorted(decoded)))
            raise OSError(
                f"a TIFF of {depth} bits with {name} {value} is not decoded, expected {known}"
            )
    _check_tiff_samples(tags)
    _check_tiff_tiles(tags)
    return depth


def _check_tiff_samples(tags: Mapping[int, Any]) -> None:
    """Reject a TIFF whose colours DALI multiplies by alpha, or confuses."""
    (count, *_), alpha = _values(tags, 277), 2 in _values(tags, 338)
    if count == 2 or (count > 4 and _values(tags, 262)[0] == 5):
        raise OSError(f"a TIFF of {count} samples per pixel is not decoded, expected {_TIFF_KINDS}")
    if alpha and _values(tags, 284)[0] == 2:
        raise OSError("a TIFF with alpha and PlanarConfiguration 2 is not decoded, expected 1")


def _check_tiff_tiles(tags: Mapping[int, Any]) -> None:
    """Reject a TIFF that lacks strips or tiles: DALI leaves their pixels uninitialised."""
    width, height = tags[256], tags[257]
    if 324 in tags:
        expected = -(-width // tags[322]) * -(-height // tags[323])
        found = len(_values(tags, 324))
    else:
        expected = -(-height // min(height, tags.get(278, height)))
        found = len(_values(tags, 273))
    if _values(tags, 284)[0] == 2:
        expected *= _values(tags, 277)[0]
    if expected != found:
        raise OSError(f"a TIFF of {expected} strips or tiles has only {found}: it is damaged")


def _values(tags: Mapping[int, Any], tag: int) -> tuple[int, ...]:
    """Return the values of a TIFF tag; 1 by default, which suits all tags used here."""
    value = tags.get(tag, 1)
    return value if isinstance(value, tuple) else (value,)


def _pnm_bits(encoded: bytes) -> int:
    kind, *rest = re.sub(rb"#[^\r\n]*", b"", encoded[:65536]).split(maxsplit=4)[:4]
    if kind in (b"P1", b"P4"):
        return 8
    largest = int(rest[2]) if kind in (b"P2", b"P3", b"P5", b"P6") else None
    if largest not in (255, 65535):
        found = "of floats" if largest is None else f"whose largest value is {largest}"
        raise OSError(f"a PNM image {found} is not decoded, expected 255 or 65535")
    return 8 if largest == 255 else 16


def _bmp_bits(encoded: bytes) -> int:
    (header,) = struct.unpack_from("<I", encoded, 14)
    (bits,) = struct.unpack_from("<H", encoded, 24 if header == 12 else 28)
    compression = 0 if header == 12 else struct.unpack_from("<I", encoded, 30)[0]
    if bits not in (1, 4, 8, 24, 32) or (bits == 4 and compression):
        kind = "run lengths of 4" if bits == 4 else f"{bits}"
        raise OSError(f"a BMP of {kind} bits is not decoded, expected 1, 4, 8, 24 or 32")
    if compression in (0, 3):
        width, height = struct.unpack_from("<HH" if header == 12 else "<ii", encoded, 18)
        (start,) = struct.unpack_from("<I", encoded, 10)
        end = start + (width * bits + 31) // 32 * 4 * abs(height)
        if end > len(encoded):  # DALI leaves pixels uninitialised, even if only padding is missing
            raise OSError(f"the BMP has {len(encoded)} bytes instead of {end}: it is truncated")
    return 8


def _jpeg2000_bits(encoded: bytes, mode: str, channels: int) -> int:
    start = _codestream(encoded)
    x, y = struct.unpack_from(">II", encoded, start + 16)
    (count,) = struct.unpack_from(">H", encoded, start + 40)
    components = {encoded[start + 42 + 3 * n : start + 45 + 3 * n] for n in range(count)}
    depth = encoded[start + 42] + 1  # the highest bit marks signed samples
    # The box with the number of the colour space (I.5.3.3); a bare codestream has none.
    space = re.search(rb"colr\x01..\0\0\0(.)", encoded[:start], re.DOTALL)
    decoded = (
        components == {bytes((depth - 1, 1, 1))}  # all equal, unsigned and not subsampled
        and count in (1, 3, 4)
        and 8 <= depth <= 16
        and (x, y) == (0, 0)
        and (space is None or space[1][0] in _COLOUR_SPACES)
        and mode in _MODES
    )
    if not decoded:
        signed = "signed" if depth > 128 else "unsigned"
        raise OSError(
            f"a JPEG 2000 image of {count} components, {(depth - 1) % 128 + 1} bits, {signed}, is "
            "not decoded, expected 1, 3 or 4 components of 8 to 16 bits, unsigned, none subsampled "
            "or offset, sRGB or gray, without a palette"
        )
    if count == 1 and channels != 1 and start == 0:
        raise OSError("a bare JPEG 2000 codestream of one component needs channels=1")
    return 8 if depth == 8 else 16


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
