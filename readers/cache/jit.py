"""Decorators of numba with a cache on disk, in a folder named by a hash of the sources.

numba notices a change in the file of a function, but not in the files of other functions that the
function calls. Without the hash it would use the old code.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property, partial
from multiprocessing import current_process, parent_process
from pathlib import Path
from typing import Any

from readers.cache.folder import cache_folder, user_folder
from readers.cache.locks import locked
from readers.fork_safe_lock import ForkSafeLock

logger = logging.getLogger(__name__)

_COMPILED_BY_S = 300.0
"""Seconds to wait while another process compiles. It may be stopped, so the wait has an end."""
_SETTING = ForkSafeLock()
"""Held while numba's setting of the folder is changed: all threads share the setting."""


def source_hash(files: Iterable[Path]) -> str:
    """Return a hash of the contents of files."""
    contents = b"".join(file.read_bytes() for file in sorted(files))
    return hashlib.sha256(contents).hexdigest()[:16]


class Jit:
    """Decorators for numba's compilation on the first call.

    Parameters
    ----------
    files : iterable of Path
        All files with the decorated functions and their constants.
    """

    def __init__(self, files: Iterable[Path]) -> None:
        self.source_hash = source_hash(files)
        """Hash of the files. It names the folder with the compiled code."""

    def njit(self, function: Callable[..., Any] | None = None, **options: Any) -> Any:
        """Compile like ``numba.njit`` with these options; the code runs without the GIL.

        A loop over calls of a large function is vectorized only if the function has
        ``forceinline=True``. ``inline="always"`` saves two atomic operations for each array.
        """
        import numba

        if function is None:
            return partial(self.njit, **options)
        return self.cached(partial(numba.njit, nogil=True, **options), function, numba.config)

    def cfunc(self, signature: Any) -> Callable[[Callable[..., Any]], Any]:
        """Compile a C callback at once, like ``numba.cfunc``."""
        import numba

        compiled = partial(numba.cfunc, signature)
        return lambda function: self.cached(compiled, function, numba.config)

    def cached(
        self, decorator: Callable[..., Any], function: Callable[..., Any], config: Any
    ) -> Any:
        """Return ``decorator(cache=True)(function)``, with the compiled code in `folder`.

        `config` is the settings of numba or numba-cuda. If no folder is writable, each process
        compiles for itself.
        """
        if self.folder is None:
            return decorator()(function)
        with _SETTING:
            given, config.CACHE_DIR = config.CACHE_DIR, str(self.folder)
            try:
                return decorator(cache=True)(function)
            finally:
                config.CACHE_DIR = given

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait until no other process compiles in the folder.

        Readers start at the same time and would all compile the same code. If two processes save a
        function for different types at the same time, numba may also mix up the code.
        """
        with ExitStack() as stack:
            if self.folder is not None:
                with suppress(OSError):  # without a lock each process compiles
                    stack.enter_context(locked(str(self.folder / "lock"), 0, 1, _COMPILED_BY_S))
            yield

    @cached_property
    def folder(self) -> Path | None:
        """Folder in NUMBA_CACHE_DIR or the user's cache; None if neither is writable."""
        own = cache_folder() / "numba" / self.source_hash
        found = False
        if given := os.environ.get("NUMBA_CACHE_DIR"):
            shared = Path(given).absolute() / self.source_hash
            if _is_writable(shared):
                return shared
            if found := os.path.isdir(shared):
                _copy(shared, own)  # numba reads a folder only if it is writable
        if not _is_writable(own):
            _warn("no folder is writable: each process compiles its kernels again, for 10 to 20 s")
            return None
        if (given or cache_folder() != user_folder()) and not found:
            _warn(f"compiled kernels are kept in {own} for now")
        return own


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def _copy(folder: Path, target: Path) -> None:
    """Copy a folder unless the copy exists. Several processes may copy at the same time."""
    if os.path.isdir(target):
        return
    with suppress(OSError):
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as name:
            made = Path(name, target.name)
            shutil.copytree(folder, made)
            for each in (made, *made.rglob("*")):
                each.chmod(0o700 if each.is_dir() else 0o600)
            made.rename(target)


def _warn(message: str) -> None:
    # Only once: reader processes and their fork server import the script again.
    if parent_process() is None and not getattr(current_process(), "_inheriting", False):
        remedy = "set NUMBA_CACHE_DIR to a writable folder that lasts"
        logger.warning("%s: %s", message, remedy)
