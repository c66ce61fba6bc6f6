"""Files of a folder or a glob, in the order of their paths."""

from __future__ import annotations

import glob
import logging
import os
from collections.abc import Iterator

logger = logging.getLogger(__name__)


def find_files(text: str, suffixes: tuple[str, ...]) -> Iterator[str]:
    """Give the absolute paths of what a text names, sorted.

    Parameters
    ----------
    text : str
        A folder, which is searched with its subfolders; a file; or a glob.
    suffixes : tuple of str
        What to look for in a folder, lower case, with the dot.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    """
    if os.path.isdir(text):
        number = -1
        for number, path in enumerate(_below(os.path.abspath(text), suffixes)):  # noqa: B007
            yield path
        if number < 0:
            raise FileNotFoundError(f"{text}: no file in this folder ends in {', '.join(suffixes)}")
    elif os.path.isfile(text):
        yield os.path.abspath(text)
    elif not glob.has_magic(text):
        raise FileNotFoundError(
            f"{text}: no such folder or file; give a folder, a glob, a .csv or an Index file"
        )
    else:
        found = [os.path.abspath(path) for path in glob.iglob(text, recursive=True)]
        found = [path for path in found if os.path.isfile(path)]
        if not found:
            raise FileNotFoundError(f"{text}: no file matches this pattern")
        yield from sorted(found)


def _below(root: str, suffixes: tuple[str, ...]) -> Iterator[str]:
    """Give the files below a folder, links followed, each folder only once.

    Only the names of one folder on each level are held, so memory does not grow with the archive.
    As names of folders are sorted with their slash, all paths come sorted.
    """
    seen: set[tuple[int, int]] = set()
    prefix = os.path.join(root, "")
    levels = [(prefix, iter(_names(prefix, suffixes, seen)))]
    while levels:
        prefix, names = levels[-1]
        for name in names:
            if name.endswith("/"):
                levels.append((prefix + name, iter(_names(prefix + name, suffixes, seen))))
                break
            yield prefix + name
        else:
            levels.pop()


def _names(folder: str, suffixes: tuple[str, ...], seen: set[tuple[int, int]]) -> list[str]:
    """Give the sorted names of the files in a folder, and of its folders, with a slash."""
    try:
        status = os.stat(folder)
        identity = status.st_dev, status.st_ino
        if identity in seen:  # a link to a folder above, or a second one to the same
            return []
        seen.add(identity)
        with os.scandir(folder) as entries:
            named = [f"{entry.name}/" if _is_folder(entry) else entry.name for entry in entries]
    except OSError as error:
        logger.warning("left out: %s", error)
        return []
    return sorted(name for name in named if name.endswith("/") or name.lower().endswith(suffixes))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link in circles, say
        return False
