"""Tables of the inputs of `readers.index.table.Index.scan`: folders, lists of paths, CSV, tars."""

from __future__ import annotations

import os
from collections.abc import Iterable

from readers.index import schema
from readers.index.arrow import pa
from readers.index.containers.kinds import Tar
from readers.index.containers.tables import Data, containers_table, has_tars, peeked
from readers.index.scan import find_files, listed_files, object_table
from readers.index.text_tables import read_csv
from readers.index.versions import with_versions
from readers.places.opener import Places
from readers.places.urls import is_url


def scanned_table(data: Data, suffixes: tuple[str, ...], places: Places) -> pa.Table:
    """Return the table of files, objects or tars, see `readers.index.table.Index.scan`.

    Index files and catalogues are rejected.
    """
    tars = Tar(image_suffixes=suffixes)
    are_tars, data = peeked(data)
    if are_tars:
        return containers_table(tars, data, places)
    if not isinstance(data, str | os.PathLike):
        paths = listed_files((os.fspath(path) for path in data), suffixes)
        return with_versions(path_table(paths), places.storage)
    text = os.fspath(data)
    try:
        if is_url(text):
            return object_table(text, suffixes, places.storage)
        return path_table(find_files(text, suffixes))
    except FileNotFoundError:
        if not has_tars(text, places):
            raise
    return containers_table(tars, text, places)


def path_table(paths: Iterable[str]) -> pa.Table:
    """Return a table with a row for each path."""
    return pa.table({"path": schema.text_column(paths)})


def csv_table(path: str | os.PathLike[str]) -> pa.Table:
    """Return the table of a catalogue, see `readers.index.table.Index.from_csv`."""
    table = read_csv(path)
    if "path" not in table.column_names:
        raise ValueError(f"{os.fspath(path)}: expected a column 'path', got {table.column_names}")
    if not table.num_rows:
        raise ValueError(f"{os.fspath(path)}: expected a row for each image, got none")
    return table
