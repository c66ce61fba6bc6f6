"""Files that a command line names: those that are read, and the one that is written."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from _refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from readers.index import Index


def index_of(files: Sequence[str], suffixes: Sequence[str], hdu: int | None = None) -> Index:
    """Give one Index of all images, each once, also of those that make one sample.

    Parameters
    ----------
    files : sequence of str
        Files, folders, globs and Index files.
    suffixes : sequence of str
        What to look for in folders.
    hdu : int, optional
        For those of which no file tells it.
    """
    import pyarrow as pa

    from readers.index import Index

    rows: dict[tuple[str, int | None], None] = {}
    for file in files:
        index = _scan(file, suffixes)
        columns = index.columns(parts=index.parts)
        for number in range(len(index)):
            row = columns.row(number)
            for found in row.parts.values() if index.parts else (row,):
                if found is not None:
                    rows[found.path, hdu if found.hdu is None else found.hdu] = None
    paths, hdus = zip(*rows, strict=True)
    return Index(
        pa.table({"path": pa.array(paths, pa.large_string()), "hdu": pa.array(hdus, pa.int64())})
    )


def samples_of(files: Sequence[str], suffixes: Sequence[str]) -> Index:
    """Give the Index itself if it is the only file and has samples of several; else all images."""
    index = _scan(files[0], suffixes)
    return index if len(files) == 1 and index.parts else index_of(files, suffixes)


def _scan(file: str, suffixes: Sequence[str]) -> Index:
    from readers.index import Index

    try:
        return Index.scan(file, suffixes=suffixes)
    except (OSError, ValueError) as error:
        raise Refusal(error) from error


def check_output(path: str) -> None:
    """Refuse before the work what could not be written after it."""
    # A device, such as /dev/stdout, is written where it is; a file may be replaced.
    is_device = os.path.exists(path) and not os.path.isfile(path)
    place = path if is_device else os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) or not os.access(place, os.W_OK):
        raise Refusal(f"{path} cannot be written: expected a file in a writable folder")
