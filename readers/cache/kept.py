"""A cache of compiled kernels on disk, valid until a kernel changes.

numba's cache only checks the file of a function: after a change in another file that the function
calls, it would use the old code. And where it finds no writable folder, as in containers whose
packages and HOME are read-only, it neither keeps code nor finds what is kept there.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import cache
from inspect import getfile
from multiprocessing import current_process, parent_process
from pathlib import Path
from typing import Any, ClassVar

from numba.core import config
from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    IndexDataCacheFile,
)

from readers.cache.folder import cache_folder

logger = logging.getLogger(__name__)

# NUMBA_CACHE_DIR, beside the file, in the user's cache folder; older versions have other names.
_Provided, _InTree, _UserWide = CompileResultCacheImpl._locator_classes[:3]


class _OwnFolder(_Provided):  # type: ignore[misc, valid-type]
    """Keep code in our folder, where numba's can be written nowhere."""

    def __init__(self, function: Any, file: str) -> None:
        super().__init__(function, file)
        self._cache_path = str(own_folder() / self.get_suitable_cache_subpath(file))

    @classmethod
    def from_function(cls, function: Any, file: str) -> Any:
        return super(_Provided, cls).from_function(function, file)


class _Nowhere(_InTree):  # type: ignore[misc, valid-type]
    """Keep nothing: nowhere can be written."""

    @classmethod
    def from_function(cls, function: Any, file: str) -> Any:
        return cls(function, file)


class KernelCacheImpl(CompileResultCacheImpl):
    """The form of the code on disk, and its folders."""

    _locator_classes = (*CompileResultCacheImpl._locator_classes, _OwnFolder, _Nowhere)


class KernelCache(FunctionCache):
    """numba's cache of a function, valid for a stamp; it also loads what it cannot write.

    So kernels that were compiled while an image was built are found where its files are read-only.
    """

    _impl_class = KernelCacheImpl
    compiled: ClassVar[int] = 0
    """Number of functions that this process has not found, and so compiled."""

    def __init__(self, function: Any, stamp: str) -> None:
        super().__init__(function)
        self._cache_file._source_stamp = stamp
        self._read_only = [
            IndexDataCacheFile(folder, self._impl.filename_base, stamp)
            for folder in _folders(function)
            if folder != self.cache_path
        ]

    def _load_overload(self, signature: Any, target: Any) -> Any:
        found = super()._load_overload(signature, target)
        key = self._index_key(signature, target.codegen())
        for folder in self._read_only if found is None else ():
            with suppress(OSError):  # a folder of another user
                kept = folder.load(key)
                if kept is not None:
                    return self._impl.rebuild(target, kept)
        return found

    def _save_overload(self, signature: Any, result: Any) -> None:
        KernelCache.compiled += 1
        locator = self._impl.locator
        if isinstance(locator, _Nowhere):
            log_once("each process compiles its kernels again, for 6 s: nowhere can be written")
            return
        if isinstance(locator, _OwnFolder):
            log_once(f"compiled kernels are kept in {own_folder()} for now")
        super()._save_overload(signature, result)


def _folders(function: Any) -> list[str]:
    """Return where numba keeps code of a function if it can write there, the first choice first."""
    locators = [_InTree, _UserWide]
    if config.CACHE_DIR:
        locators.insert(0, _Provided)
    return [locator(function, getfile(function)).get_cache_path() for locator in locators]


def own_folder() -> Path:
    """Return our folder for compiled code."""
    return cache_folder() / "numba"


@cache
def log_once(message: str) -> None:
    """Log where compiled code is kept, and what would be better."""
    # Not in reader processes and their fork server, which import the script again.
    if parent_process() is None and not getattr(current_process(), "_inheriting", False):
        remedy = "set NUMBA_CACHE_DIR to a folder that can be written, and that lasts"
        logger.warning("%s: %s", message, remedy)
