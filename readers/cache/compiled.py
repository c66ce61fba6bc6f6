"""Compilation by numba, cached on disk until one of the files of a function changes.

With `kept`, `parts` and `loaded` the modules of this package that import numba, which takes 0.3 s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core.ccallback import CFunc

from readers.cache.kept import KernelCache
from readers.cache.parts import KernelDispatcher


class Compiler:
    """Decorators of kernels, and of parts of kernels.

    Parameters
    ----------
    stamp : str
        From `stamp_of`: what is cached is valid while it stays.
    """

    def __init__(self, stamp: str) -> None:
        self._stamp = stamp

    def compiled(self, function: Callable[..., Any]) -> Any:
        """Compile a kernel, or a part of one, when it is first called; it runs without the GIL."""
        return self._dispatcher(function)

    def inlined(self, function: Callable[..., Any]) -> Any:
        """Compile a part of a kernel as `compiled` does, and copy it to where it is called.

        Without, a loop that calls a large function does not become vectors.
        """
        return self._dispatcher(function, forceinline=True)

    def expanded(self, function: Callable[..., Any]) -> Any:
        """Write a part of a kernel out where it is called, before anything is compiled.

        Without, numba counts references to each array that is handed on: two atomic operations.
        """
        return self._dispatcher(function, inline="always")

    def contracted(self, function: Callable[..., Any]) -> Any:
        """Compile as `compiled` does, and allow fused multiplication and addition."""
        return self._dispatcher(function, fastmath={"contract"})

    def optimized(self, function: Callable[..., Any]) -> Any:
        """Compile a part of a kernel as `compiled` does, but optimise it alone first.

        As a part of a large kernel, some loops do not become as good.
        """
        return self._dispatcher(function, optimized=True)

    def _dispatcher(
        self, function: Callable[..., Any], *, optimized: bool = False, **options: Any
    ) -> KernelDispatcher:
        options = {"nopython": True, "nogil": True, **options}
        return KernelDispatcher(function, options, self._stamp, optimized=optimized)

    def callback(self, signature: Any) -> Callable[[Any], CFunc]:
        """Return a decorator that compiles a function that C calls, at once.

        Parameters
        ----------
        signature : numba.core.typing.Signature
            Types of the result and of the arguments.
        """

        def decorate(function: Any) -> CFunc:
            found: Any = CFunc(function, (signature.args, signature.return_type), {}, {})
            found._cache = KernelCache(function, self._stamp)
            found.compile()
            return found

        return decorate
