"""The decorators of the kernels for the CPU, see `readers.cache.compiled`, and for GPUs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from dali_pipelines.kernels.stamp import STAMP
from readers.cache.compiled import Compiler
from readers.cache.kept import log_once, own_folder

_compiler = Compiler(STAMP)
compiled, inlined, contracted = _compiler.compiled, _compiler.inlined, _compiler.contracted
optimized, callback = _compiler.optimized, _compiler.callback


def compiled_for_gpus(
    function: Callable[..., Any], *, launch_bounds: tuple[int, int] | None = None
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

    make = partial(cuda.jit, launch_bounds=launch_bounds)
    try:
        kernel = make(cache=True)(function)
    except RuntimeError as error:
        if "no locator available" not in str(error):
            raise
        kernel = _in_own_folder(config, lambda: make(cache=True)(function))
    if kernel is None:
        return make()(function)
    kernel._cache._cache_file._source_stamp = STAMP
    return kernel


def _in_own_folder(settings: Any, make: Callable[[], Any]) -> Any:
    """Make something whose code is kept in our folder; None if that cannot be written."""
    given, settings.CACHE_DIR = settings.CACHE_DIR, str(own_folder())
    try:
        made = make()
    except RuntimeError:
        log_once("each process compiles its kernels again, for 6 s: nowhere can be written")
        return None
    finally:
        settings.CACHE_DIR = given
    log_once(f"compiled kernels are kept in {own_folder()} for now")
    return made
