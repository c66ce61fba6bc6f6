"""Measure the pixels of an archive, to choose mean, std and a stretch for a network.

    dali-pipelines stats archive/ -o stats.toml
    dali-pipelines stats archive.parquet --by wavelnth --pipeline aia --exposure
    dali-pipelines run --data archive/ --config stats.toml

Images are read as `run` delivers them with the same flags, but without chance, mean, std, stretch,
augmentations and transform. Rows are drawn at random, one in each of --count equal parts of the
Index. For each channel it prints mean, standard deviation and percentiles; pixels without a value
are left out. With --by there is a table for each value of a column of the Index.

The file of -o has mean and std, and in a comment a stretch, for `run` and `show --config`.

The exit status is 0; 1 if no image could be read, 2 for wrong usage, 130 if interrupted.
"""

# Reader processes import this file again: what is heavy is imported in the functions.
from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from dali_pipelines.cli.errors import command, refusing
from dali_pipelines.cli.flag_types import at_least
from dali_pipelines.cli.options import config_file, option, parse
from dali_pipelines.cli.paths import check_outputs, check_unread, samples_of, write_file
from dali_pipelines.cli.pipeline_flags import (
    PipelineFlags,
    calibration_settings,
    factory_of,
    image_settings,
    suffixes_of,
)
from dali_pipelines.cli.shared_flags import FileFlags

if TYPE_CHECKING:
    from dali_pipelines.pixel_statistics import PixelStatistics
    from readers import Index


@dataclass(frozen=True, kw_only=True)
class StatsConfig(FileFlags, PipelineFlags):
    """Flags of ``stats``."""

    GROUPS: ClassVar[Mapping[str, str]] = {
        "statistics": "output count by",
        "images": "pipeline hdu",
        "objects of S3, Google Cloud Storage and web servers": "endpoint region profile anonymous "
        "retries request_timeout concurrency",
        "geometry": "mode seed crop window outside missing flip rotate zoom random_area "
        "random_aspect_ratio resize_shorter resize stretch augment transform ragged outputs",
        "targets": "mask boxes labels",
        "frames of AIA and HMI": "preset size order pointing_table correction_table exposure psf",
    }
    COMMON: ClassVar[str] = "files output pipeline count by crop resize preset config"

    output: str | None = option(
        None, "write mean, std and a stretch, for --config", short="-o", metavar="STATS.toml"
    )
    count: int = option(64, "most images to read", type=at_least(1))
    by: str | None = option(
        None, "statistics for each value of this column of the Index", metavar="COLUMN"
    )
    settings: dict[str, Any] = image_settings()
    calibration_settings: dict[str, Any] = calibration_settings("size")


@command("stats")
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, 1 if no image was read, 2 for wrong usage, 130 if interrupted."""
    config = parse(StatsConfig, argv, __doc__, "stats")
    from tqdm import tqdm

    from dali_pipelines.cli.single_rows import num_processes
    from dali_pipelines.pixel_statistics import pixel_statistics
    from readers.errors import ReadError

    check_outputs(config, config_file(argv), output=config.output)
    index = samples_of(config.files, suffixes_of(config.pipeline), config.storage)
    check_unread(index.table, config.output)
    settings = config.pipeline_settings()
    if config.calibration is not None:
        settings["calibration"] = config.calibration
    if config.pipeline == "fits":
        settings["hdu"] = config.hdu
    found: dict[str, PixelStatistics] = {}
    for name, rows in _groups(index, config.by):
        with refusing(KeyError, TypeError, ValueError), refusing(ReadError, status=1):
            statistics = pixel_statistics(
                factory_of(config.pipeline),
                rows,
                count=config.count,
                num_read_processes=num_processes(rows),
                progress=partial(tqdm, unit=" images", disable=not sys.stderr.isatty()),
                **settings,
            )
        found[name] = statistics
        print(_table(name, statistics, len(rows)), flush=True)
    if config.output is not None:
        write_file(config.output, _toml(found, config.by))
    return 0


def _groups(index: Index, by: str | None) -> Iterator[tuple[str, Index]]:
    """Yield the rows of each value of a column, in the order of the values, and their name."""
    if by is None:
        yield "", index
        return
    import pyarrow.compute as pc

    from readers.index.schema import check_column

    with refusing(KeyError):
        check_column(index.table, by)
    values = index.table[by]
    for value in sorted(value for value in values.unique().to_pylist() if value is not None):
        yield f"{by} {value}", index.select(pc.equal(values, value).to_numpy())


def _table(name: str, found: PixelStatistics, rows: int) -> str:
    """Return the statistics as text, a line for each channel."""
    percentiles = sorted(found.percentiles)
    heads = ("channel", "mean", "std", "min", *(f"{one:g} %" for one in percentiles), "max", "NaN")
    lines = [heads]
    for number in range(len(found.mean)):
        values = [found.percentiles[one][number] for one in percentiles]
        numbers = (found.mean[number], found.std[number], found.minimum[number], *values)
        shown = [f"{one:.4g}" for one in (*numbers, found.maximum[number])]
        lines.append((str(number), *shown, f"{100 * (1 - found.valid[number]):.3g} %"))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = [
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    ]
    title = f"{name}: " if name else ""
    bad = f", {len(found.rejected)} could not be read" if found.rejected else ""
    return "\n".join((f"{title}{found.images} of {rows} images{bad}", *text))


def _toml(found: Mapping[str, PixelStatistics], by: str | None) -> str:
    """Return settings for ``--config``; of several groups those of the first are not commented."""
    lines = ["# Measured by dali-pipelines stats, in units of the decoded images."]
    for number, (name, statistics) in enumerate(found.items()):
        mark = "" if number == 0 and by is None else "# "
        lines += ["", f"# {name or 'all rows'}: {statistics.images} images"]
        lines.append(f"{mark}mean = {_list(statistics.mean)}")
        lines.append(f"{mark}std = {_list(statistics.std)}")
        try:
            stretches = statistics.stretches()
        except ValueError as error:
            lines.append(f"# no stretch: {error}")
            continue
        lines.append("# In place of mean and std, a curve for faint and bright pixels:")
        for one in stretches:
            low, high = one.clip
            lines += [
                "# [[stretch]]",
                f'# kind = "{one.kind}"',
                f"# unit = {one.unit:g}",
                f"# a = {one.a:g}",
                f"# clip = [{low:g}, {high:g}]",
                f"# mean = {one.mean:.6g}",
                f"# std = {one.std:.6g}",
            ]
    return "\n".join(lines) + "\n"


def _list(values: Sequence[float]) -> str:
    return f"[{', '.join(f'{value:.6g}' for value in values)}]"
