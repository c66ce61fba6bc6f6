"""Output files of `prep`: named after the input files, below one folder."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import json
import os
import re
import shutil
import tempfile
from typing import TYPE_CHECKING, Any, NamedTuple

from dali_pipelines.cli.errors import CommandError, refusing
from dali_pipelines.cli.paths import index_of
from readers.places.storage import Storage
from readers.places.urls import is_url

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from readers.contract import Row

_UNFINISHED = ".part-"
"""Prefix of folders where files are written before they get their names."""


class Conversion(NamedTuple):
    """A file to read, and the path of the file to make from it."""

    row: Row
    path: str


def targets_of(
    files: Sequence[str],
    out: str,
    suffixes: Sequence[str],
    *,
    hdu: int | None = None,
    every_hdu: bool = False,
) -> list[Conversion]:
    """Return the files that the arguments name, each once, with the paths of their outputs.

    `hdu` is for rows without an HDU in their Index. With `every_hdu` whole files are converted,
    even if an Index names some of their HDUs.

    The subfolders of a folder are repeated below `out`. For a glob this is the folder at its
    beginning, for an Index the common folder of all rows. Files in `out` itself are not read.

    Raises
    ------
    CommandError
        If there are no files, some are not local, all rows of an Index name another HDU, or two
        would be written to one path.
    """
    from dali_pipelines.fits_index import check_hdu
    from readers.contract import Row

    out = os.path.realpath(out)
    targets: dict[tuple[str, int | None], Conversion] = {}
    for file in files:
        _check_paths([file])
        index = index_of([file], suffixes, Storage())
        if "offset" in index.table.column_names:
            raise CommandError(f"{file}: its rows are parts of files, unpack them first")
        with refusing(ValueError):
            check_hdu(index, hdu)
        _check_paths(map(index.path, range(len(index))))
        rows = [Row(at, index.path(at), index.hdu(at)) for at in range(len(index))]
        root = _root(file, [row.path for row in rows])
        for row in rows:
            key = row.path, None if every_hdu else row.hdu
            inside = os.path.realpath(row.path).startswith(out + os.sep)
            if key not in targets and not inside:
                name = _fits_name(os.path.relpath(row.path, root))
                targets[key] = Conversion(Row(len(targets), *key), os.path.join(out, name))
    if not targets:
        raise CommandError(
            f"all files are in {out}, which is the output folder: choose another folder with -o"
        )
    made: dict[str, Row] = {}
    for row, path in targets.values():
        other = made.setdefault(path, row)
        if other is not row:
            raise CommandError(
                f"both {_named(other)} and {_named(row)} would be written to {path}: rename one, "
                "or write them to different folders"
            )
    return list(targets.values())


def claim(out: str, made: str, settings: Mapping[str, Any], targets: Sequence[Conversion]) -> None:
    """Make the folder, or check that its files were made with the same settings.

    The settings are kept there as JSON, in a file named `made`.

    Raises
    ------
    CommandError
        If it has other files.
    """
    record = os.path.join(out, made)
    wanted = json.loads(json.dumps(settings))
    try:
        os.makedirs(out, exist_ok=True)
        if not os.path.exists(record):
            foreign = next(
                (target.path for target in targets if os.path.lexists(target.path)), None
            )
            # Another process of a job array may have begun meanwhile.
            if foreign is not None and not os.path.exists(record):
                raise CommandError(
                    f"{foreign} exists, and there is no {record}: choose another folder with -o"
                )
            with unfinished_folder(out, clean=False) as unfinished:
                part = os.path.join(unfinished, made)
                with open(part, "w", encoding="utf-8") as file:
                    json.dump(wanted, file, indent=1)
                    file.write("\n")
                with contextlib.suppress(FileExistsError):
                    os.link(part, record)
        with open(record, encoding="utf-8") as file:
            _check_same(record, json.load(file), wanted)
    except OSError as error:
        raise CommandError(f"{out} cannot be written: {error}") from error
    except ValueError as error:
        raise CommandError(
            f"{record} is damaged: {error}: choose another folder with -o"
        ) from error


@contextlib.contextmanager
def unfinished_folder(out: str, *, clean: bool = True) -> Iterator[str]:
    """Yield a hidden folder in `out` for unfinished files; `clean` removes leftovers."""
    handle = os.open(out, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # With an exclusive lock no other run is at work, and leftovers are from a killed run.
        # Without locks in the file system they stay.
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for name in os.listdir(out) if clean else ():
                if name.startswith(_UNFINISHED):
                    shutil.rmtree(os.path.join(out, name))
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_SH)
        # A child process that is killed may still be writing.
        with tempfile.TemporaryDirectory(
            dir=out, prefix=_UNFINISHED, ignore_cleanup_errors=True
        ) as folder:
            yield folder
    finally:
        os.close(handle)


def _check_paths(paths: Iterable[str]) -> None:
    for path in filter(is_url, paths):
        raise CommandError(f"{path}: prep reads local files, copy the archive first")


def _root(argument: str, paths: Sequence[str]) -> str:
    """Return the root folder of an argument; subfolders below it are repeated in the output."""
    if os.path.isdir(argument):
        return os.path.abspath(argument)
    if glob.has_magic(argument) and not os.path.lexists(argument):
        names = os.path.abspath(argument).split(os.sep)
        plain = next(at for at, name in enumerate(names) if glob.has_magic(name))
        return os.sep.join(names[:plain]) or os.sep
    return os.path.commonpath([os.path.dirname(path) for path in paths])


def _fits_name(path: str) -> str:
    """Return the path of a plain FITS file for one that may be compressed."""
    name = re.sub(r"\.(gz|fz)$", "", path, flags=re.IGNORECASE)
    return name if re.search(r"\.(fits|fit|fts)$", name, re.IGNORECASE) else f"{name}.fits"


def _named(row: Row) -> str:
    return row.path if row.hdu is None else f"{row.path}[{row.hdu}]"


def _check_same(record: str, found: Any, wanted: Mapping[str, Any]) -> None:
    if not isinstance(found, dict):
        raise ValueError("expected settings")
    differ = [name for name in {**found, **wanted} if found.get(name) != wanted.get(name)]
    if differ:
        told = "; ".join(f"{name} {found.get(name)}, not {wanted.get(name)}" for name in differ)
        raise CommandError(
            f"{record}: the files there were made with {told}: choose another folder with -o"
        )
