"""Scan an archive once, in parallel, into an Index: a Parquet table with one row for each file.

    python scripts/index.py archive/ -o aia.parquet --where "wavelnth = 171 AND quality = 0"

Columns: path, hdu, height, width, bitpix, codec, file_bytes, then the header keys in lower case
with underscores (DATE-OBS becomes date_obs). Of FITS files only headers are read. Files that cannot
be read are listed and left out. Imports are light: the child processes import this file again.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from contextlib import closing, contextmanager
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    import numpy as np
    import pyarrow as pa

    from readers.facts import Fact, FactTable

    Rejected = list[tuple[str, str]]

# A task of the pool: 0.1 s of work, or some seconds where each file has to come over a network.
CHUNK_FILES = 32
# Tasks under way for each process. Their results are taken in order, so this bounds the memory.
AHEAD = 4
# Rejected files that are named on the terminal.
LISTED = 20

# Kept in the file beside the table, with the names of the columns, to tell what may be overwritten:
# who adds a column of their own makes the file theirs.
MARK = b"dali-pipelines scripts/index.py"

# Row numbers, beside the columns that --where sees.
ROW = "row of the index"

# Nothing outside the table can be reached from --where: no file, no network, no Python variable.
DUCKDB_CONFIG = {
    "enable_external_access": "false",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "python_enable_replacements": "false",
    "lock_configuration": "true",
}


class Refusal(Exception):
    """One line for the user, and the exit status that goes with it."""

    def __init__(self, message: object, status: int = 2) -> None:
        super().__init__(_one_line(message))
        self.status = status


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; give 0, 1 if no row was left, 2 for wrong usage, 130 if interrupted."""
    try:
        _index(_options(argv))
    except Refusal as refusal:
        print(f"index.py: {refusal}", file=sys.stderr)
        return refusal.status
    except KeyboardInterrupt:
        print("index.py: interrupted, nothing was written", file=sys.stderr)
        return 130
    return 0


def _index(options: argparse.Namespace) -> None:
    _check_outputs(options)
    files = _files(options)
    if options.where is not None:
        _check_where(options, files)
    start = time.perf_counter()
    paths = files["path"].to_pylist()
    facts, rejected = _scan(paths, options)
    table = _with_labels(facts.table(), files)
    _report_rejected(rejected, options, everything=not table.num_rows)
    for name, (count, text) in facts.not_times.items():
        print(
            f"{name}: {count} of {table.num_rows} values are no ISO 8601 times and are left empty, "
            f"the first: {text!r}",
            file=sys.stderr,
        )
    kept = table if options.where is None else table.take(_matching(options, table))
    _save(kept, options.out)
    seconds = time.perf_counter() - start
    print(
        f"{len(paths)} files found: {kept.num_rows} rows kept, {len(rejected)} rejected, "
        f"{table.num_rows - kept.num_rows} dropped by --where.\n"
        f"{seconds:.1f} s, {len(paths) / seconds:.0f} files/s. "
        f"Written to {os.path.abspath(options.out)}"
    )


# ---- The command line --------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Refusal(f"{message} (see --help)")


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = _Parser(
        prog="index.py",
        description="Scan an archive once, in parallel, into an Index (Parquet).",
        epilog="Columns for --where: path, hdu, height, width, bitpix, codec, file_bytes, and the "
        "keys in lower case with underscores (date_obs), or as FITS spells them in double quotes "
        '("DATE-OBS"). Exit status: 0 an Index was written, 1 no row was left, 2 wrong usage, '
        "130 interrupted.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("data", metavar="DATA", help="folder (with its subfolders), glob in quotes, or one file")
    add("-o", "--out", metavar="OUT.parquet", default="index.parquet", help="default: %(default)s")
    keys = "DATE-OBS,T_OBS,WAVELNTH,EXPTIME,QUALITY"
    add("--keys", type=_keys, default=keys, help="header keys to keep, default: %(default)s")
    add("--where", metavar="EXPR", help="SQL condition on the columns; other rows are dropped")
    add("--hdu", type=_at_least(0), metavar="N", help="HDU of the image, default: first with one")
    cores = len(os.sched_getaffinity(0))
    add("--num_processes", type=_at_least(1), metavar="N", default=cores, help="default: all cores")
    add("--class_folders", action="store_true", help="one subfolder a class: add label, class_name")
    add("--rejected", metavar="FILE.csv", help="where to list all files that could not be read")
    add("--overwrite", action="store_true", help="replace OUT even if it is not from this script")
    return parser.parse_args(argv)


def _keys(text: str) -> list[str]:
    from readers.facts import COLUMNS, column_name

    keys = [key.strip().upper() for key in text.split(",") if key.strip()]
    columns = [*COLUMNS, "label", "class_name", *map(column_name, keys)]
    if twice := sorted({name for name in columns if columns.count(name) > 1}):
        raise argparse.ArgumentTypeError(f"there would be two columns {', '.join(twice)}")
    return keys


def _at_least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"expected an integer from {least} on, got {text!r}")
        return int(text)

    return number


