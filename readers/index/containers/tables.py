"""Find containers, scan them, and join their tables."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from readers.index.arrow import pa
from readers.index.containers.columns import joined
from readers.index.containers.kinds import Kind, Tar, TFRecord
from readers.index.paths import expanded
from readers.index.scan import find_files
from readers.index.skipped import HIDDEN, Skipped
from readers.places.failures import is_of_store
from readers.places.listing import objects
from readers.places.opener import LOCAL, Places
from readers.places.urls import check_url, is_url

Data = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]

_AT_ONCE = 16
"""Number of remote containers to scan concurrently."""
_TARS = (".tar", ".tgz", *(f".tar.{suffix}" for suffix in ("gz", "bz2", "xz", "zst")))
_BESIDE = (".idx", ".lst", "lock.mdb")
"""Suffixes of files that belong to containers."""


def containers_table(
    kind: Kind, data: Data, places: Places = LOCAL, skipped: Skipped | None = None
) -> pa.Table:
    """Return the table of all containers.

    `data` is a folder, a glob, a file, or paths. `skipped` counts the entries that are left out,
    and lists the files that cannot be read.

    Raises
    ------
    FileNotFoundError
        If there are no files.
    OSError
        If no file can be read, or remote storage does not answer.
    ValueError
        If no file can be read, or no row is left.
    """
    paths = container_paths(kind, data, places)
    with ThreadPoolExecutor(_AT_ONCE if any(map(is_url, paths)) else 1) as threads:
        scanned = threads.map(lambda path: scan_container(kind, path, places), paths)
        return joined_containers(kind, scanned, skipped)


def tfrecords_table(
    image: str, columns: Sequence[str] | Mapping[str, str] | None, data: Data, places: Places
) -> pa.Table:
    """Return the table of TFRecord files, see `readers.index.table.Index.from_tfrecord`."""
    if columns is not None and not isinstance(columns, Mapping):
        columns = {name: name for name in columns}
    table = containers_table(TFRecord(image, columns), data, places)
    for feature, name in (columns or {}).items():
        if not {name, f"{name}_path"} & set(table.column_names):
            raise KeyError(f"no record with an image has a feature {feature!r}")
    return table


def scan_container(
    kind: Kind, path: str, places: Places
) -> tuple[pa.Table | OSError | ValueError, Skipped]:
    """Return the table of a container, or its error, and the counts of entries left out.

    Raises
    ------
    OSError
        If remote storage does not answer or denies access: other containers would fail as well.
    """
    skipped = Skipped()
    try:
        with places.at(path) as place:
            return kind.table(place, places, skipped), skipped
    except (OSError, ValueError) as error:
        if is_of_store(error):
            raise
        reason = str(error).removeprefix(f"{path}: ").replace(f": {path!r}", "")
        skipped.reject(f"files that cannot be read as {kind.name}", path, reason)
        return error, skipped


def joined_containers(
    kind: Kind,
    scanned: Iterable[tuple[pa.Table | OSError | ValueError, Skipped]],
    skipped: Skipped | None = None,
) -> pa.Table:
    """Return the table of scanned containers; count and log the entries left out."""
    skipped = Skipped() if skipped is None else skipped
    tables, errors = list[pa.Table](), list[OSError | ValueError]()
    for found, left in scanned:
        if isinstance(found, OSError | ValueError):
            errors.append(found)
        else:
            tables.append(found)
        skipped.add_all(left)
    if not tables:
        raise errors[0]
    skipped.log()
    if not any(table.num_rows for table in tables):
        first = "".join(f"; {line}" for line in skipped.lines()[:1])
        raise ValueError(f"{len(tables)} {kind.name} files have no image{first}{kind.looked_for}")
    return joined(tables)


def container_paths(kind: Kind, data: Data, places: Places = LOCAL) -> list[str]:
    """Return the absolute paths and URLs of containers, see `containers_table`.

    In a text, ``{0000..0999}`` means each of these numbers, with as many digits.
    """
    if is_text := isinstance(data, str | os.PathLike):
        texts = expanded(os.fspath(data))
    else:
        texts = [os.fspath(path) for path in data]
    for url in filter(is_url, texts):
        check_url(url)
    # URLs in a list are objects. A listing for each would take long.
    found = (
        _files(kind, text, places) if is_text or not is_url(text) else [text] for text in texts
    )
    return [path for paths in found for path in paths]


def _files(kind: Kind, text: str, places: Places) -> Iterator[str]:
    if not is_url(text):
        yield from find_files(_file_in(kind, text), kind.suffixes, beside=_BESIDE)
        return
    found, skipped = [], Skipped()
    for each in objects(text, places.storage):
        if each.is_hidden:
            skipped.add(HIDDEN, each.url)
        else:
            found.append(each.url)
    chosen = found if found == [text] else [url for url in found if url.endswith(kind.suffixes)]
    if not chosen:
        raise FileNotFoundError(f"{text}: no object below it ends in {', '.join(kind.suffixes)}")
    yield from chosen
    skipped.log()


def peeked(data: Data) -> tuple[bool, Data]:
    """Return whether the first path or glob is a tar, maybe compressed; and the paths again."""
    if isinstance(data, str | os.PathLike):
        return os.fspath(data).endswith(_TARS), data
    paths = iter(data)
    first = list(itertools.islice(paths, 1))
    return any(os.fspath(path).endswith(_TARS) for path in first), itertools.chain(first, paths)


def has_tars(text: str, places: Places) -> bool:
    """Return whether there are tars in a folder, or below a URL."""
    if not (is_url(text) or os.path.isdir(text)):
        return False
    try:
        return any(_files(Tar(), text, places))
    except FileNotFoundError:
        return False


def _file_in(kind: Kind, path: str) -> str:
    """Return the path of the file in an LMDB folder; other paths unchanged."""
    file = os.path.join(path, "data.mdb")
    return file if "data.mdb" in kind.suffixes and os.path.isfile(file) else path
