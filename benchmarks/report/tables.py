"""Tables of the timings, for the terminal and for the files in the folder of `--out`."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from typing import Any

from benchmarks.measure.parts import Parts
from benchmarks.measure.race import Result, Round, Table
from dali_pipelines.cli.paths import write_file, write_table

HEADER = (
    *("method", "images/s", "range", "speedup", "CPU ms per image"),
    *("first batch, s", "difference"),
)


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """Lines of text under a header: the text form of a Table, or results that are not a race."""

    title: str
    header: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    data: str
    """Files that were read, or made-up data."""
    note: str
    """Notes below the table."""


def as_sheet(table: Table | Sheet) -> Sheet:
    """Put the ways of a Table under `HEADER`."""
    if isinstance(table, Sheet):
        return table
    return Sheet(
        title=table.title,
        header=HEADER,
        lines=tuple(cells(table, result) for result in table.results),
        data=table.data,
        note=f"Speedups are against: {table.baseline}. {table.note}".rstrip(),
    )


def cells(table: Table, result: Result) -> tuple[str, ...]:
    """Return the texts of one line under `HEADER`."""
    if result.note:
        return (result.name, result.note, *[""] * (len(HEADER) - 2))
    rates = result.rates()
    cpu = statistics.median(one.cpu_s_here + one.cpu_s_elsewhere for one in result.rounds)
    return (
        result.name,
        number(statistics.median(rates)),
        f"{number(min(rates))} to {number(max(rates))}",
        f"{table.speedup(result):.2f}".replace("nan", "unknown"),
        number(1e3 * cpu),
        f"{result.first_batch_s:.1f}",
        f"{result.difference:.1g}",
    )


def parts_sheet(table: Table | Sheet) -> Sheet | None:
    """Show where the time of each method goes, if that was counted."""
    parts = {} if isinstance(table, Sheet) else {one.name: one.parts for one in table.results}
    lines = [
        (name, *(number(1e3 * value) for value in (*astuple(one), sum(astuple(one)))))
        for name, one in parts.items()
        if one is not None
    ]
    if not lines:
        return None
    return Sheet(
        title=f"Where the time goes: {table.title}",
        header=("method", *(field.name for field in fields(Parts)), "all"),
        lines=tuple(lines),
        data=f"core-milliseconds per image, in an extra round; {table.data}",
        note="All: the number of cores times the time per image. Graph: DALI's threads, which "
        "decode, flip and normalise in one step; without DALI only flips and normalisation. For "
        "fitsio, torchfits and torchvision, decode includes reading. Transport: all other "
        "computation (Python, pickling, copies, collating). Wait: cores that are idle, whether a "
        "GPU is busy or not, or used by other programs on the machine.",
    )


def with_parts(tables: Iterable[Table | Sheet]) -> Iterator[Table | Sheet]:
    """Yield the tables, each followed by a table of where its time goes."""
    for table in tables:
        yield table
        parts = parts_sheet(table)
        if parts is not None:
            yield parts


def number(value: float) -> str:
    """Return three digits, or all those before the decimal point."""
    return f"{value:.0f}" if value >= 100 else f"{value:#.3g}".rstrip(".")


def as_text(table: Table | Sheet) -> str:
    """Lay a table out for a terminal."""
    sheet = as_sheet(table)
    lines = [sheet.header, *sheet.lines]
    # A reason for missing figures may extend to the right.
    figures = [line for line in lines if any(line[2:])] or lines
    widths = [max(len(line[place]) for line in figures) for place in range(len(sheet.header))]
    widths[0] = max(len(line[0]) for line in lines)
    rows = (
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip()
        for line in lines
    )
    return "\n".join([f"{sheet.title} ({sheet.data})", *rows, sheet.note])


def as_markdown(table: Table | Sheet) -> str:
    """Lay a table out for a README."""
    sheet = as_sheet(table)
    lines = [
        f"## {sheet.title}",
        "",
        f"{sheet.data[0].upper()}{sheet.data[1:]}.",
        "",
        f"| {' | '.join(sheet.header)} |",
        f"|{'---|' * len(sheet.header)}",
        *(f"| {' | '.join(line)} |" for line in sheet.lines),
        "",
        sheet.note,
        "",
    ]
    return "\n".join(lines)


def write_tables(
    folder: Path, suite: str, tables: Sequence[Table | Sheet], facts: dict[str, Any]
) -> None:
    """Write SUITE.json with all that is known, SUITE.csv with each round, and SUITE.md."""
    written = {**facts, "tables": [_as_dict(table) for table in tables]}
    text = json.dumps(written, indent=2) + "\n"
    write_file(str(folder / f"{suite}.json"), text)
    header = ("table", "method", "round", *(field.name for field in fields(Round)))
    write_table(str(folder / f"{suite}.csv"), header, _rounds(tables))
    parts = [f"# {suite}\n", as_list(facts), *map(as_markdown, with_parts(tables))]
    write_file(str(folder / f"{suite}.md"), "\n".join(parts))


def _as_dict(table: Table | Sheet) -> dict[str, Any]:
    written = asdict(table)
    if isinstance(table, Sheet):
        return written
    for result, found in zip(table.results, written["results"], strict=True):
        speedup = math.nan if result.note else table.speedup(result)
        found["speedup"] = None if math.isnan(speedup) else speedup
    return written


def _rounds(tables: Iterable[Table | Sheet]) -> Iterable[tuple[Any, ...]]:
    for table in tables:
        if isinstance(table, Sheet):
            continue
        for result in table.results:
            for count, one in enumerate(result.rounds):
                yield (table.title, result.name, count, *astuple(one))


def as_list(facts: dict[str, Any]) -> str:
    """Lay facts out as a list in Markdown."""
    lines = []
    for name, value in facts.items():
        pairs = value.items() if isinstance(value, dict) else ()
        text = ", ".join(f"{key} {one}" for key, one in pairs) if pairs else str(value)
        lines.append(f"- {name}: {text}")
    return "\n".join([*lines, ""])
