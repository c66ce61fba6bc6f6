"""Files that a command line names: those that are read, and the one that is written."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from _refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from readers.index import Index


def index_of(files: Sequence[str], suffixes: Sequence[str], hdu: int | None = None) -> Index:
    """Give one Index of all images, each once.

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
        try:
            table = Index.scan(file, suffixes=suffixes).table
        except (OSError, ValueError) as error:
            raise Refusal(error) from error
        paths = table["path"].to_pylist()
        hdus = table["hdu"].to_pylist() if "hdu" in table.column_names else [None] * len(paths)
        hdus = [hdu if found is None else found for found in hdus]
        rows.update(dict.fromkeys(zip(paths, hdus, strict=True)))
    paths, hdus = zip(*rows, strict=True)
    return Index(
        pa.table({"path": pa.array(paths, pa.large_string()), "hdu": pa.array(hdus, pa.int64())})
    )


def check_output(path: str) -> None:
    """Refuse before the work what could not be written after it."""
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) or not os.access(folder, os.W_OK):
        raise Refusal(f"{path} cannot be written: expected a file in a writable folder")
