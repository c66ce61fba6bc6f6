"""DALI keeps the host memory of its outputs for the next batch, where glibc would give it back.

Pages that come anew from the kernel are cleared as they are touched, which on a virtual machine
takes up to two thirds of the time that decoding into them takes. Blocks of more than 32 MiB DALI
keeps by itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_VARIABLE = "DALI_MALLOC_POOL_THRESHOLD"
"""Its manual says that blocks *below* are kept. DALI 2.4 keeps those above: count page faults."""
_THRESHOLD = "1M"


@contextmanager
def outputs_kept() -> Iterator[None]:
    """Let the first pipeline of this process, which DALI makes meanwhile, set that up.

    An environment variable is DALI's only way in. One that is set already is obeyed.
    """
    if _VARIABLE in os.environ:
        yield
        return
    os.environ[_VARIABLE] = _THRESHOLD
    try:
        yield
    finally:
        os.environ.pop(_VARIABLE, None)
