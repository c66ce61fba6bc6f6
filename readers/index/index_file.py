"""Index files, see `readers.index.table.Index.save`: Parquet or Arrow."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from readers.index import arrow_file
from readers.index.arrow_file import ArrowFile
from readers.index.paths.absolute import absolute
from readers.index.scan import folder_of

if TYPE_CHECKING:
    import pyarrow as pa

INDEX_SUFFIXES = (".parquet", arrow_file.SUFFIX)
"""Suffixes of Index files."""


def read_index_file(path: str | os.PathLike[str]) -> pa.Table | ArrowFile:
    """Return the table of a file, not checked, or an Arrow file that `write_index_file` made.

    Raises
    ------
    OSError
        If it cannot be opened.
    ValueError
        If it is damaged, or of another kind.
    """
    name = os.fspath(path)
    try:
        if name.endswith(arrow_file.SUFFIX):
            return ArrowFile.open(name) or arrow_file.read(name)
        import pyarrow.parquet as pq

        os.stat(name)  # for a missing file: pyarrow's message is the bare name
        return pq.read_table(name)
    except (ValueError, KeyError, NotImplementedError, OSError) as error:
        if isinstance(error, OSError) and (error.errno or type(error) is not OSError):
            raise  # the file cannot be opened; all other errors mean bad content
        if name.endswith(".csv"):
            raise ValueError(f"{name}: a catalogue is read by Index.scan") from None
        raise ValueError(
            f"{name}: expected an Index file, but it is damaged, cut off or of another kind "
            f"({error}): make it again, with Index.save or dali-pipelines index"
        ) from error


def write_index_file(table: pa.Table, path: str | os.PathLike[str]) -> None:
    """Write the table of an Index, all or nothing, see `readers.index.table.Index.save`."""
    name = os.fspath(path)
    if not name.endswith(INDEX_SUFFIXES):
        raise ValueError(f"an Index file must end in {' or '.join(INDEX_SUFFIXES)}, got {name}")
    target = os.path.realpath(name)
    partial = f"{target}.part{os.getpid()}"
    try:
        if name.endswith(arrow_file.SUFFIX):
            arrow_file.write(absolute(table, folder_of(name)), partial)
        else:
            import pyarrow.parquet as pq

            pq.write_table(table, partial)
        os.replace(partial, target)
    except OSError as error:  # may lack the file's name, e.g. on a full disk
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise OSError(error.errno, reason, name) from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial)
