"""Where this project keeps what it makes once and reads again."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path


def cache_folder() -> Path:
    """Return this project's folder in the user's cache (XDG Base Directory Specification).

    Where that cannot be written, as in a container that runs as another user, it is a folder of
    this user alone in the one for temporary files. The first may not exist yet.
    """
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    folder = (given if given.is_absolute() else _home() / ".cache") / "dali-pipelines"
    return folder if _can_be_written(folder) else _temporary() or folder


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:  # no HOME, and a user that the system does not know
        return Path("/")


def _can_be_written(folder: Path) -> bool:
    """Return whether this process can write into a folder, or make it."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return os.access(folder, os.W_OK | os.X_OK)


def _temporary() -> Path | None:
    """Make a folder that is the same for all processes of this user, and for nobody else.

    Code that was compiled is kept there: whoever could write it could run code as this user.
    """
    try:
        parent = Path(tempfile.gettempdir())
        folder = parent / f"dali-pipelines-{os.geteuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        above, own = parent.stat(), folder.lstat()
    except OSError:
        return None
    anybody_renames = above.st_mode & stat.S_IWOTH and not above.st_mode & stat.S_ISVTX
    others_write = own.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    is_own = stat.S_ISDIR(own.st_mode) and own.st_uid == os.geteuid()
    return folder if is_own and not others_write and not anybody_renames else None
