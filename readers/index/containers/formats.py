"""Detect by their bytes whether values are encoded images or text."""

from __future__ import annotations

IMAGES = (
    *(b"\xff\xd8\xff", b"\x89PNG", b"BM", b"RIFF", b"II*\0", b"MM\0*", b"\x93NUMPY", b"SIMPLE  ="),
    *(b"\0\0\0\x0cjP", b"\xff\x4f\xff\x51", b"\x1f\x8b", *(b"P%d" % kind for kind in range(1, 7))),
)
"""First bytes of the formats that Readers read, including gzipped FITS."""

_LONGEST_TEXT = 4 << 10
"""Maximum number of bytes of a value in an Index; larger values stay in their file."""


def is_image(begin: bytes) -> bool:
    """Return whether a value is in one of the formats that Readers read, by its first bytes."""
    return begin.startswith(IMAGES)


def as_text(value: bytes) -> str | None:
    """Return a short value as text; None for images, and for bytes that are not UTF-8."""
    if len(value) > _LONGEST_TEXT or is_image(value):
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
