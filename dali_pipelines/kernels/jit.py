"""The decorators of the kernels, see `readers.cache.jit`: numba's, for CPUs and for GPUs."""

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
        Threads of its blocks, and how many blocks an SM has to run at a time: for so many, threads
        get fewer registers.
    """
    from numba import cuda
    from numba.cuda.core import config  # it does not read the settings of numba itself

    if function is None:
        return partial(cuda_jit, launch_bounds=launch_bounds)
    return JIT.cached(partial(cuda.jit, launch_bounds=launch_bounds), function, config)
