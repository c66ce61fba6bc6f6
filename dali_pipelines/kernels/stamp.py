"""Hash of the source of all kernels, without an import of numba."""

from __future__ import annotations

from pathlib import Path

import readers.fits.payload
import readers.targets.nearest
from readers.cache.stamp import stamp_of

_CONSTANTS = readers.fits.payload.__file__, readers.targets.nearest.__file__
STAMP = stamp_of([*Path(__file__).parent.rglob("*.py"), *map(Path, _CONSTANTS)])
"""Of all files with kernels, and with constants of theirs."""
