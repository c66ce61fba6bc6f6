"""Measure the pixels of an archive, to choose mean, std and a stretch for a network.

    dali-pipelines stats archive/ -o stats.toml
    dali-pipelines stats archive.parquet --by wavelnth --pipeline aia --exposure
    dali-pipelines stats speech/ --pipeline audio --features log_mel -o stats.toml
    dali-pipelines stats clips.parquet --pipeline video --frames 8 --stride 2 -o stats.toml
    dali-pipelines run --data archive/ --config stats.toml

Images are those that `run` delivers with the same flags, but without flips, turns, mean, std,
stretch, augmentations and transform. Each image gives one random window; in place of a random area
it gives all its pixels. Recordings give their samples, or with --features their features; videos
give the frames of one clip, by default a single frame. Rows are drawn at random, one from each of
--count equal parts of the Index. For each channel the command prints mean, standard deviation and
percentiles; pixels without a value are left out. With --by there is a table for each value of a
column of the Index.

The file of -o has mean and std for `run --config`, and a stretch in a comment. For frames of AIA
and HMI it has only stretches, one for each channel of a sample; for arrays it also has their
variables, in this order. With --by, all settings are comments. --config also accepts a file for
`run`; settings without effect here are ignored:

    dali-pipelines stats -o stats.toml --config run.toml
    dali-pipelines run --data archive/ --config run.toml --config stats.toml

The exit status is 0; 1 if no image could be read, 2 for wrong usage, 130 if interrupted.
"""

# Reader processes import this file again: heavy modules are imported in the functions.
from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from dali_pipelines.cli.errors import CommandError, command, count, in_flags, one_line, refusing
from dali_pipelines.cli.flag_types import at_least
from dali_pipelines.cli.options import config_files, option, parse, settings_of
from dali_pipelines.cli.paths import check_outputs, check_unread, samples_of, write_file
from dali_pipelines.cli.pipeline_flags import (
    ImagesFlags,
    calibration_settings,
    factory_of,
    suffixes_of,
)
from dali_pipelines.cli.run_config import of_run
from dali_pipelines.cli.shared_flags import FileFlags
from dali_pipelines.config import PipelineConfig
from dali_pipelines.settings import PipelineSettings
from dali_pipelines.variables import channels_of
from readers.messages import printable

if TYPE_CHECKING:
    from dali_pipelines.pixel_statistics import PixelStatistics
    from readers import Index

_NOUNS = {"audio": "recording", "video": "video"}
"""Names of the rows by ``--pipeline``; others are images."""
_LISTED = 10
"""Maximum number of unreadable rows to name."""


@dataclass(frozen=True, kw_only=True)
class StatsConfig(FileFlags, ImagesFlags):
    """Flags of ``stats``."""

    GROUPS: ClassVar[Mapping[str, str]] = {
        "statistics": "output count by",
        "images": "pipeline hdu planes hdus variables crop window outside missing random_area "
        "resize_shorter resize interpolation",
        "objects of S3, Google Cloud Storage and web servers": "endpoint region profile anonymous "
        "retries request_timeout concurrency",
        "recordings": "duration short rate channels speeds features",
        "videos": "frames stride decode",
        "frames of AIA and HMI": "preset size order center pointing_table correction_table "
        "exposure psf",
    }
    COMMON: ClassVar[str] = "files output pipeline count by crop resize preset config"

    output: str | None = option(
        None, "write mean, std and a stretch, for --config", short="-o", metavar="STATS.toml"
    )
    count: int = option(64, "maximum number of images to read", type=at_least(1))
    by: str | None = option(
        None, "statistics for each value of this column of the Index", metavar="COLUMN"
    )
    settings: dict[str, Any] = settings_of(
        PipelineConfig,
        "crop window outside missing random_area resize_shorter resize interpolation",
        hints=PipelineSettings,
        crop={"metavar": "PIXELS"},
        resize={"metavar": "PIXELS"},
        resize_shorter={"metavar": "PIXELS"},
    )
    calibration_settings: dict[str, Any] = calibration_settings("size")


