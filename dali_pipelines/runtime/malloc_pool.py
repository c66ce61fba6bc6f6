"""Let DALI keep the host memory of its outputs for the next batch.

Otherwise glibc returns it to the kernel, which clears each new page when it is first touched. On a
virtual machine this takes up to two thirds as long as decoding into the page. By default DALI only
keeps blocks of more than 32 MiB.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_VARIABLE = "DALI_MALLOC_POOL_THRESHOLD"
"""According to DALI's manual, blocks *below* this size are kept; DALI 2.4 keeps those above it
(measured by page faults)."""
_THRESHOLD = "1M"


@contextmanager
def outputs_kept() -> Iterator[None]:
    """Set DALI's variable while the first pipeline of this process is built, when DALI reads it.

    DALI has no other way to set this. If the variable is set already, it stays.
    """
    if _VARIABLE in os.environ:
        yield
        return
    os.environ[_VARIABLE] = _THRESHOLD
    try:
        yield
    finally:
        os.environ.pop(_VARIABLE, None)
