"""Compilation by numba, kept on disk until a kernel changes.

numba's cache looks at the file of a function alone: after a change in another file that the
function calls into, it would go on with the old code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit

import readers.plan


def _stamp(files: list[Path]) -> str:
    contents = b"".join(file.read_bytes() for file in sorted(files))
    return hashlib.sha256(contents).hexdigest()


STAMP = _stamp([*Path(__file__).parent.glob("*.py"), Path(readers.plan.__file__)])
"""Of all files that kernels are made of."""


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a kernel, or a part of one, when it is first called; it runs without the GIL."""
    return stamped(njit(nogil=True, cache=True)(function))


def contracted(function: Callable[..., Any]) -> Any:
    """Compile as `compiled` does, and let multiplication and addition become one operation."""
    return stamped(njit(nogil=True, cache=True, fastmath={"contract"})(function))


def stamped(dispatcher: Any) -> Any:
    """Make the cache of a function compiled by numba depend on all kernels."""
    if hasattr(dispatcher, "_cache"):  # not in the CUDA simulator
        # Private to numba, which offers no other way than to put all kernels into one file.
        dispatcher._cache._cache_file._source_stamp = STAMP
    return dispatcher
