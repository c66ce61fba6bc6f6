"""Silence warnings of libraries in several threads at once."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_entered: list[warnings.catch_warnings[None]] = []
"""Who changed the filters, once for each thread that is inside."""


@contextmanager
def without_warnings() -> Iterator[None]:
    """Ignore warnings of odd headers and values; that a FITS file is truncated becomes an error.

    ``warnings.catch_warnings`` restores the filters that one thread found while another still needs
    its own. Here the first thread that enters sets them, and the last one restores them.
    """
    with _lock:
        if not _entered:
            _entered.append(warnings.catch_warnings())
            _entered[0].__enter__()
            warnings.simplefilter("ignore")
            # astropy accepts truncated files.
            warnings.filterwarnings("error", message="File may have been truncated")
        _entered.append(_entered[0])
    try:
        yield
    finally:
        with _lock:
            _entered.pop()
            if len(_entered) == 1:
                _entered.pop().__exit__(None, None, None)
