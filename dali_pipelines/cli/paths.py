"""Files that a command line names: those that are read, and the one that is written."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from dali_pipelines.cli.errors import Refusal, refusing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from readers.index.table import Index


def index_of(files: Sequence[str], suffixes: Sequence[str], hdu: int | None = None) -> Index:
    """Return one Index of all images, each once, also of those that make one sample.

    The files may be folders, searched for `suffixes`, globs and Index files. Rows whose Index names
    no HDU get `hdu`.
    """
    return _images([_scan(file, suffixes) for file in files], hdu)


def samples_of(files: Sequence[str], suffixes: Sequence[str]) -> Index:
    """Return the Index of the only file, with all its columns, or one of all images of several."""
    indexes = [_scan(file, suffixes) for file in files]
    return indexes[0] if len(files) == 1 else _images(indexes)


def _images(indexes: Sequence[Index], hdu: int | None = None) -> Index:
    import pyarrow as pa

    kinds = {"path": pa.large_string(), "hdu": pa.int64(), "plane": pa.int64()}
    optional = {"offset": pa.int64(), "nbytes": pa.int64()}
    optional |= {"etag": pa.large_string(), "file_bytes": pa.int64()}
    rows: dict[tuple[Any, ...], None] = {}
    for index in indexes:
        columns = index.columns(parts=index.parts)
        for position in range(len(index)):
            row = columns.row(position)
            for found in row.parts.values() if index.parts else (row,):
                if found is not None:
                    if found.offset is not None:
                        raise Refusal(f"{found.name} lies in a container: unpack it before")
                    number = hdu if found.hdu is None else found.hdu
                    span = found.offset, found.nbytes, found.etag or None, found.file_bytes
                    rows[found.path, number, found.plane, *span] = None
    named = zip((kinds | optional).items(), zip(*rows, strict=True), strict=True)
    arrays = {name: pa.array(column, kind) for (name, kind), column in named}
    for name in optional:
        if arrays[name].null_count == len(rows):
            del arrays[name]
    return type(indexes[0])(pa.table(arrays))


def _scan(file: str, suffixes: Sequence[str]) -> Index:
    from readers.index.table import Index

    with refusing(OSError, ValueError):
        return Index.scan(file, suffixes=suffixes)


def check_output(path: str) -> None:
    """Reject before the work what could not be written after it."""
    written = path if _is_device(path) else os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) or not os.access(written, os.W_OK):
        raise Refusal(f"{path} cannot be written: expected a file in a writable folder")


class OutputFile:
    """A file that takes its name when it is closed, so that no half of it is ever there.

    Until then it is called ``NAME.part``, and what has the name keeps it. A device, such as
    /dev/stdout, is written to as it is. As a context manager it is given up where the block raises.
    Text is written as UTF-8, and its lines end as they are.

    Raises
    ------
    OSError
        If it cannot be written, a full disk included; it names the file. So do all methods.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._part = path if _is_device(path) else f"{path}.part"
        self._failed = False
        with self._named():
            self._file = open(self._part, "wb")  # noqa: SIM115

    def write(self, content: str | bytes) -> None:
        """Write a text, or bytes."""
        with self._named():
            self._file.write(content.encode() if isinstance(content, str) else content)

    def close(self) -> None:
        """Finish the file and give it its name, unless something has failed before."""
        with self._named():
            self._file.close()
            if self._part != self._path and not self._failed:
                os.replace(self._part, self._path)

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

    Paths stand in it as they are, for programs to open them: of no absolute path, number or reason
    would a spreadsheet make a formula.
    """
    import csv

    with OutputFile(path) as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)


def _is_device(path: str) -> bool:
    return os.path.exists(path) and not os.path.isfile(path)