# ---- Files in, files out -----------------------------------------------------------------------


def _check_outputs(options: argparse.Namespace) -> None:
    """Refuse before the scan what could not be written after it."""
    if not options.out.endswith(".parquet"):
        raise Refusal(f"-o must end in .parquet, as each Index does, got {options.out}")
    for path in filter(None, (options.out, options.rejected)):
        folder = os.path.dirname(os.path.abspath(path))
        if os.path.isdir(path) or not os.access(folder, os.W_OK):
            raise Refusal(f"{path} cannot be written: expected a file in a writable folder")
    if os.path.exists(options.out) and not (options.overwrite or _is_ours(options.out)):
        raise Refusal(f"{options.out} exists and is not as index.py left it; --overwrite replaces")


def _is_ours(path: str) -> bool:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(path)
    except (pa.ArrowException, OSError):
        return False
    return (schema.metadata or {}).get(MARK) == ",".join(schema.names).encode()


def _files(options: argparse.Namespace) -> pa.Table:
    """Give the table of the files: path, sorted, and the labels if there are any."""
    from readers.index import SUFFIXES, Index

    if options.class_folders and not os.path.isdir(options.data):
        raise Refusal(f"--class_folders needs a folder, got {options.data}")
    if options.data.endswith((".parquet", ".csv")):
        raise Refusal(f"expected a folder, a glob or an image, got the table {options.data}")
    scan = Index.from_class_folders if options.class_folders else Index.scan
    try:
        return scan(options.data, suffixes=(*SUFFIXES["fits"], *SUFFIXES["jpeg"])).table
    except (OSError, ValueError) as error:
        raise Refusal(error) from error


def _with_labels(table: pa.Table, files: pa.Table) -> pa.Table:
    import pyarrow.compute as pc

    rows = pc.index_in(table["path"], value_set=files["path"])
    for name in files.column_names[1:]:
        table = table.append_column(name, files[name].take(rows))
    return table


