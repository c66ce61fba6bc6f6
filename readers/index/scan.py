"""Find the files of a folder or a glob, in the order of their paths."""

from __future__ import annotations

import glob
import itertools
import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator

from readers.chunks.hdf5 import SUFFIXES as _ARRAYS
from readers.index.arrow import pa
from readers.index.paths import check_path, expanded, whole
from readers.index.schema import text_column
from readers.index.skipped import HIDDEN, Skipped
from readers.places.listing import objects
from readers.places.storage import Storage
from readers.places.urls import check_url, is_url

logger = logging.getLogger(__name__)

_MOST_KINDS = 5
"""Maximum number of suffixes that the message counts separately."""

_UNREADABLE = "files and folders that cannot be read"

_ARRAYS_BY = "use Index.{}, dali-pipelines index --variables all, or --pipeline=chunked"
"""How arrays are read, by the name of a method."""

SUFFIXES = {
    "fits": (".fits", ".fit", ".fts", ".fits.gz", ".fit.gz", ".fts.gz", ".fits.fz", ".fz"),
    "jpeg": (
        *(".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".bmp", ".webp", ".tif", ".tiff"),
        *(".pbm", ".pgm", ".ppm", ".pnm", ".jp2", ".j2k", ".jpf", ".jpx", ".j2c", ".jpc"),
        *(".avif", ".gif", ".apng", ".tga", ".dib", ".ico", ".icns", ".cur", ".pcx", ".psd"),
        *(".dds", ".qoi", ".sgi"),
    ),
    "npy": (".npy",),
    "audio": (
        *(".wav", ".wave", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aif", ".aiff", ".aifc"),
        *(".w64", ".rf64", ".au", ".caf", ".sph"),
    ),
    "video": (
        *(".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".3gp", ".3g2", ".flv", ".mts"),
        *(".mpg", ".mpeg", ".m2ts", ".ts", ".vob", ".ogv", ".wmv", ".asf", ".ivf", ".mxf", ".nut"),
    ),
}
"""Suffixes of files to find in a folder, with their format, in lower case; any case matches."""
_LISTS = (".parquet", ".arrow", ".csv", ".tar")
"""Suffixes of files that make many rows."""
_ZARR = ("zarr.json", ".zgroup", ".zarray")
"""A file that each folder of Zarr has."""
_PACKED = (".gz", ".tgz", ".bz2", ".xz", ".zst")
FORMATS = {suffix: name for name, suffixes in SUFFIXES.items() for suffix in suffixes}
ALL_SUFFIXES = tuple(suffix for suffix, name in FORMATS.items() if name != "video")
"""Suffixes of all formats except videos. A video beside images is often a preview of them."""


def find_files(
    text: str, suffixes: tuple[str, ...], *, beside: tuple[str, ...] = ()
) -> Iterator[str]:
    """Yield the absolute paths of files, sorted.

    Parameters
    ----------
    text : str
        A folder, a file or a glob. Subfolders are searched, too. ``{0..9}`` means each of these
        numbers.
    suffixes : tuple of str
        Suffixes of files to find in a folder, in lower case, with the dot.
    beside : tuple of str
        Suffixes of files that are ignored and not counted.

    Raises
    ------
    FileNotFoundError
        If there is no such file. The error names other files of the folder.
    ValueError
        If the text is not UTF-8.

    Notes
    -----
    In a folder, names that begin with a dot are ignored, as in globs. After the search the log has
    the number of these names, and of files with other suffixes.
    """
    check_path(text)
    if os.path.isdir(text):
        search = _Search(suffixes, beside)
        path = None
        for path in search.below(os.path.abspath(text)):
            yield path
        if path is None:
            zarr = any(os.path.isfile(os.path.join(text, name)) for name in _ZARR)
            how = _ARRAYS_BY.format("from_zarr")
            told = f"; it is Zarr: {how}" if zarr else ""
            raise FileNotFoundError(f"{text}: {search.nothing_found()}{told}")
        search.log(text)
    elif os.path.isfile(text):
        yield os.path.abspath(text)
    elif len(texts := expanded(text)) > 1:
        for each in texts:
            yield from find_files(each, suffixes, beside=beside)
    elif not glob.has_magic(text):
        raise FileNotFoundError(
            f"{text}: no such folder or file; pass a folder, a glob, a .csv or an Index file"
        )
    else:
        skipped = Skipped()
        paths = filter(os.path.isfile, map(os.path.abspath, glob.iglob(text, recursive=True)))
        found = [path for path in paths if not path.endswith(beside) and _is_valid(path, skipped)]
        skipped.log()
        if not found:
            raise FileNotFoundError(f"{text}: no file matches this pattern")
        yield from sorted(found)


def listed_files(texts: Iterable[str], suffixes: tuple[str, ...]) -> Iterator[str]:
    """Yield absolute paths of files and URLs of objects, with folders and globs expanded.

    Texts are as in `find_files`. A name with one of the suffixes is taken for a file without a
    check, because there may be millions.

    Raises
    ------
    FileNotFoundError
        If there is no such file or folder.
    ValueError
        If a text is not UTF-8, or is an Index file, a catalogue, a tar or a URL of a prefix.
    """
    for text in texts:
        if is_url(text):
            check_url(text)
        is_file = text.lower().endswith(suffixes) and not glob.has_magic(text)
        lists = (*_LISTS, "/", "*") if is_url(text) else _LISTS
        if text.lower().endswith(lists) and not is_file:
            raise ValueError(
                f"{text} is in a list of paths, but contains several files: scan it separately, "
                "and join the Indexes with Index.concat; pass tars in a separate list"
            )
        if is_file or is_url(text):
            yield whole(text)
        else:
            yield from find_files(text, suffixes)


def object_table(url: str, suffixes: tuple[str, ...], storage: Storage) -> pa.Table:
    """Return ``path``, ``file_bytes`` and ``etag`` of the objects below a URL, sorted by path.

    Parameters
    ----------
    url : str
        ``s3://bucket/prefix`` or ``gs://bucket/prefix`` of a folder, an object, or a pattern
        (``*``, ``**``); or ``http://`` or ``https://`` of one object. ``{0..9}`` means each of
        these numbers.
    suffixes : tuple of str
        Suffixes of objects to find, in lower case; a single object or a pattern may have any
        suffix. Names that begin with a dot are ignored, as in `find_files`.
    storage : Storage
        Settings of requests.

    Raises
    ------
    FileNotFoundError
        If there is no such object.
    OSError
        If they cannot be listed.
    ValueError
        If the URL has another scheme or a password, or names an Index file.
    """
    check_url(url)
    if url.endswith((".parquet", ".arrow", ".csv")):
        raise ValueError(f"{url}: Index files and catalogues are read from a local disk: copy it")
    search = _Search(suffixes)
    found, urls = [], expanded(url)
    for one in itertools.chain.from_iterable(objects(each, storage) for each in urls):
        if one.is_hidden:
            search.skipped.add(HIDDEN, one.url)
        elif one.url in urls or "*" in url or one.url.lower().endswith(suffixes):
            found.append(one)
        else:
            search.others[_suffix(one.url)] += 1
    if not found:
        raise FileNotFoundError(f"{url}: {search.nothing_found()}")
    search.log(url)
    found.sort()
    return pa.table(
        {
            "path": text_column(one.url for one in found),
            "file_bytes": pa.array((one.nbytes for one in found), pa.int64()),
            "etag": pa.array((one.etag for one in found), pa.large_string()),
        }
    )


def _is_valid(path: str, skipped: Skipped) -> bool:
    """Return whether an Index can hold a path; count it if not."""
    try:
        check_path(path)
    except ValueError as error:
        skipped.add(_UNREADABLE, str(error))
        return False
    return True


class _Search:
    """Search for files below a folder."""

    def __init__(self, suffixes: tuple[str, ...], beside: tuple[str, ...] = ()) -> None:
        self.suffixes, self._beside = suffixes, beside
        self.skipped = Skipped()
        self._seen: set[tuple[int, int]] = set()
        self.others: Counter[str] = Counter()
        """Number of files for each of the suffixes not searched; '' for files without a suffix."""

    def below(self, root: str) -> Iterator[str]:
        """Yield the files below a folder, sorted. Links are followed, but each folder only once.

        Only the names of one folder per level are in memory. Names of folders are sorted with their
        slash, so that all paths are in order.
        """
        prefix = os.path.join(root, "")
        levels = [(prefix, iter(self._names(prefix)))]
        while levels:
            prefix, names = levels[-1]
            for name in names:
                if name.endswith("/"):
                    levels.append((prefix + name, iter(self._names(prefix + name))))
                    break
                yield prefix + name
            else:
                levels.pop()

    def nothing_found(self) -> str:
        """Return a message about the files that the folder has instead."""
        wanted = f"no file in this folder ends in {', '.join(self.suffixes)}"
        wanted = "; left out: ".join([wanted, *self.skipped.lines()])
        if not self.others:
            return wanted if self.skipped.counts else f"{wanted}; the folder is empty"
        if ".mdb" in self.others:
            how = "use Index.from_lmdb, or dali-pipelines index --container lmdb"
            return f"{wanted}; it holds an LMDB: {how}"
        if arrays := [suffix for suffix in _ARRAYS if suffix in self.others]:
            how = _ARRAYS_BY.format("scan_arrays")
            return f"{wanted}; some end in {arrays[0]}: {how}"
        if ".tar" in self.others:
            return f"{wanted}; it holds tars: use Index.from_tar, or scan it alone"
        for suffix, count in self.others.most_common():
            if suffix in FORMATS:
                ending = "1 file ends" if count == 1 else f"{count} files end"
                return f"{wanted}; {ending} in {suffix}, which {FORMATS[suffix]}_pipeline reads"
            if suffix in _PACKED:
                return f"{wanted}; some end in {suffix}: unpack them, as .tar.gz to .tar"
        return wanted

    def log(self, root: str) -> None:
        """Log the counts of hidden and unreadable files, and of files with other suffixes."""
        self.skipped.log()
        if not self.others:
            return
        counted = sorted(self.others.items(), key=lambda kind: (-kind[1], kind[0]))
        kinds = [f"{count} {suffix or 'of no suffix'}" for suffix, count in counted]
        if len(kinds) > _MOST_KINDS:
            kinds[_MOST_KINDS:] = [f"{len(kinds) - _MOST_KINDS} more kinds"]
        total = self.others.total()
        files = "1 file" if total == 1 else f"{total} files"
        logger.warning("%s: %s left out: %s", root, files, ", ".join(kinds))

    def _names(self, folder: str) -> list[str]:
        """Return the sorted names in a folder: of files, and of folders with a slash."""
        try:
            status = os.stat(folder)
            identity = status.st_dev, status.st_ino
            if identity in self._seen:  # reached again by a link
                return []
            self._seen.add(identity)
            with os.scandir(folder) as entries:
                named = [f"{entry.name}/" if _is_folder(entry) else entry.name for entry in entries]
        except OSError as error:
            self.skipped.add(_UNREADABLE, str(error))
            return []
        names = []
        for name in sorted(named):
            if name.startswith("."):
                self.skipped.add(HIDDEN, folder + name)
            elif not (name.endswith("/") or name.lower().endswith(self.suffixes)):
                if not name.endswith(self._beside):
                    self.others[_suffix(name)] += 1
            elif _is_valid(folder + name, self.skipped):
                names.append(name)
        return names


def _suffix(name: str) -> str:
    """Return the suffix of a name, if possible one in `FORMATS`; '' if it is not a plain word."""
    name = name.lower()
    suffix = next(filter(name.endswith, FORMATS), os.path.splitext(name)[1])
    return suffix if suffix in FORMATS or suffix[1:].isalnum() else ""


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # e.g. a link to itself
        return False


def folder_of(file: str | os.PathLike[str]) -> str:
    """Return the absolute path of the folder of a file."""
    return os.path.dirname(os.path.abspath(file))
