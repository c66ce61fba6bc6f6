"""The Index file that `index` writes: its name, and the files that it may replace."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from dali_pipelines.cli.errors import CommandError, refusing
from dali_pipelines.cli.paths import check_outputs

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

# Stored in the file with the names of its columns. Only such a file may be overwritten: with other
# columns it belongs to the user.
MARK = b"dali-pipelines scripts/index.py"


def check(out: str, config: Any, config_files: Sequence[str]) -> None:
    """Raise CommandError, before the scan, if the Index cannot be written."""
    from readers.index.table import INDEX_SUFFIXES

    if not out.endswith(INDEX_SUFFIXES):
        suffixes = " or ".join(INDEX_SUFFIXES)
        raise CommandError(f"-o must end in {suffixes}, got {out}")
    check_outputs(config, config_files, out=out, rejected=config.rejected)
    if os.path.exists(out) and not (config.overwrite or _is_ours(out)):
        raise CommandError(
            f"{out} exists and is not an Index of this command; --overwrite replaces it"
        )


def is_table(data: str) -> bool:
    """Return whether the data to scan are an Index or a catalogue."""
    from readers.index.table import INDEX_SUFFIXES

    return data.endswith((*INDEX_SUFFIXES, ".csv")) and os.path.isfile(data)


def _is_ours(path: str) -> bool:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if path.endswith(".parquet"):
            schema = pq.read_schema(path)
        else:
            with pa.OSFile(path) as file:
                schema = pa.ipc.open_file(file).schema
    except (pa.ArrowException, OSError):
        return False
    return (schema.metadata or {}).get(MARK) == ",".join(schema.names).encode()


def save(table: pa.Table, path: str) -> None:
    """Write the table as an Index, and mark it as written by this command."""
    import pyarrow as pa

    from readers.index.table import Index

    for position, name in enumerate(table.column_names):
        if table[name].type == pa.null():  # no file has the key: readers can use NaN
            table = table.set_column(position, name, table[name].cast(pa.float64()))
    found = table.schema.metadata or {}
    # Keep classes, channels and offsets, but not e.g. metadata of pandas about its columns.
    kept = {key: value for key, value in found.items() if key.startswith(b"dali-pipelines ")}
    table = table.replace_schema_metadata({**kept, MARK: ",".join(table.column_names)})
    with refusing(OSError, status=1, doing=f"{path} could not be written"):
        Index(table).save(path)
