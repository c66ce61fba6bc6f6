"""Limits of image sizes: those that DALI decodes, in place of Pillow's own limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from PIL import Image

from readers.fork_safe_lock import ForkSafeLock

MAX_PIXELS = 1 << 30
"""Most pixels of an image, which take 3 GiB in RGB of 8 bits. OpenCV, which DALI 2.4 uses on CPUs,
does not decode more."""
_LARGEST_SIDES = {"JPEG": 65_500, "PNG": 1_000_000}
"""Most rows or columns that libjpeg and libpng decode."""
_LARGEST_SIDE = 1 << 20
"""Most rows or columns of other formats that OpenCV decodes."""

MAX_NBYTES = (1 << 31) - 1
"""Most bytes of a file that OpenCV decodes."""

_Result = TypeVar("_Result")
_lock = ForkSafeLock()


def check_pixels(kind: str, height: int, width: int) -> None:
    """Raise OSError if DALI does not decode images of this size; `kind` is Pillow's format name."""
    if height * width > MAX_PIXELS:
        raise OSError(
            f"{height}x{width} pixels (height x width) exceed the limit of {MAX_PIXELS}: "
            "save it in several files"
        )
    if max(height, width) > (side := _LARGEST_SIDES.get(kind, _LARGEST_SIDE)):
        raise OSError(
            f"{height}x{width} pixels (height x width) exceed the limit of {side} rows or columns "
            f"for {kind}: save it in several files"
        )


def check_nbytes(nbytes: int) -> None:
    """Raise OSError if DALI does not decode files of this many bytes."""
    if nbytes > MAX_NBYTES:
        raise OSError(
            f"the file has {nbytes} bytes, more than the limit of {MAX_NBYTES}: save it in "
            "several files"
        )


def of_any_size(read: Callable[[], _Result]) -> _Result:
    """Return an image that a function reads with Pillow; OSError above `MAX_PIXELS` pixels.

    `Image.MAX_IMAGE_PIXELS` belongs to the user and is shared by all threads. It is only changed
    after it refused an image, for one image at a time, and then restored, unless it was set
    meanwhile.
    """
    try:
        return read()
    except Image.DecompressionBombError:
        pass
    own = MAX_PIXELS // 2  # Pillow warns above it, and refuses twice as many
    with _lock:
        before, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, own
        try:
            return read()
        except Image.DecompressionBombError as error:
            raise OSError(
                f"it has more than the limit of {MAX_PIXELS} pixels: save it in several files"
            ) from error
        finally:
            if own == Image.MAX_IMAGE_PIXELS:
                Image.MAX_IMAGE_PIXELS = before
