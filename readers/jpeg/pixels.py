"""Limits of image sizes: DALI's limits in place of Pillow's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from PIL import Image

from readers.fork_safe_lock import ForkSafeLock

MAX_PIXELS = 1 << 30
"""Maximum number of pixels of an image (3 GiB in 8-bit RGB), the limit of OpenCV in DALI 2.4."""
_LARGEST_SIDES = {"JPEG": 65_500, "PNG": 1_000_000}
"""Maximum number of rows or columns that libjpeg and libpng decode."""
_LARGEST_SIDE = 1 << 20
"""Maximum number of rows or columns that OpenCV decodes in other formats."""

MAX_NBYTES = (1 << 31) - 1
"""Largest file that OpenCV decodes, in bytes."""

_Result = TypeVar("_Result")
_lock = ForkSafeLock()


def check_pixels(kind: str, height: int, width: int) -> None:
    """Raise OSError if DALI does not decode images of this size; `kind` is Pillow's format."""
    if height * width > MAX_PIXELS:
        raise OSError(
            f"the image has {height}x{width} pixels (height x width), the limit is {MAX_PIXELS}: "
            "save it in several files"
        )
    if max(height, width) > (side := _LARGEST_SIDES.get(kind, _LARGEST_SIDE)):
        raise OSError(
            f"the image has {height}x{width} pixels (height x width), the limit for {kind} is "
            f"{side} rows or columns: save it in several files"
        )


def check_nbytes(nbytes: int) -> None:
    """Raise OSError if DALI does not decode files of this many bytes."""
    if nbytes > MAX_NBYTES:
        raise OSError(
            f"the file has {nbytes} bytes, the limit is {MAX_NBYTES}: save it in several files"
        )


def of_any_size(read: Callable[[], _Result]) -> _Result:
    """Return an image that a function reads with Pillow; OSError above `MAX_PIXELS` pixels.

    `Image.MAX_IMAGE_PIXELS` is the user's setting, shared by all threads. It is only changed if
    Pillow refuses an image, for one image at a time. Afterwards it is restored, unless the user has
    set it meanwhile.
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
                f"the image has more than {MAX_PIXELS} pixels, the limit: save it in several files"
            ) from error
        finally:
            if own == Image.MAX_IMAGE_PIXELS:
                Image.MAX_IMAGE_PIXELS = before
