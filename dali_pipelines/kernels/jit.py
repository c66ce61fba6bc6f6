"""Decorators of the kernels for CPUs and GPUs, see `readers.cache.jit`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import readers.fits.payload
import readers.targets.nearest
from readers.cache.jit import Jit

_CONSTANTS = readers.fits.payload.__file__, readers.targets.nearest.__file__
JIT = Jit([*Path(__file__).parent.rglob("*.py"), *map(Path, _CONSTANTS)])
njit, cfunc = JIT.njit, JIT.cfunc


def cuda_jit(
    function: Callable[..., Any] | None = None, *, launch_bounds: tuple[int, int] | None = None
) -> Any:
    """Compile a kernel for a GPU when it is first launched.

    Parameters
    ----------
    function : callable
        The kernel.
    launch_bounds : (int, int), optional
        Threads per block, and blocks that an SM must run concurrently. They limit the registers of
        a thread.
    """
    from numba import cuda
    from numba.cuda.core import config  # numba-cuda has its own settings

    if function is None:
        return partial(cuda_jit, launch_bounds=launch_bounds)
    return JIT.cached(partial(cuda.jit, launch_bounds=launch_bounds), function, config)
