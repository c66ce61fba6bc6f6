"""Detect by the bytes of a value whether it is an encoded image or text."""

from __future__ import annotations

IMAGES = (
    *(b"\xff\xd8\xff", b"\x89PNG", b"BM", b"RIFF", b"II*\0", b"MM\0*", b"\x93NUMPY", b"SIMPLE  ="),
    *(b"\0\0\0\x0cjP", b"\xff\x4f\xff\x51", b"\x1f\x8b", *(b"P%d" % kind for kind in range(1, 7))),
)
"""First bytes of the formats that Readers read, including gzipped FITS."""

_LONGEST_TEXT = 4 << 10
"""Maximum number of bytes of text in an Index; longer text stays in its file."""


def is_image(begin: bytes) -> bool:
    """Return whether a value begins like one of the formats that Readers read."""
    return begin.startswith(IMAGES)


def as_text(value: bytes) -> str | None:
    """Return a short value as text; None for images, and for bytes that are not UTF-8."""
    if len(value) > _LONGEST_TEXT or is_image(value):
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
