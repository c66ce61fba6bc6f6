"""Samples of several files: application and report of ``--group`` and ``--offsets``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dali_pipelines.cli.errors import CommandError

if TYPE_CHECKING:
    import pyarrow as pa

    from readers.index.grouping.groups import Dropped, Grouping


def check(grouping: Grouping | None, names: Sequence[str]) -> None:
    """Raise CommandError, before a scan, if the table will lack columns of the grouping."""
    if grouping is None:
        return
    try:
        grouping.check(names)
    except KeyError as error:
        raise CommandError(f"{_flag(grouping)}: {error.args[0]}") from error


def told(grouping: Grouping, samples: pa.Table, dropped: Dropped | None) -> str:
    """Describe how many samples there are, and how many lack a channel or a frame."""
    frames = grouping.frames
    lacking = {part: samples[f"path_{part}"].null_count for part in frames.parts}
    missing = (f", {part} is missing in {count}" for part, count in lacking.items() if count)
    channels, times = len(frames.channels), len(frames.offsets)
    made_of = f"{channels} channels" if channels else f"{times} frames"
    if channels and times:
        made_of += f" at {times} times"
    made = f"{samples.num_rows} samples of {made_of} made of them"
    return "".join((made, *missing, f"; {dropped}" if dropped and dropped.count else ""))


def grouped(grouping: Grouping | None, table: pa.Table) -> tuple[pa.Table, Dropped | None]:
    """Return the table of the samples, and its gaps; without a grouping the table itself."""
    if grouping is None:
        return table, None
    try:
        return grouping.apply(table)
    except TypeError as error:
        raise CommandError(f"{_flag(grouping)}: {error}") from error
    except ValueError as error:
        message = str(error).replace("larger tolerance", "larger --tolerance")
        raise CommandError(f"{_flag(grouping)}: {message}", 1) from error


def _flag(grouping: Grouping) -> str:
    return "--offsets" if grouping.channels is None else "--group"
