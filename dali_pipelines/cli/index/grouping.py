"""Samples of several files: how the settings of ``--group`` are applied and reported."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dali_pipelines.cli.errors import Refusal

if TYPE_CHECKING:
    import pyarrow as pa

    from readers.index.groups import Grouping


def check(grouping: Grouping | None, names: Sequence[str]) -> None:
    """Reject, before a scan, a table that will not have the columns that are needed."""
    if grouping is None:
        return
    try:
        grouping.check(names)
    except KeyError as error:
        raise Refusal(f"--group: {error.args[0]}") from error


def told(grouping: Grouping, samples: pa.Table) -> str:
    """Describe how many samples there are, and how many of them lack a channel."""
    lacking = {channel: samples[f"path_{channel}"].null_count for channel in grouping.channels}
    missing = (f", {channel} is missing in {count}" for channel, count in lacking.items() if count)
    made = f"{samples.num_rows} samples of {len(lacking)} channels made of them"
    return "".join((made, *missing))


def grouped(grouping: Grouping | None, table: pa.Table) -> pa.Table:
    """Return the table of the samples; the table itself without a grouping."""
    if grouping is None:
        return table
    try:
        return grouping.apply(table)
    except TypeError as error:
        raise Refusal(f"--group: {error}") from error
    except ValueError as error:  # which writes missing='keep' for --missing keep
        flags = re.sub(r"(?<!')\b(tolerance|missing)\b", r"--\1", str(error))
        message = re.sub(r"='(\w+)'", r" \1", flags)
        raise Refusal(f"--group: {message}", 1) from error
