"""Files named on a command line: inputs and outputs."""

from __future__ import annotations

import math
import os
import re
import sys
from contextlib import contextmanager, suppress
from dataclasses import asdict, is_dataclass, replace
from typing import TYPE_CHECKING

from dali_pipelines.cli.errors import CommandError, refusing
from dali_pipelines.cli.options import given_flags

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence
    from typing import Any, BinaryIO

    import pyarrow as pa

    from readers.fits.headers import HduName
    from readers.index.table import Index
    from readers.places.storage import Storage

_DATA = re.compile(
    rb"SIMPLE  =|\xff\xd8\xff|\x89PNG|RIFF|P[1-6]\s|\xff\x4f\xff\x51|PAR1|\x1f\x8b|.*\0", re.DOTALL
)
"""First bytes of files that are not reports: a signature of an image or Index, or any zero byte,
because text has none."""
_HEAD_BYTES = 512
_FEW_FILES = 10_000
"""Maximum number of files to compare one by one: more could take hours on a network."""
_LOCATING = ("path", "hdu", "plane", "offset", "nbytes", "etag", "file_bytes")
"""Fields of a row, and columns of an Index, that locate the bytes of an image."""


def index_of(
    files: Sequence[str], suffixes: Sequence[str], storage: Storage, hdu: HduName | None = None
) -> Index:
    """Return one Index with a row for each image; images of one sample get separate rows.

    The files may be folders, searched for `suffixes`, globs, URLs and Index files. Rows without an
    HDU in their Index get `hdu`; CommandError if all rows have other HDUs.
    """
    return _images([scanned(file, suffixes, storage) for file in files], hdu)


def samples_of(files: Sequence[str], suffixes: Sequence[str], storage: Storage) -> Index:
    """Return one Index of the files. If there is only one file, the Index keeps all columns."""
    indexes = [scanned(file, suffixes, storage) for file in files]
    if len(files) > 1 and not suffixes:  # arrays: their columns locate the chunks
        with refusing(ValueError):
            return type(indexes[0]).concat(indexes, fill=True)
    return indexes[0] if len(files) == 1 else _images(indexes)


def _images(indexes: Sequence[Index], hdu: HduName | None = None) -> Index:
    import pyarrow as pa

    from dali_pipelines.fits_index import check_hdu

    rows: dict[tuple[Any, ...], None] = {}
    for index in indexes:
        with refusing(ValueError):
            check_hdu(index, hdu)
        columns = index.columns(parts=index.parts)
        for position in range(len(index)):
            row = columns.row(position)
            for found in row.parts.values() if index.parts else (row,):
                if found is not None:
                    if found.hdu is None and isinstance(hdu, int):
                        found = replace(found, hdu=hdu)
                    rows[tuple(getattr(found, name) for name in _LOCATING)] = None
    arrays = zip(_LOCATING, zip(*rows, strict=True), strict=True)
    table = {
        name: pa.array(column, pa.large_string() if name in ("path", "etag") else pa.int64())
        for name, column in arrays
        if any(value is not None for value in column) or name in ("hdu", "plane")
    }
    return type(indexes[0])(pa.table(table))


def scanned(file: str, suffixes: Sequence[str], storage: Storage) -> Index:
    """Return the Index of a file, folder, glob, URL or Index file, or raise CommandError.

    Without suffixes it is an Index of arrays, see `dali_pipelines.cli.arrays.array_index`.
    """
    with refusing(ImportError, OSError, ValueError):
        return index_at(file, suffixes, storage)


def index_at(data: str | Sequence[str], suffixes: Sequence[str], storage: Storage) -> Index:
    """Like `scanned`, but for one path or several, and with the errors of Index's methods."""
    from dali_pipelines.cli.arrays import array_index
    from readers.index.table import INDEX_SUFFIXES, Index

    first = data if isinstance(data, str) else data[0]
    if suffixes or first.endswith(INDEX_SUFFIXES):
        return Index.scan(data, suffixes=suffixes, storage=storage)
    return array_index(data, storage)


def marked(path: str, mark: str) -> str:
    """Return the name of a file beside another one: ``a.train.json`` for ``a.json``."""
    stem, suffix = os.path.splitext(path)
    return f"{stem}.{mark}{suffix}"


def check_output(path: str) -> None:
    """Raise CommandError if a file cannot be written, so that no work is done in vain."""
    written = path if _is_device(path) else os.path.dirname(os.path.realpath(path))
    if os.path.isdir(path) or not os.access(written, os.W_OK):
        raise CommandError(f"{path} cannot be written: expected a file in a writable folder")


def check_outputs(config: Any, config_files: Sequence[str], /, **paths: str | None) -> None:
    """Raise CommandError if outputs cannot be written, are also inputs, or have two flags.

    Inputs are the files of ``--config``, and existing files in settings of `config`. The settings
    in `paths` are outputs. `resume` is not an input, because it may be the same file as `state`.
    All outputs except `out` and `output` are tables and reports, which must not replace images. See
    also `check_unread`.
    """
    given = given_flags(config)
    names = given.keys() - {*paths, "resume"}
    read = {"config": config_files, **{name: given[name] for name in names}}
    flags: dict[Hashable, str] = {}
    for name, values in read.items():
        for value in values if isinstance(values, list | tuple) else [values]:
            if isinstance(value, str) and os.path.isfile(value):
                flags[_identity(value)] = name
    for flag, path in paths.items():
        if path is None:
            continue
        check_output(path)
        if flag not in ("out", "output"):
            _check_text(path)
        other = flags.setdefault(_identity(path), flag)
        if other != flag and not _is_device(path):
            raise CommandError(f"--{other} and --{flag} both name {path}: give each its own file")


