"""Keep glibc from returning freed memory to the kernel (mallopt).

The next sample needs as much memory again, and the kernel clears each new page. For a window of a
FITS image this took longer than copying the bytes of the file.
"""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt(3), from malloc.h."""
_THRESHOLDS = (1 << 30, 32 << 20)
"""Thresholds in bytes, largest first. Some versions of glibc accept at most 32 MiB for mmap."""


def keep_freed_memory() -> None:
    """Let this process keep freed memory."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # not glibc
        return
    mallopt(_M_TRIM_THRESHOLD, _THRESHOLDS[0])
    any(mallopt(_M_MMAP_THRESHOLD, threshold) for threshold in _THRESHOLDS)
