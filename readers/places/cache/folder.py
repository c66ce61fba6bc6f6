"""The folder of a cache: its mark tells it from folders with files of the user."""

from __future__ import annotations

import os
from pathlib import Path

from readers.cache.locks import locked

_MARK = "CACHEDIR.TAG"
_TEXT = """Signature: 8a477f597d28d172789f06886806bc55
# Cache of byte ranges, version 1, made by dali-pipelines. It may be deleted at any time.
# This file makes backup programs leave the folder out: https://bford.info/cachedir/
"""
LOCKS = "locks"


def prepare(folder: str) -> None:
    """Make the folder of a cache, or check that it is one.

    Raises
    ------
    ValueError
        If it holds other files, or is a cache of another version.
    OSError
        If it cannot be made or written, or has no locks.
    """
    os.makedirs(folder, mode=0o700, exist_ok=True)
    others = set(os.listdir(folder)) - {LOCKS}
    if _MARK not in others and others:
        raise ValueError(
            f"the folder of the cache holds other files, e.g. {min(others)!r}: {folder!r}. Give a "
            "new or an empty folder"
        )
    with locked(f"{folder}/{LOCKS}", 0, 1, patience_s=60):
        mark = Path(folder, _MARK)
        mark.touch(0o600)
        text = mark.read_text(encoding="ascii", errors="replace")
        if not text:  # also after a power cut
            os.chmod(folder, 0o700)
            mark.write_text(_TEXT, encoding="ascii")
        elif text != _TEXT:
            raise ValueError(
                f"the folder of the cache is one of another program or version: {folder!r}. Give "
                "another folder, or delete this one"
            )
