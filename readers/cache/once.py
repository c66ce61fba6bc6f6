"""One process compiles, and others that need the same meanwhile wait for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from readers.cache.folder import cache_folder
from readers.cache.locks import locked

_COMPILED_BY_S = 300.0


@contextmanager
def one_compiles(name: str) -> Iterator[None]:
    """Hold the lock of this name; readers start at the same time, and would all compile."""
    folder = cache_folder()
    with ExitStack() as stack:
        with suppress(OSError):  # without the lock each compiles for itself
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(str(folder / f"{name}.lock"), 0, 1, _COMPILED_BY_S))
        yield
