"""The version of this package."""

from __future__ import annotations

import importlib.metadata
from functools import cache


@cache
def own_version() -> str:
    """Return the installed version, or "not installed" for a clone on the path."""
    try:
        return importlib.metadata.version("dali-pipelines")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
