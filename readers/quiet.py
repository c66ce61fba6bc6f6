"""Silence warnings of libraries in several threads at once."""

from __future__ import annotations

import warnings
from typing import Any

from readers.fork_safe_lock import ForkSafeLock


class _Silence:
    """Context manager that ignores warnings while any thread is inside.

    ``warnings.catch_warnings`` in one thread restores the filters while another thread still needs
    them. Here the first thread to enter sets the filters, and the last thread to leave restores
    them.
    """

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._inside = 0
        self._before: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._before = warnings.catch_warnings()
                self._before.__enter__()
                warnings.simplefilter("ignore")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._before.__exit__(None, None, None)


without_warnings = _Silence()
"""Context manager that ignores all warnings."""