def check_unread(table: pa.Table, *outputs: str | None) -> None:
    """Raise CommandError if an output is a file of the table, by its path or through links."""
    from readers.index.paths import holds_paths

    columns = [table[name] for name in table.column_names if holds_paths(name, table[name])]
    for path in outputs:
        if path is None or not os.path.isfile(path) or _is_device(path):
            continue
        for file in (file for column in columns for file in _candidates(column, path)):
            with suppress(OSError):  # URLs, and files that do not exist
                if os.path.samefile(file, path):
                    raise CommandError(f"{path} is the input {file}: choose another name")


def _candidates(files: pa.ChunkedArray, path: str) -> Iterable[str]:
    """Return the paths that may refer to this file.

    Among more than `_FEW_FILES` paths, these are the paths with the name of the file, unless it has
    several hard links. A symbolic link with another name is then missed.
    """
    import pyarrow.compute as pc

    if len(files) > _FEW_FILES and os.stat(path).st_nlink == 1:
        ends = [f"/{os.path.basename(name)}" for name in (path, os.path.realpath(path))]
        files = files.filter(pc.or_(*(pc.ends_with(files, end) for end in ends)))
    return filter(None, files.unique().to_pylist())


def _identity(path: str) -> Hashable:
    """Return a key that is equal for all names of a file."""
    with suppress(OSError):  # there is no file yet
        status = os.stat(path)
        return status.st_dev, status.st_ino
    return os.path.realpath(path)


def _check_text(path: str) -> None:
    if os.path.isfile(path) and not _is_device(path):
        with open(path, "rb") as file:
            if _DATA.match(file.read(_HEAD_BYTES)):
                raise CommandError(
                    f"{path} exists, and holds images or other data: choose another name"
                )


def write_json(path: str, content: Any, indent: int) -> None:
    """Write a JSON file, all or nothing; numbers that JSON lacks, such as NaN, become null."""
    import json

    write_file(path, json.dumps(_for_json(content), indent=indent, allow_nan=False) + "\n")


def _for_json(value: Any) -> Any:
    """Return a value with plain types in place of dataclasses, and None for NaN and infinity."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, dict):
        return {name: _for_json(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_for_json(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class OutputFile:
    """A file that gets its name when it is closed, so that no partial file is ever seen.

    Until then it is called ``NAME.part``, and an older file keeps the name. If the path is a link,
    its target is replaced. A device is written to directly, and so is an open file, such as
    /dev/stdout, from its present position. In a ``with`` block the file is dropped if the block
    raises. Text is written as UTF-8, with its line ends unchanged.

    Raises
    ------
    OSError
        If it cannot be written, e.g. because the disk is full; it names the file. All methods raise
        it.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._target = os.path.realpath(path)
        self._part = path if _is_device(path) else f"{self._target}.part"
        self._failed = False
        with self._named():
            self._file = _opened(self._part)

    def write(self, content: str | bytes) -> None:
        """Write a text, or bytes."""
        with self._named():
            self._file.write(content.encode() if isinstance(content, str) else content)

    def close(self) -> None:
        """Finish the file and give it its name, unless an earlier call has failed."""
        with self._named():
            self._file.close()
            if self._part != self._path and not self._failed:
                os.replace(self._part, self._target)

    def __enter__(self) -> OutputFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._give_up()
        self.close()

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._give_up()
            raise OSError(error.errno, error.strerror, self._path) from error

    def _give_up(self) -> None:
        self._failed = True
        if self._part != self._path:
            with suppress(OSError):
                os.unlink(self._part)


def write_file(path: str, content: str | bytes) -> None:
    """Write a whole file, all or nothing, see `OutputFile`."""
    with OutputFile(path) as file:
        file.write(content)


def write_table(path: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a CSV file, all or nothing, see `OutputFile`.

    Paths are written unchanged, so that programs can open them. Spreadsheets do not interpret
    absolute paths, numbers and reasons as formulas.
    """
    import csv

    with OutputFile(path) as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)


def _opened(path: str) -> BinaryIO:
    number = _descriptor(path)
    if number is None:
        return open(path, "wb")
    sys.stdout.flush()  # earlier output comes first
    # Opening the path would truncate the file, and write from another position.
    return os.fdopen(os.dup(number), "wb")


def _descriptor(path: str) -> int | None:
    """Return the file descriptor of this process that a path names; None for other paths."""
    folder, name = os.path.split(os.path.abspath(path))
    if os.path.realpath(folder) == f"/proc/{os.getpid()}/fd":
        return int(name)
    if not (os.path.islink(path) and os.path.exists(path)):
        return None
    return _descriptor(os.path.join(folder, os.readlink(path)))


def _is_device(path: str) -> bool:
    """Return whether this is a special file, or a descriptor of this process, like /dev/stdout."""
    is_special = os.path.exists(path) and not os.path.isfile(path)
    return is_special or _descriptor(path) is not None
