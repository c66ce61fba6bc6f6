"""Death by a hostile file; imports nothing else, as interpreters are started for it."""

from __future__ import annotations

import os
import signal


def die_of(name: str) -> str:
    """Return the name, or kill this process if it is that of a deadly file."""
    if name.startswith("deadly"):
        os.kill(os.getpid(), signal.SIGSEGV)
    return name
