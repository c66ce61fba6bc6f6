"""List the objects of remote storage."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from readers.places.failures import NoBucketError, requesting
from readers.places.remote import RemotePlace
from readers.places.storage import Storage
from readers.places.stores import store_of, waited
from readers.places.urls import located

_AT_ONCE = 1000


class Listed(NamedTuple):
    """An object of a store."""

    url: str
    nbytes: int
    etag: str | None
    is_hidden: bool
    """Whether its name, or the name of a folder below the listed URL, begins with a dot."""


def objects(url: str, storage: Storage) -> Iterator[Listed]:
    """Yield the objects below a URL, the matches of a pattern, or the object of the URL.

    Patterns need a store with listings. ``*`` matches any characters except a slash, ``**`` any
    characters; neither matches a dot at the beginning of a name.

    Raises
    ------
    FileNotFoundError
        If there is no such object.
    OSError
        If the objects cannot be listed.
    ValueError
        If the URL is a folder of a web server.
    """
    root, key = located(url)
    if root.startswith("http"):
        if not key or key.endswith("/"):
            raise ValueError(
                f"{url}: web servers do not list folders; pass URLs of files, in an iterable or in "
                "the column path of a .csv file"
            )
        yield object_at(url, storage)
        return
    is_pattern, found = "*" in key, False
    matches = _pattern(key).fullmatch
    if is_pattern:
        key = key.partition("*")[0].rpartition("/")[0]
    store = store_of(root, storage)
    with requesting(url, storage):
        chunks = iter(store.list(key, chunk_size=_AT_ONCE))
        while chunk := waited(storage, next, chunks, ()):
            for meta in chunk:
                if is_pattern and not matches(meta["path"]):
                    continue
                found = True
                # A hidden name matches only a pattern with its dot.
                is_hidden = not is_pattern and "/." in f"/{meta['path'].removeprefix(key)}"
                yield Listed(f"{root}/{meta['path']}", meta["size"], meta["e_tag"], is_hidden)
    known = "patterns may only have *, ** and {0..9}, " if set(url) & set("?[{") else ""
    if is_pattern and not found:
        raise FileNotFoundError(f"{known}no object matches the pattern: {url!r}")
    if not found and key:
        missing = f"{known}there is no such object or folder: {url!r}"
        if key.endswith("/"):
            raise FileNotFoundError(missing)
        try:
            yield object_at(url, storage)
        except NoBucketError:
            raise
        except FileNotFoundError:
            raise FileNotFoundError(missing) from None


def folders(url: str, storage: Storage) -> list[str]:
    """Return the names of the folders in a folder; [] for a web server. OSError if it fails."""
    root, key = located(url)
    if root.startswith("http"):
        return []
    store = store_of(root, storage)
    with requesting(url, storage):
        listed = waited(storage, store.list_with_delimiter, key.rstrip("/"))
    return [prefix.rstrip("/").rpartition("/")[2] for prefix in listed["common_prefixes"]]


def _pattern(key: str) -> re.Pattern[str]:
    """Return the regular expression of a pattern of keys."""
    shown = r"(?!(?<![^/])\.)"  # not followed by a dot at the beginning of a name
    stars = {
        "**/": f"(?:(?:{shown}.)*/)?",
        "**": f"(?:{shown}.)*",
        "*": f"(?:{shown}[^/])*",
    }
    parts = re.split(r"(\*\*/|\*\*|\*)", key)
    return re.compile("".join(stars.get(part) or re.escape(part) for part in parts), re.DOTALL)


def object_at(url: str, storage: Storage) -> Listed:
    """Return the object of a URL, after a request for its first byte.

    Not a HEAD request: its answer may have another ETag, and does not show whether the server sends
    ranges.
    """
    with RemotePlace(url, storage) as place:
        place.look(1)
        return Listed(url, place.nbytes, place.etag, False)
