"""The largest images that are read: those that DALI decodes, in place of Pillow's own limit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from PIL import Image

MAX_PIXELS = 1 << 30
"""Pixels of an image, which take 3 GiB in RGB of 8 bits. More are not decoded by OpenCV, which
DALI 2.4 calls on CPUs."""
_LARGEST_SIDES = {"JPEG": 65_500, "PNG": 1_000_000}
"""Rows or columns that libjpeg and libpng decode."""
_LARGEST_SIDE = 1 << 20
"""Rows or columns of other formats that OpenCV decodes."""

MAX_NBYTES = (1 << 31) - 1
"""Bytes of a file that OpenCV decodes."""

_Result = TypeVar("_Result")
_lock = threading.Lock()


def check_pixels(kind: str, height: int, width: int) -> None:
    """Raise OSError if DALI does not decode images of this size, of a format named as by Pillow."""
    if height * width > MAX_PIXELS:
        raise OSError(
            f"{height}x{width} pixels (height x width) are more than the {MAX_PIXELS} that are "
            "decoded: save it in several files"
        )
    if max(height, width) > (side := _LARGEST_SIDES.get(kind, _LARGEST_SIDE)):
        raise OSError(
            f"{height}x{width} pixels (height x width), and {kind} images of up to {side} rows and "
            "columns are decoded: save it in several files"
        )


def check_nbytes(nbytes: int) -> None:
    """Raise OSError if DALI does not decode files of so many bytes."""
    if nbytes > MAX_NBYTES:
        raise OSError(
            f"the file has {nbytes} bytes, more than the {MAX_NBYTES} that are decoded: save it in "
            "several files"
        )


def of_any_size(read: Callable[[], _Result]) -> _Result:
    """Return what a function reads by Pillow, of up to `MAX_PIXELS` pixels; else raise OSError.

    `Image.MAX_IMAGE_PIXELS` is the user's, and one for all threads: it is changed only where it
    refused an image, for one image at a time, and put back afterwards, unless it was set meanwhile.
    """
    try:
        return read()
    except Image.DecompressionBombError:
        pass
    own = MAX_PIXELS // 2  # Pillow warns of more, and refuses twice as many
    with _lock:
        before, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, own
        try:
            return read()
        except Image.DecompressionBombError as error:
            raise OSError(
                f"it has more than the {MAX_PIXELS} pixels that are decoded: save it in several "
                "files"
            ) from error
        finally:
            if own == Image.MAX_IMAGE_PIXELS:
                Image.MAX_IMAGE_PIXELS = before
