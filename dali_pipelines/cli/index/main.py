"""Scan an archive once, in parallel, into an Index: a table with a row for each image.

    python scripts/index.py archive/ -o aia.parquet --rules aia --where "percentd = 100"
    python scripts/index.py aia.parquet -o samples.parquet --group 171,193,211

Columns: path, hdu, planes, height, width, bitpix, codec, file_bytes, then the header keys in lower
case with underscores (DATE-OBS becomes date_obs). With --hdu all there is a row for each HDU that
holds an image, with --planes all one for each plane, and a column plane. Of FITS files only headers
are read. Files that cannot be read are listed and left out, and so are, with --rules, those whose
header makes them unfit. An Index can be filtered and grouped, too: then no file is opened. It is
written as Parquet, or, for a huge archive, as Arrow, which takes more room and opens at once. With
--verify each file is decoded whole, too, and what is damaged is left out.
Imports are light: the child processes import this file again.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
import time
from concurrent.futures import BrokenExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Literal, cast

from dali_pipelines.cli.errors import Refusal, command, one_line
from dali_pipelines.cli.index import grouping, output, where
from dali_pipelines.cli.options import Parser, at_least, hdu_name, plane_numbers
from dali_pipelines.cli.paths import write_table
from dali_pipelines.cli.process_pool import Crash, isolated_map, process_map

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from readers.fits.hdus import HduName
    from readers.index.fact_table import Fact, FactTable

    Rejected = list[tuple[str, str]]

# A task of the pool: 0.1 s of work, or some seconds where each file has to come over a network.
CHUNK_FILES = 32
KEYS = "DATE-OBS,T_OBS,WAVELNTH,EXPTIME,QUALITY"
# Rejected files that are named on the terminal.
LISTED = 20


@command("index", "interrupted, nothing was written")
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, 1 if no row was left, 2 for wrong usage, 130 if interrupted."""
    options = _options(argv)
    output.check(
        options.out, data=options.data, rejected=options.rejected, overwrite=options.overwrite
    )
    if output.is_table(options.data):
        _index_table(options)
    else:
        _index_files(options)
    print(f"Written to {os.path.abspath(options.out)}")
    return 0


def _index_table(options: argparse.Namespace) -> None:
    from readers.index.fact_table import column_name
    from readers.index.table import Index

    try:
        table = Index.scan(options.data).table
    except (OSError, ValueError) as error:
        raise Refusal(error) from error
    grouping.check(options.grouping, table.column_names)
    keys = [key for key in options.keys if column_name(key) in table.column_names]
    _finish(options, keys, table, f"{table.num_rows} rows found")


def _index_files(options: argparse.Namespace) -> None:
    files = _files(options)
    unknown = _with_labels(_unknown(options), files)
    if options.where is not None:
        where.check(options.where, options.keys, unknown)
    grouping.check(options.grouping, unknown.column_names)
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
    _report_absent(options.asked, table, facts)
    _finish(options, options.keys, table, f"{len(paths)} files found", len(rejected))
    seconds = time.perf_counter() - start
    print(f"{seconds:.1f} s, {len(paths) / seconds:.0f} files/s. ", end="")


def _finish(
    options: argparse.Namespace,
    keys: list[str],
    table: pa.Table,
    found: str,
    rejected: int | None = None,
) -> None:
    """Filter, group and save the rows, and say how many there are."""
    fit, dropped = _by_rules(table, options)
    kept = fit
    if options.where is not None:
        kept = fit.take(where.matching(options.where, keys, fit))
    if not kept.num_rows:
        flags = " and ".join(f"--{name}" for name in ("rules", "where") if getattr(options, name))
        raise Refusal(f"nothing was written: {flags} dropped all rows", 1)
    samples = grouping.grouped(options.grouping, kept)
    if options.mcu_rows:
        samples = _with_mcu_rows(samples, options.num_processes)
    output.save(samples, options.out)
    refused = "" if rejected is None else f"{rejected} rejected, "
    print(
        f"{found}: {kept.num_rows} rows kept, {refused}"
        f"{dropped}{fit.num_rows - kept.num_rows} dropped by --where."
    )
    if options.grouping is not None:
        print(f"{grouping.told(options.grouping, samples)}.")


def _with_mcu_rows(table: pa.Table, num_threads: int) -> pa.Table:
    from tqdm import tqdm

    from dali_pipelines import with_mcu_rows
    from readers.index.table import Index

    progress = functools.partial(
        tqdm, total=table.num_rows, unit=" files", disable=not sys.stderr.isatty()
    )
    noted = with_mcu_rows(Index(table), num_threads, progress).table
    without = noted["mcu_rows"].null_count
    print(f"Rows of MCUs noted of {noted.num_rows - without} files, {without} are not coded so.")
    return noted


