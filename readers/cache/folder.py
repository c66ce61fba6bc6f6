"""Folder of the user's cache."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from platformdirs import user_cache_path


def cache_folder() -> Path:
    """Return this project's folder in the user's cache (XDG Base Directory Specification).

    If it is not writable, e.g. in a container that runs as another user, return a private folder of
    this user in the folder of temporary files. The folder in the user's cache may not exist yet.
    """
    folder = user_folder()
    return folder if is_writable(folder) else _temporary() or folder


def user_folder() -> Path:
    """Return this project's folder in the user's cache, writable or not."""
    try:
        return user_cache_path("dali-pipelines")
    except RuntimeError:  # no HOME, and an unknown user
        return Path("/.cache/dali-pipelines")


def is_writable(folder: Path) -> bool:
    """Return whether this process can write to a folder, or create it."""
    # Not Path.exists(), which raises PermissionError below some folders.
    while not os.path.exists(folder) and folder != folder.parent:
        folder = folder.parent
    return os.access(folder, os.W_OK | os.X_OK)


def _temporary() -> Path | None:
    """Make a temporary folder for all processes of this user; None if others could write to it.

    It holds compiled code. Another user who could write to it could run code as this user.
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
