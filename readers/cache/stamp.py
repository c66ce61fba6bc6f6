"""Hash of source files: what is compiled of them is used only while it stays."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path


def stamp_of(files: Iterable[Path]) -> str:
    """Return a hash of the contents of files, and of this package, which compiles them."""
    ours = Path(__file__).parent.glob("*.py")
    contents = b"".join(file.read_bytes() for file in (*sorted(ours), *sorted(files)))
    return hashlib.sha256(contents).hexdigest()
