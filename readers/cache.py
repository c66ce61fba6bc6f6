"""Where this project keeps what it makes once and reads again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return this project's folder in the user's cache (XDG Base Directory Specification)."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".cache") / "dali-pipelines"