def _report_rejected(rejected: Rejected, options: argparse.Namespace, *, everything: bool) -> None:
    if options.rejected is not None:
        import csv

        try:
            with open(options.rejected, "w", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows([("path", "reason"), *rejected])
        except OSError as error:
            raise Refusal(f"{options.rejected} could not be written: {error}", 1) from error
    if everything:
        path, reason = rejected[0]
        raise Refusal(f"none of {len(rejected)} files can be read, the first: {path}: {reason}", 1)
    for path, reason in rejected[:LISTED]:
        print(f"rejected {path}: {reason}", file=sys.stderr)
    if len(rejected) > LISTED:
        print(f"and {len(rejected) - LISTED} more (--rejected lists all)", file=sys.stderr)


def _save(table: pa.Table, path: str) -> None:
    import pyarrow as pa

    from readers.index import Index

    if not table.num_rows:
        raise Refusal("nothing was written: --where dropped all rows", 1)
    for place, name in enumerate(table.column_names):
        if table[name].type == pa.null():  # a key that no file has: readers can use NaN
            table = table.set_column(place, name, table[name].cast(pa.float64()))
    table = table.replace_schema_metadata({MARK: ",".join(table.column_names)})
    try:
        Index(table).save(path)
    except OSError as error:
        raise Refusal(f"{path} could not be written: {error}", 1) from error


def _one_line(message: object) -> str:
    return " ".join(str(message).split())


# ---- The scan ----------------------------------------------------------------------------------


def _scan(paths: list[str], options: argparse.Namespace) -> tuple[FactTable, Rejected]:
    """Give the facts of the files, in the order of the paths, and the files that have none."""
    from tqdm import tqdm

    from readers.facts import FactTable

    chunks = [paths[at : at + CHUNK_FILES] for at in range(0, len(paths), CHUNK_FILES)]
    scan = functools.partial(_scan_chunk, keys=options.keys, hdu=options.hdu)
    num_processes = min(options.num_processes, len(chunks))
    facts, rejected = FactTable(options.keys), []
    try:
        with (
            tqdm(total=len(paths), unit="file", disable=not sys.stderr.isatty()) as bar,
            closing(_map(scan, chunks, num_processes)) as results,
        ):
            for read, refused in results:
                for row in read:
                    facts.add(row)
                rejected += refused
                bar.update(len(read) + len(refused))
    except BrokenExecutor as error:
        raise Refusal(
            f"one of {num_processes} processes was killed; if for memory, try fewer", 1
        ) from error
    return facts, rejected


def _scan_chunk(
    paths: list[str], *, keys: list[str], hdu: int | None
) -> tuple[list[dict[str, Fact]], Rejected]:
    from readers.errors import ReadError
    from readers.facts import file_facts

    read, rejected = [], []
    for path in paths:
        try:
            read.append(file_facts(path, keys, hdu))
        except ReadError as error:
            rejected.append((path, _one_line(error.reason)))
    return read, rejected


def _map(
    scan: Callable[[list[str]], Any], chunks: list[list[str]], num_processes: int
) -> Generator[Any, None, None]:
    """Give `scan(chunk)` for each chunk, in order; closing it ends the processes at once."""
    if num_processes == 1:
        yield from map(scan, chunks)
        return
    others = set(multiprocessing.active_children())
    spawn = multiprocessing.get_context("spawn")  # the caller may have threads by now
    resource_tracker.ensure_running()  # started later, it would let interrupts through
    with ProcessPoolExecutor(num_processes, spawn, initializer=_follow_parent) as pool:
        try:
            pending: deque[Future[Any]] = deque()
            for chunk in chunks:
                with _no_interrupts():
                    pending.append(pool.submit(scan, chunk))
                if len(pending) >= AHEAD * num_processes:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        except BaseException:
            # Not waited for, since a file system may hang.
            for child in set(multiprocessing.active_children()) - others:
                child.kill()
            raise


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Hold Ctrl-C back; child processes started meanwhile leave it to this one for good."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _follow_parent() -> None:
    """Let this child process end when its parent is killed."""
    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


# ---- The condition -----------------------------------------------------------------------------


def _check_where(options: argparse.Namespace, files: pa.Table) -> None:
    """Refuse before the scan a condition that is wrong whatever the headers hold."""
    from readers.facts import COLUMNS, FactTable

    facts = FactTable(options.keys)
    facts.add(dict.fromkeys((*COLUMNS, *options.keys)))  # without a row, little is evaluated
    try:
        _matching(options, _with_labels(facts.table(), files))
    except Refusal as refusal:
        # Which function of that name is meant shows when the types of the columns are known.
        if "Could not choose a best candidate" not in str(refusal):
            raise


def _matching(options: argparse.Namespace, table: pa.Table) -> np.ndarray[Any, Any]:
    """Give the rows for which the condition is true, in order.

    `SQLExpression` takes a single expression and nothing that could follow or replace one.
    """
    import duckdb
    import numpy as np

    from readers.facts import column_name

    for key in options.keys:
        if column_name(key) != key.lower():
            table = table.append_column(key, table[column_name(key)])
    table = table.append_column(ROW, [np.arange(table.num_rows)])
    connection = duckdb.connect(":memory:", config=DUCKDB_CONFIG)
    try:
        archive = connection.register("archive", table).table("archive")
        condition = duckdb.SQLExpression(options.where)
        kinds = [str(kind) for kind in archive.project(condition).types]
        if kinds not in (["BOOLEAN"], ['"NULL"']):
            raise Refusal(f"--where must be true or false, {options.where!r} is {', '.join(kinds)}")
        rows = archive.filter(condition).project(f'"{ROW}"').fetchnumpy()[ROW]
    except duckdb.Error as error:
        raise Refusal(f"--where {options.where!r}: {str(error).splitlines()[0]}") from error
    finally:
        connection.close()
    return np.sort(rows)


if __name__ == "__main__":
    raise SystemExit(main())
