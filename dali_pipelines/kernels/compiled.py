"""Compilation by numba, cached on disk until a kernel changes.

numba's cache only checks the file of a function: after a change in another file that the function
calls, it would use the old code. And where it finds no writable folder, as in containers whose
packages and HOME are read-only, it fails: then it gets another folder.
"""

from __future__ import annotations

import hashlib
import logging
import tempfile
from collections.abc import Callable
from functools import cache
from multiprocessing import current_process, parent_process
from pathlib import Path
from typing import Any

from numba import njit
from numba.core import config

import readers.fits.payload
import readers.targets.nearest
from readers.cache import cache_folder

logger = logging.getLogger(__name__)


def _stamp(files: list[Path]) -> str:
    contents = b"".join(file.read_bytes() for file in sorted(files))
    return hashlib.sha256(contents).hexdigest()


_CONSTANTS = readers.fits.payload.__file__, readers.targets.nearest.__file__
STAMP = _stamp([*Path(__file__).parent.rglob("*.py"), *map(Path, _CONSTANTS)])
"""Hash of all files with kernels, and with constants of theirs."""


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a kernel, or a part of one, when it is first called; it runs without the GIL.

    Only kernels call private functions: these cannot be called from Python.
    """
    return stamped(kept(njit, nogil=True, **_without_wrappers(function))(function))


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a part of a kernel as `compiled` does, and copy it to where it is called.

    Without, a loop that calls a large function does not become vectors.
    """
    options = _without_wrappers(function)
    return stamped(kept(njit, nogil=True, forceinline=True, **options)(function))


def contracted(function: Callable[..., Any]) -> Any:
    """Compile as `compiled` does, and allow fused multiplication and addition."""
    options = _without_wrappers(function)
    return stamped(kept(njit, nogil=True, fastmath={"contract"}, **options)(function))


def _without_wrappers(function: Callable[..., Any]) -> dict[str, bool]:
    """Return options that leave out what Python and C call, a tenth of the time to compile."""
    private = function.__name__.startswith("_")
    return {"no_cpython_wrapper": private, "no_cfunc_wrapper": private}


def stamped(dispatcher: Any) -> Any:
    """Make the cache of a function compiled by numba depend on all kernels."""
    kept_in = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if kept_in is not None:  # None without a folder
        # Private to numba; its only alternative is to put all kernels into one file.
        kept_in._source_stamp = STAMP
    return dispatcher


def kept(jit: Callable[..., Any], *signature: Any, **options: Any) -> Callable[..., Any]:
    """Return a decorator of numba that caches compiled code, wherever possible.

    Parameters
    ----------
    jit : callable
        numba's njit, cfunc or cuda.jit.
    *signature, **options
        Its arguments.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return jit(*signature, cache=True, **options)(function)
        except RuntimeError as error:
            if "no locator available" not in str(error):
                raise
        folder = _folder()
        if folder is None:
            return jit(*signature, **options)(function)
        given, config.CACHE_DIR = config.CACHE_DIR, folder
        try:
            return jit(*signature, cache=True, **options)(function)
        finally:
            config.CACHE_DIR = given

    return decorate


@cache
def _folder() -> str | None:
    """Return a folder for compiled code where numba finds none, and log it once."""
    folder = cache_folder() / "numba"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        _log(f"each process compiles its kernels again, for 15 s ({error})")
        return None
    _log(f"compiled kernels are kept in {folder} for now")
    return str(folder)


def _log(message: str) -> None:
    # Not in reader processes and their fork server, which import the script again.
    if parent_process() is None and not getattr(current_process(), "_inheriting", False):
        remedy = "set NUMBA_CACHE_DIR to a folder that can be written, and that lasts"
        logger.warning("%s: %s", message, remedy)