# ---- The command line --------------------------------------------------------------------------


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="dali-pipelines index",
        description="Scan an archive once, in parallel, into an Index file.",
        epilog="Columns for --where: path, hdu, planes, plane (with --planes), height, width, "
        "bitpix, codec, file_bytes, and the keys in lower case with underscores (date_obs), or as "
        'FITS spells them in double quotes ("DATE-OBS"). Exit status: 0 an Index was written, 1 no '
        "row was left, 2 wrong usage, 130 interrupted.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "data",
        metavar="DATA",
        help="folder (with its subfolders), glob in quotes, or one file; an Index or a .csv, to "
        "filter and group its rows",
    )
    help_out = "file to write, .parquet (compact) or .arrow (opens at once), default: %(default)s"
    add("-o", "--out", metavar="OUT", default="index.parquet", help=help_out)
    add("--keys", type=_keys, help=f"header keys to keep, default: {KEYS}")
    add(
        "--rules",
        choices=("aia",),
        help="drop what is unfit as AIA level 1 or HMI, and keep the header keys that tell",
    )
    add("--where", metavar="EXPR", help="SQL condition on the columns; other rows are dropped")
    add(
        "--hdu",
        type=hdu_name,
        metavar="N|NAME|all",
        help="HDU of the image: number, EXTNAME, or EXTNAME,EXTVER; all: a row for each that holds "
        "one; default: the first",
    )
    add(
        "--planes",
        type=plane_numbers,
        metavar="N,N,...|all",
        help="of images with more than two axes: a row for each of these planes, from 0 on",
    )
    cores = len(os.sched_getaffinity(0))
    add("--num_processes", type=at_least(1), metavar="N", default=cores, help="default: all cores")
    add("--class_folders", action="store_true", help="one subfolder a class: add label, class_name")
    help_classes = "Index of the training files, whose labels --class_folders keeps"
    add("--classes", metavar="INDEX", help=help_classes)
    add(
        "--mcu_rows",
        action="store_true",
        help="note where in JPEG files their rows begin: of windows no more is read and decoded",
    )
    add(
        "--verify",
        action="store_true",
        help="decode each file whole, check its checksums and a JPEG's entropy-coded data, and "
        "leave out what is damaged",
    )
    add("--rejected", metavar="FILE.csv", help="where to list all files that could not be read")
    add("--overwrite", action="store_true", help="replace OUT even if it is not from this script")
    grouping.add_flags(parser)
    options = parser.parse_args(argv)
    if output.is_table(options.data):
        for name in ("keys", "hdu", "planes", "class_folders", "verify", "rejected"):
            if getattr(options, name) is not parser.get_default(name):
                parser.error(f"--{name} is for a scan of files, and {options.data} is a table")
    if options.classes is not None and not options.class_folders:
        parser.error("--classes needs --class_folders")
    options.asked = tuple(options.keys or ())
    options.keys = _keys(KEYS) if options.keys is None else options.keys
    if options.rules is not None:
        from readers.aia.rules import KEYS as NEEDED

        options.keys += [key for key in NEEDED if key not in options.keys]
    options.grouping = grouping.of(parser, options)
    return options


def _keys(text: str) -> list[str]:
    from readers.index.fact_table import COLUMNS, column_name

    keys = [key.strip().upper() for key in text.split(",") if key.strip()]
    columns = [*COLUMNS, "label", "class_name", *map(column_name, keys)]
    if twice := sorted({name for name in columns if columns.count(name) > 1}):
        raise argparse.ArgumentTypeError(f"there would be two columns {', '.join(twice)}")
    return keys


# ---- Files in, files out -----------------------------------------------------------------------


def _files(options: argparse.Namespace) -> pa.Table:
    """Give the table of the files: path, sorted, and the labels if there are any."""
    from readers.index.table import SUFFIXES, Index

    if options.class_folders and not os.path.isdir(options.data):
        raise Refusal(f"--class_folders needs a folder, got {options.data}")
    suffixes = (*SUFFIXES["fits"], *SUFFIXES["jpeg"])
    try:
        if not options.class_folders:
            return Index.scan(options.data, suffixes=suffixes).table
        classes = None if options.classes is None else Index.load(options.classes)
        return Index.from_class_folders(options.data, classes=classes, suffixes=suffixes).table
    except (OSError, ValueError) as error:
        raise Refusal(error) from error


def _unknown(options: argparse.Namespace) -> pa.Table:
    """Give the table of a scan that has read one file and found nothing in it."""
    from readers.index.fact_table import COLUMNS, FactTable

    facts = FactTable(options.keys, has_planes=options.planes is not None)
    facts.add(dict.fromkeys((*COLUMNS, *options.keys)))  # without a row, little is evaluated
    return facts.table()


def _with_labels(table: pa.Table, files: pa.Table) -> pa.Table:
    import pyarrow.compute as pc

    from readers.index.classes import classes_of, with_classes

    rows = pc.index_in(table["path"], value_set=files["path"])
    for name in files.column_names[1:]:
        table = table.append_column(name, files[name].take(rows))
    return with_classes(table, classes_of(files))


