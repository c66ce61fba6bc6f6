"""Flags that make samples of several files, and what scripts/index.py does with them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dali_pipelines.cli.errors import Refusal

if TYPE_CHECKING:
    import pyarrow as pa

    from readers.index.groups import Grouping

_FLAGS = ("by", "time", "tolerance", "missing", "cadence")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add ``--group`` and what goes with it."""
    from typing import get_args

    from readers.index.groups import Grouping, Missing

    flags = parser.add_argument_group("samples of several files near one time")
    add = flags.add_argument
    add("--group", metavar="A,B,...", help="channels; each file of the first one makes a sample")
    for name, default, text, options in (
        ("by", Grouping.by, "column that tells channels apart", {"metavar": "COLUMN"}),
        ("time", Grouping.time, "column of times", {"metavar": "COLUMN"}),
        (
            "tolerance",
            f"{Grouping.tolerance:g}",
            "how far a file may be from its sample, in seconds or as '1min'",
            {"metavar": "TIME"},
        ),
        (
            "missing",
            Grouping.missing,
            "leave out samples that lack a channel, or keep them",
            {"choices": get_args(Missing)},
        ),
    ):
        add(f"--{name}", default=default, help=f"{text}, default: %(default)s", **options)
    text = "make a sample every so often, as '12min', not for each file of the first channel"
    add("--cadence", metavar="TIME", help=text)


def of(parser: argparse.ArgumentParser, options: argparse.Namespace) -> Grouping | None:
    """Give what the flags ask for; None without ``--group``."""
    from readers.index.groups import Grouping

    settings: dict[str, Any] = {name: getattr(options, name) for name in _FLAGS}
    if options.group is None:
        for name, value in settings.items():
            if value != parser.get_default(name):
                parser.error(f"--{name} needs --group")
        return None
    channels = [channel.strip() for channel in options.group.split(",") if channel.strip()]
    try:
        return Grouping(channels=channels, **settings)
    except ValueError as error:
        parser.error(f"--group: {error}")


def check(grouping: Grouping | None, names: Sequence[str]) -> None:
    """Refuse, before a scan, a table that will not have the columns that are needed."""
    if grouping is None:
        return
    try:
        grouping.check(names)
    except KeyError as error:
        raise Refusal(f"--group: {error.args[0]}") from error


def told(grouping: Grouping, samples: pa.Table) -> str:
    """Say how many samples there are, and in how many of them a channel is missing."""
    lacking = {channel: samples[f"path_{channel}"].null_count for channel in grouping.channels}
    missing = (f", {channel} is missing in {count}" for channel, count in lacking.items() if count)
    made = f"{samples.num_rows} samples of {len(lacking)} channels made of them"
    return "".join((made, *missing))


def grouped(grouping: Grouping | None, table: pa.Table) -> pa.Table:
    """Give the table of the samples; the table itself without a grouping."""
    if grouping is None:
        return table
    try:
        return grouping.apply(table)
    except TypeError as error:
        raise Refusal(f"--group: {error}") from error
    except ValueError as error:
        raise Refusal(f"--group: {_as_flags(str(error))}", 1) from error


def _as_flags(message: str) -> str:
    """Spell settings as flags: ``missing='keep'`` is ``--missing keep`` here."""
    flags = re.sub(r"(?<!')\b(tolerance|missing)\b", r"--\1", message)
    return re.sub(r"='(\w+)'", r" \1", flags)