@command("stats")
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, 1 if no image was read, 2 for wrong usage, 130 if interrupted."""
    config = parse(StatsConfig, argv, __doc__, "stats", translate=partial(of_run, StatsConfig))
    from dali_pipelines.cli.progress import Bar
    from dali_pipelines.cli.single_rows import num_processes
    from dali_pipelines.factories import has_clips
    from dali_pipelines.pixel_statistics import pixel_statistics
    from readers.errors import ReadError

    check_outputs(config, config_files(argv), output=config.output)
    index = samples_of(config.files, suffixes_of(config.pipeline), config.storage)
    check_unread(index.table, config.output)
    settings = config.factory_settings()
    if config.pipeline == "video":
        with refusing(ValueError):
            if not has_clips(index):
                settings.setdefault("frames", 1)
    channels = None
    if config.pipeline == "chunked":
        with refusing(ValueError):
            channels = channels_of(index, settings.get("variables"), settings.get("targets"))
    named = () if channels is None else channels.named
    labels = [" ".join(filter(None, (part, one.name))) for part, one in named]
    found: dict[str, PixelStatistics] = {}
    failed = 0
    for name, rows in _groups(index, config.by):
        try:
            with refusing(KeyError, TypeError, ValueError):
                found[name] = pixel_statistics(
                    factory_of(config.pipeline),
                    rows,
                    count=config.count,
                    num_read_processes=num_processes(rows),
                    progress=partial(Bar, unit=f"{_NOUNS.get(config.pipeline, 'image')}s"),
                    **settings,
                )
        except ReadError as error:
            failed += 1
            message = one_line(f"{name}: {error}" if name else error)
            print(in_flags(message), file=sys.stderr)
        else:
            print(_table(name, found[name], len(rows), config.pipeline, labels), flush=True)
    if config.output is not None and found:
        variables = None if channels is None else channels.names
        write_file(config.output, _toml(found, config, labels, variables))
        print(f"Written to {config.output}", file=sys.stderr)
    return 1 if failed else 0


def _groups(index: Index, by: str | None) -> Iterator[tuple[str, Index]]:
    """Yield the name and the rows of each value of a column, in the order of the values."""
    if by is None:
        yield "", index
        return
    import pyarrow.compute as pc
    from pyarrow import ArrowNotImplementedError

    from readers.index.schema import check_column

    with refusing(KeyError):
        check_column(index.table, by)
    values = index.table[by].combine_chunks()
    try:
        found = pc.value_counts(values.drop_null()).field("values")
        known = sorted(value for value in found.to_pylist() if value == value)  # not NaN
    except (TypeError, ArrowNotImplementedError) as error:
        raise CommandError(f"--by={by}: its values cannot be grouped: {error}") from error
    if not known:
        raise CommandError(f"--by={by}: the column has no values")
    left = len(index)
    for value in known:
        rows = pc.fill_null(pc.equal(values, value), fill_value=False).to_numpy(
            zero_copy_only=False
        )
        left -= int(rows.sum())
        yield printable(f"{by} {value}"), index.select(rows)
    if left:
        print(f"{count(left, 'row')} without a value in {by} are left out", file=sys.stderr)


def _table(
    name: str, found: PixelStatistics, rows: int, pipeline: str, labels: Sequence[str]
) -> str:
    """Return the statistics as text, with a line for each channel."""
    percentiles = sorted(found.percentiles)
    heads = ("channel", "mean", "std", "min", *(f"{one:g} %" for one in percentiles), "max", "NaN")
    lines = [heads]
    for number in range(len(found.mean)):
        values = [found.percentiles[one][number] for one in percentiles]
        numbers = (found.mean[number], found.std[number], found.minimum[number], *values)
        shown = [f"{one:.4g}" for one in (*numbers, found.maximum[number])]
        label = labels[number] if labels else str(number)
        lines.append((label, *shown, f"{100 * (1 - found.valid[number]):.3g} %"))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = [
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    ]
    title = f"{name}: " if name else ""
    bad = f", {len(found.rejected)} could not be read" if found.rejected else ""
    what = f"{_NOUNS.get(pipeline, 'image')}s"
    named = [f"  {printable(each)}: {in_flags(reason)}" for each, reason in found.rejected.items()]
    if len(named) > _LISTED:
        named[_LISTED:] = [f"  and {len(named) - _LISTED} more"]
    return "\n".join((f"{title}{found.images} of {rows} {what}{bad}", *named, *text))


def _toml(
    found: Mapping[str, PixelStatistics],
    config: StatsConfig,
    labels: Sequence[str],
    variables: Sequence[str] | None,
) -> str:
    """Return settings for ``--config``, in comments where they are alternatives.

    `variables` keep the order of the numbers.
    """
    of_aia = config.pipeline == "aia"
    of_audio = config.pipeline == "audio"
    noun = _NOUNS.get(config.pipeline, "image")
    lines = ["# Measured by dali-pipelines stats, in units of the decoded images."]
    if of_audio:
        lines = [f"# Measured by dali-pipelines stats, of {config.features or 'waveform'}."]
    for name, statistics in found.items():
        is_usable = all(math.isfinite(one) and one > 0 for one in statistics.std)
        mark = "" if config.by is None and is_usable and not of_aia else "# "
        counted = count(statistics.images, noun)
        lines += ["", f"# {name or 'all rows'}: {counted}"]
        if variables is not None:
            lines.append(f"{mark}variables = {json.dumps(list(variables))}")
        elif labels:
            lines.append(f"# channels: {', '.join(labels)}")
        if not of_aia:
            lines.append(f"{mark}mean = {_list(statistics.mean)}")
            lines.append(f"{mark}std = {_list(statistics.std)}")
        if of_audio:  # there is no stretch for recordings
            continue
        try:
            stretches = statistics.stretches()
        except ValueError as error:
            lines.append(f"# no stretch: {error}")
            continue
        mark = "" if config.by is None and of_aia else "# "
        if not of_aia:
            lines.append("# In place of mean and std, a curve that shows faint and bright pixels:")
        for one in stretches:
            low, high = one.clip
            lines += [
                f"{mark}[[stretch]]",
                f'{mark}kind = "{one.kind}"',
                f"{mark}unit = {one.unit!r}",
                f"{mark}a = {one.a!r}",
                f"{mark}clip = [{low!r}, {high!r}]",
                f"{mark}mean = {one.mean!r}",
                f"{mark}std = {one.std!r}",
            ]
    return "\n".join(lines) + "\n"


def _list(values: Sequence[float]) -> str:
    return f"[{', '.join(f'{value:.9g}' for value in values)}]"