def _by_rules(table: pa.Table, options: argparse.Namespace) -> tuple[pa.Table, str]:
    """Give the rows that the rules let pass, and how many they drop for what."""
    if options.rules is None:
        return table, ""
    from collections import Counter

    import pyarrow as pa

    from readers.aia.rules import HeaderRules
    from readers.messages import printable

    try:
        selection = HeaderRules().select(table)
    except ValueError as error:  # of a table that was made without --rules
        raise Refusal(f"--rules: {error}") from error
    for row, violation in list(selection.refused.items())[:LISTED]:
        print(printable(f"dropped {table['path'][row]}: {violation.message}"), file=sys.stderr)
    if len(selection.refused) > LISTED:
        print(f"and {len(selection.refused) - LISTED} more", file=sys.stderr)
    counts = Counter(violation.rule for violation in selection.refused.values())
    reasons = ", ".join(f"{count} for {rule}" for rule, count in counts.most_common())
    return table.take(pa.array(selection.rows)), (
        f"{len(selection.refused)} dropped by --rules{f' ({reasons})' if reasons else ''}, "
    )


def _report_rejected(rejected: Rejected, options: argparse.Namespace, *, everything: bool) -> None:
    from readers.messages import printable

    if options.rejected is not None:
        try:
            write_table(options.rejected, ("path", "reason"), rejected)
        except OSError as error:
            raise Refusal(f"{options.rejected} could not be written: {error}", 1) from error
    if everything:
        path, reason = rejected[0]
        raise Refusal(f"none of {len(rejected)} files can be read, the first: {path}: {reason}", 1)
    for path, reason in rejected[:LISTED]:
        print(f"rejected {printable(path)}: {reason}", file=sys.stderr)
    if len(rejected) > LISTED:
        print(f"and {len(rejected) - LISTED} more (--rejected lists all)", file=sys.stderr)


def _report_absent(keys: Sequence[str], table: pa.Table, facts: FactTable) -> None:
    """Say which keys were asked for in vain: misspelt, as a rule."""
    from readers.index.fact_table import column_name

    headers = len(table["hdu"].drop_null())  # encoded images have none
    for key in keys if headers else ():
        name = column_name(key)
        if table[name].null_count == table.num_rows and name not in facts.not_times:
            print(
                f"key {key} is in none of {headers} headers, or has no value there", file=sys.stderr
            )


# ---- The scan ----------------------------------------------------------------------------------


def _scan(paths: list[str], options: argparse.Namespace) -> tuple[FactTable, Rejected]:
    """Give the facts of the files, in the order of the paths, and the files that have none."""
    from tqdm import tqdm

    from readers.index.fact_table import FactTable

    # A decoder can be brought down by a damaged file, which is then known if it is alone.
    size = 1 if options.verify else CHUNK_FILES
    chunks = [paths[at : at + size] for at in range(0, len(paths), size)]
    tasks = [(chunk, options.keys, options.hdu, options.planes, options.verify) for chunk in chunks]
    num_processes = min(options.num_processes, len(chunks))
    mapped = isolated_map if options.verify else process_map
    facts = FactTable(options.keys, has_planes=options.planes is not None)
    rejected: Rejected = []
    try:
        with (
            tqdm(total=len(paths), unit="file", disable=not sys.stderr.isatty()) as bar,
            closing(mapped(_scan_chunk, tasks, num_processes)) as results,
        ):
            for chunk, result in zip(chunks, results, strict=True):
                if isinstance(result, Crash):
                    result = [], [(chunk[0], "it kills the process that decodes it")]
                read, refused = result
                for rows in read:
                    for row in rows:
                        facts.add(row)
                rejected += refused
                bar.update(len(read) + len(refused))
    except BrokenExecutor as error:
        raise Refusal(
            f"one of {num_processes} processes was killed; if for memory, try fewer", 1
        ) from error
    return facts, rejected


def _scan_chunk(
    paths: list[str],
    keys: list[str],
    hdu: HduName | None,
    planes: Sequence[int] | Literal["all"] | None,
    verify: bool,
) -> tuple[list[list[dict[str, Fact]]], Rejected]:
    """Return the rows of each file that can be read, and why of the others."""
    from dali_pipelines.cli.full_decode import check_whole
    from readers.errors import ReadError
    from readers.header_scan import file_facts

    read, rejected = [], []
    for path in paths:
        try:
            facts = file_facts(path, keys, hdu, planes)
            if verify:
                planes_of = {row["hdu"]: row["planes"] for row in facts}
                for number, count in cast("dict[int | None, int | None]", planes_of).items():
                    check_whole(path, number, count or 1)
            read.append(facts)
        except ReadError as error:
            rejected.append((path, one_line(error.reason)))
    return read, rejected
