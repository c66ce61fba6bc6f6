"""Folders for settings of Matplotlib and SunPy, if those of the user cannot be written."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from platformdirs import user_cache_path, user_config_path

from readers.cache.folder import cache_folder, is_writable

_FOLDERS: dict[str, tuple[str, tuple[Callable[[str], Path], ...]]] = {
    "Matplotlib": ("MPLCONFIGDIR", (user_config_path, user_cache_path)),
    "SunPy": ("SUNPY_CONFIGDIR", (user_config_path,)),
}
"""For each library: the environment variable that sets its folder, and its default folders."""


def use_writable_folders() -> None:
    """Set other folders for Matplotlib and SunPy before they are imported, and say so.

    Without a folder SunPy cannot be imported, and Matplotlib searches for fonts in each process.
    """
    for library, (variable, found) in _FOLDERS.items():
        name = library.lower()
        given = os.environ.get(variable)
        try:
            wanted = [Path(given)] if given else [each(name) for each in found]
        except RuntimeError:  # no HOME, and an unknown user
            wanted = [Path("/.config") / name]
        refused = [folder for folder in wanted if not is_writable(folder)]
        if not refused:
            continue
        own = cache_folder() / "config" / name
        with suppress(OSError):  # the library reports the error
            own.mkdir(parents=True, exist_ok=True)
            os.environ[variable] = str(own)
            print(f"{refused[0]} is not writable: {library} uses {own} instead", file=sys.stderr)
