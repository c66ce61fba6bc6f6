"""Scan an archive once, in parallel, into an Index: a table with a row for each image.

    dali-pipelines index archive/ -o aia.parquet --rules aia --where "percentd = 100"
    dali-pipelines index aia.parquet -o samples.parquet --group 171,193,211
    dali-pipelines index aia.parquet -o aia.parquet --split train=0.9,val=0.1
    dali-pipelines index aia.parquet -o /scratch/aia.parquet --moved /data/aia /scratch/aia
    dali-pipelines index s3://bucket/frames/ -o bucket.parquet --fits_tiles --anonymous
    dali-pipelines index speech/ --audio -o speech.parquet --where "duration >= 1"
    dali-pipelines index clips/ --video --class_folders -o clips.parquet --split train=0.9,val=0.1
    dali-pipelines index era5.zarr --variables t2m,z --isel level=3 -o era5.parquet
    dali-pipelines index 'goes/*.nc' --variables Rad --columns time=t_start -o goes.arrow
    dali-pipelines index survey/ --hdus "SCI*" --cutouts stars.csv --size 64 -o stars.parquet

Columns: path, hdu, planes, height, width, bitpix, codec, file_bytes, then the header keys in lower
case with underscores (DATE-OBS becomes date_obs). With --hdu all there is a row for each HDU with
an image, with --hdus "SCI*" for each HDU of such a name, and with --planes all for each plane, with
a column plane. --where takes these names, or FITS keywords in double quotes ("DATE-OBS").

Each image in tar, TFRecord, RecordIO and LMDB files makes a row, with offset, nbytes and key, and
the labels beside it. The headers of these images are only read for --keys, --rules, --hdu and
--planes.

    dali-pipelines index 'shards/*.tar' -o train.arrow
    dali-pipelines index 'train-*-of-*' --container tfrecord --image image/encoded

With --variables there is a row for each position along an axis of a Zarr store or of HDF5 and
netCDF4 files, or for each file, with columns path, plane, those of --columns, and chunks.

Only the headers of FITS files are read. Files that cannot be read are listed and left out; with
--rules, so are files with an unfit header. To filter or group an Index, no file is opened (one byte
is requested of each remote object without a version). --moved OLD NEW converts the Index of an
archive that was moved or copied. Parquet is compact; Arrow, for a huge archive, takes more space
and opens at once. With --verify each file is decoded, and damaged files are left out.

With --cutouts there is a row for each object of a catalogue on each image. Its columns are y and x,
the corner of a window of --size for `run` and `show`, the columns of the catalogue, and
catalogue_row.

Many machines can read an archive by --executor, or as jobs of an array: each with --num_shards=N
--shard_id=I, and at the end the same command with --num_shards=N --join.

The exit status is 0 if an Index was written, 1 if no row was left, 2 for wrong usage, 130 if
interrupted.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from dali_pipelines.cli.errors import CommandError, command, in_flags, refusing
from dali_pipelines.cli.executors import executor_of
from dali_pipelines.cli.index import containers, cutouts, grouping, output, parts, splitting, where
from dali_pipelines.cli.index.config import IndexConfig
from dali_pipelines.cli.index.scan import (
    files_of,
    scan,
    scan_shard,
    unknown_facts,
    with_labels,
    with_members,
)
from dali_pipelines.cli.options import config_files, parse
from dali_pipelines.cli.paths import check_unread, write_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from concurrent.futures import Executor

    import pyarrow as pa

    from dali_pipelines.cli.index.scan import Rejected
    from readers.index.fact_table import FactTable

_INHERIT = "; if it is in the header of HDU 0, add --inherit"
LISTED = 20
"""Maximum number of rejected files that are named on the terminal."""


@command("index", "interrupted, nothing was written")
def main(argv: Sequence[str] | None = None, *, executor: Executor | None = None) -> int:
    """Run the command; return 0, 1 if no row was left, 2 for wrong usage, 130 if interrupted.

    With an `executor` its workers read the files.
    """
    config = parse(IndexConfig, argv, __doc__, "index")
    splitting.check_flags(config)
    for file in splitting.files(config):
        output.check(file, config, config_files(argv))
    cutouts.check(config)
    with executor_of(config.executor, executor) as workers:
        if config.audio or config.video:
            _index_by_duration(config)
        elif config.variables is not None:
            _index_arrays(config)
        elif output.is_table(config.data):
            _index_table(config, workers)
        else:
            _index_files(config, workers)
    written = splitting.files(config) if config.shard_id is None else [parts.path(config)]
    print(f"Written to {', '.join(map(os.path.abspath, written))}")
    if config.join:
        parts.remove(config)
    return 0


def _index_table(config: IndexConfig, executor: Executor | None) -> None:
    from readers.index.table import Index

    storage = config.storage
    with refusing(ImportError, OSError, ValueError):
        index = Index.scan(config.data, storage=storage)
        index = index if config.moved is None else index.moved(*config.moved)
        table = index.with_versions(storage).table
    check_unread(table, *splitting.files(config), config.rejected)
    _check_columns(config, table.column_names)
    _finish(config, executor, table, f"{table.num_rows} rows found")


def _index_by_duration(config: IndexConfig) -> None:
    """Index recordings or videos."""
    import pyarrow as pa

    from readers.index.recordings import is_manifest
    from readers.index.table import Index

    rejected: Rejected = []
    with refusing(ImportError, OSError, TypeError, ValueError):
        how: dict[str, Any] = {
            "class_folders": config.class_folders,
            "classes": None if config.classes is None else Index.load(config.classes),
            "verify": config.verify,
            "progress": functools.partial(_watched, rejected),
            "storage": config.storage,
        }
        if config.video:
            index, kind = Index.scan_videos(config.data, **how), "videos"
        else:
            has_rows = not config.class_folders and is_manifest(config.data)
            data = Index.from_manifest(config.data) if has_rows else config.data
            index, kind = Index.scan_audio(data, trim_db=config.trim_db, **how), "recordings"
    unreadable = pa.table({"path": pa.array([path for path, _ in rejected], pa.large_string())})
    for table in (index.table, unreadable):
        check_unread(table, *splitting.files(config), config.rejected)
    splitting.check(config, index.table.column_names)
    _write_rejected(config, rejected)
    if len(rejected) > 1:  # the log has named the first
        _list([f"rejected {path}: {reason}" for path, reason in rejected])
    hours = sum(index["duration"].to_pylist()) / 3600
    _finish(config, None, index.table, f"{len(index)} {kind} of {hours:.3g} h found", rejected)


def _watched(rejected: Rejected, found: Iterable[Any]) -> Iterator[Any]:
    """Yield the facts of recordings or videos, and note the errors among them."""
    from dali_pipelines.cli.progress import Bar
    from readers.errors import ReadError

    for each in Bar(found, unit="files"):
        if isinstance(each, ReadError):
            rejected.append((each.path, each.reason))
        yield each


def _index_arrays(config: IndexConfig) -> None:
    from dali_pipelines.cli.index.arrays import scan_arrays
    from readers.chunks.array import NOTE, unpacked

    table, found, rejected = scan_arrays(config)
    _report_rejected(rejected, config, everything=not table.num_rows)
    check_unread(table, *splitting.files(config), config.rejected)
    _check_columns(config, table.column_names)
    if table.num_rows:
        print(f"Variables: {', '.join(unpacked(table[NOTE][0].as_py()))}.")
    _finish(config, None, table, found, rejected)


def _index_files(config: IndexConfig, executor: Executor | None) -> None:
    from readers.index.skipped import Skipped

    left_out = Skipped()
    files = containers.table(config, executor, left_out)
    files = files_of(config) if files is None else files
    check_unread(files, *splitting.files(config), config.rejected)
    if "offset" in files.column_names:
        _index_members(config, executor, files, left_out.rejected)
        return
    unknown = with_labels(unknown_facts(config), files)
    if config.where is not None:
        where.check(config.where, unknown)
    _check_columns(config, unknown.column_names)
    if config.shard_id is not None:
        scan_shard(files, config, executor)
        return
    start = time.perf_counter()
    facts, rejected = scan(files, config, executor)
    table = with_labels(facts.table(), files)
    _report_rejected(rejected, config, everything=not table.num_rows)
    for line in facts.not_times_lines():
        print(line, file=sys.stderr)
    _report_absent(config, table, facts)
    _finish(config, executor, table, f"{len(files)} files found", rejected)
    seconds = time.perf_counter() - start
    print(f"{seconds:.1f} s, {len(files) / seconds:.0f} files/s. ", end="")


def _index_members(
    config: IndexConfig, executor: Executor | None, members: pa.Table, damaged: Rejected
) -> None:
    """Filter, group and save the samples in containers; read their headers if flags need them.

    Damaged samples are rejected.
    """
    found = f"{members.num_rows} samples in containers found"
    if config.class_folders:
        raise CommandError(
            f"--class_folders is for a scan of files, but {config.data} are containers"
        )
    if not config.for_files and config.rules is None:
        if config.num_shards is not None:
            raise CommandError(
                "--num_shards divides the reading of headers, but no flag needs the samples' "
                "headers"
            )
        _check_columns(config, members.column_names)
        _finish(config, executor, members, found, damaged or None)
        return
    with refusing(ValueError):
        config.check_keys(members.column_names)
    if config.shard_id is not None:
        scan_shard(members, config, executor)
        return
    facts, rejected = scan(members, config, executor)
    rejected = [*damaged, *rejected]
    table = with_members(facts.table(), members)
    _report_rejected(rejected, config, everything=not table.num_rows)
    _report_absent(config, table, facts)
    _check_columns(config, table.column_names)
    _finish(config, executor, table, found, rejected)


def _finish(
    config: IndexConfig,
    executor: Executor | None,
    table: pa.Table,
    found: str,
    rejected: Rejected | None = None,
) -> None:
    """Filter, group and save the rows, and report their number."""
    fit, unfit, dropped = _by_rules(table, config)
    left_out = [*(rejected or []), *unfit]
    if config.rules is not None:
        _write_rejected(config, left_out)
    kept = fit
    if config.where is not None:
        kept = fit.take(where.matching(config.where, fit))
    if not kept.num_rows:
        flags = " and ".join(f"--{name}" for name in ("rules", "where") if getattr(config, name))
        raise CommandError(f"nothing was written: {flags} dropped all rows", 1)
    samples, lacking = grouping.grouped(config.grouping, kept)
    samples = _with_notes(config, executor, samples)
    samples = _cutouts(config, samples, left_out)
    tables = splitting.parts(config, samples)
    for table, file in zip(tables, splitting.files(config), strict=True):
        output.save(table, file)
    unread = "" if rejected is None else f"{len(rejected)} rejected, "
    print(
        f"{found}: {kept.num_rows} rows kept, {unread}"
        f"{dropped}{fit.num_rows - kept.num_rows} dropped by --where."
    )
    if config.grouping is not None:
        print(f"{grouping.told(config.grouping, samples, lacking)}.")
    if config.cutouts is not None:
        print(f"{cutouts.told(config, samples)}.")
    if config.split is not None:
        print(f"{splitting.told(config, tables, len(samples))}.")


def _cutouts(config: IndexConfig, table: pa.Table, rejected: Rejected) -> pa.Table:
    """Return the table of the cutouts, and report the objects left out."""
    made, left_out = cutouts.cut(config, table, config.storage)
    if config.cutouts is not None:
        _write_rejected(config, [*rejected, *cutouts.report(config, left_out)])
    if made is None:
        raise CommandError("nothing was written: no object makes a row", 1)
    return made


def _check_columns(config: IndexConfig, names: Sequence[str]) -> None:
    """Raise CommandError if the table lacks a column for grouping or splitting its rows."""
    grouping.check(config.grouping, names)
    if config.grouping is None and config.cutouts is None:  # these make other columns
        splitting.check(config, names)


def _with_notes(config: IndexConfig, executor: Executor | None, table: pa.Table) -> pa.Table:
    """Return the table with the MCU index and the tile offsets, if flags ask for them."""
    if not (config.mcu_rows or config.fits_tiles):
        return table
    from dali_pipelines import with_mcu_rows, with_tiles
    from dali_pipelines.cli.progress import Bar
    from readers.index.table import Index

    progress = functools.partial(Bar, total=table.num_rows, unit="files")
    index = Index(table)
    how: dict[str, Any] = {"storage": config.storage, "executor": executor}
    for flag, add, told in (
        ("mcu_rows", with_mcu_rows, "MCU index added for {} files; {} have another coding."),
        ("fits_tiles", with_tiles, "Tile offsets added for {} images; {} have another form."),
    ):
        if getattr(config, flag):
            index = add(index, config.num_processes, progress, **how)
            without = index.table[flag].null_count
            print(told.format(len(index) - without, without))
    return index.table


def _by_rules(table: pa.Table, config: IndexConfig) -> tuple[pa.Table, Rejected, str]:
    """Return the rows that pass the rules, the rows that are dropped, and the counts by rule."""
    if config.rules is None:
        return table, [], ""
    import pyarrow as pa

    from readers.aia.rules import HeaderRules
    from readers.index.table import Index

    with refusing(ValueError, doing="--rules"):  # the table was made without --rules
        selection = HeaderRules().select(table)
    columns = Index(table).columns()
    unfit = [(columns.row(row).name, bad.message) for row, bad in selection.refused.items()]
    _list([f"dropped {path}: {reason}" for path, reason in unfit])
    counts = Counter(violation.rule for violation in selection.refused.values())
    reasons = ", ".join(f"{count} for {rule}" for rule, count in counts.most_common())
    dropped = f"{len(unfit)} dropped by --rules{f' ({reasons})' if reasons else ''}, "
    return table.take(pa.array(selection.rows)), unfit, dropped


def _report_rejected(rejected: Rejected, config: IndexConfig, *, everything: bool) -> None:
    _write_rejected(config, rejected)
    if everything:
        path, reason = rejected[0]
        raise CommandError(
            f"none of {len(rejected)} files can be read, the first: {path}: {reason}", 1
        )
    _list([f"rejected {path}: {reason}" for path, reason in rejected])


def _write_rejected(config: IndexConfig, rejected: Rejected) -> None:
    if config.rejected is not None:
        with refusing(OSError, status=1, doing=f"{config.rejected} could not be written"):
            write_table(config.rejected, ("path", "reason"), rejected)


def _list(lines: Sequence[str]) -> None:
    """Print the first lines, and the number of the others."""
    from readers.messages import printable

    for line in lines[:LISTED]:
        print(in_flags(printable(line)), file=sys.stderr)
    if len(lines) > LISTED:
        print(f"and {len(lines) - LISTED} more (--rejected lists all)", file=sys.stderr)


def _report_absent(config: IndexConfig, table: pa.Table, facts: FactTable) -> None:
    """Report keys that no header has: they may be misspelt."""
    hdus = table["hdu"].drop_null()  # encoded images have no header
    remedy = "" if config.inherit or not any(hdus.unique().to_pylist()) else _INHERIT
    for key in facts.absent(table) if len(hdus) else ():
        if key in (config.keys or ()):
            print(
                f"key {key} is in none of {len(hdus)} headers of images, or has no value there"
                f"{remedy}",
                file=sys.stderr,
            )
