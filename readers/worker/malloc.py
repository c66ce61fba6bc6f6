"""Reader processes keep the memory that they free: the next sample takes as much again.

glibc gives large blocks back to the kernel, which then clears each page of the next one as it is
touched: for a window of a FITS image that took longer than to copy the file's bytes there.
"""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""As in malloc.h; see mallopt(3)."""
_THRESHOLDS = (1 << 30, 32 << 20)
"""In bytes, the first that is accepted: some versions of glibc allow 32 MiB for mmap at most."""


def keep_freed_memory() -> None:
    """Let this process keep what it frees, up to the most that it ever took."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library than glibc
        return
    mallopt(_M_TRIM_THRESHOLD, _THRESHOLDS[0])
    any(mallopt(_M_MMAP_THRESHOLD, threshold) for threshold in _THRESHOLDS)
