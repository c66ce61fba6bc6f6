"""The report: JSON with all that is known, and Markdown, as the benchmarks write their results."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.report.tables import Sheet, as_list, as_markdown
from dali_pipelines.cli.paths import write_file
from on_gpu.process import ROOT, Outcome


def report_name(gpus: Sequence[str], today: date) -> str:
    """Return THEME_HARDWARE_DATE, e.g. gpu_2xh200_2026-11-22, by the name of the first GPU."""
    name = gpus[0].lower().removeprefix("nvidia ")
    return f"gpu_{len(gpus)}x{re.sub(r'[^a-z0-9]+', '-', name).strip('-')}_{today.isoformat()}"


def write_report(
    path: Path,
    facts: dict[str, Any],
    outcomes: Sequence[Outcome],
    planned: Sequence[str],
    benchmarks: Path,
) -> None:
    """Write PATH.json and PATH.md.

    Parameters
    ----------
    path : Path
        Without suffix.
    facts : dict
        What was run where: command, config, hardware, versions.
    outcomes : sequence of Outcome
        Those of the stages that have ended.
    planned : sequence of str
        Names of all stages.
    benchmarks : Path
        Folder where suites have written their tables.
    """
    tables = {
        found.stem: json.loads(found.read_text())["tables"]
        for found in sorted(benchmarks.glob("*.json"))
    }
    stages = [asdict(one) | {"command": shown(one.command)} for one in outcomes]
    missing = [name for name in planned if name not in {one.stage for one in outcomes}]
    written = {**facts, "stages": stages, "not_run": missing, "benchmarks": tables}
    write_file(f"{path}.json", json.dumps(written, indent=2) + "\n")
    parts = [f"# {path.name}\n", as_list(facts), as_markdown(_sheet(outcomes, missing))]
    parts += [_details(one) for one in outcomes if not _is_told_by_its_line(one)]
    parts += [_benchmark(benchmarks / f"{name}.md") for name in tables]
    write_file(f"{path}.md", "\n".join(parts))


def shown(command: Sequence[str]) -> str:
    """Return a command as it is typed in the root of the repository."""
    words = ["python" if word == sys.executable else word for word in command]
    return shlex.join(word.removeprefix(f"{ROOT}/") for word in words)


def _sheet(outcomes: Sequence[Outcome], missing: Sequence[str]) -> Sheet:
    lines = [
        (
            *(one.stage, one.status, f"{one.seconds:.1f}"),
            ", ".join(f"{number} {kind}" for kind, number in one.counts.items()),
        )
        for one in outcomes
    ]
    total = sum(one.seconds for one in outcomes)
    return Sheet(
        title="Stages",
        header=("stage", "result", "seconds", "tests"),
        lines=(*lines, *((name, "not run", "", "") for name in missing)),
        data="each stage in a process of its own, in this order",
        note=f"{sum(one.good for one in outcomes)} of {len(lines) + len(missing)} stages are good, "
        f"in {total:.0f} s.",
    )


def _details(outcome: Outcome) -> str:
    """Show what was skipped, and how the output of a stage ends, unless all its tests passed."""
    lines = [f"## {outcome.stage}: {outcome.status}", "", f"`{shown(outcome.command)}`", ""]
    # Four blanks: whatever the output holds, it does not end the block.
    tail = () if outcome.good and outcome.counts else outcome.tail.splitlines()
    return "\n".join([*lines, *(f"    {line}" for line in (*outcome.skipped, *tail)), ""])


def _is_told_by_its_line(outcome: Outcome) -> bool:
    """Return whether all tests of a stage passed, or it is a benchmark, whose tables are shown."""
    tells = outcome.counts or outcome.stage.startswith("benchmarks")
    return bool(outcome.good and tells and not outcome.skipped)


def _benchmark(page: Path) -> str:
    """Return the tables of a suite, one level deeper than in its own file."""
    tables = page.read_text().partition("\n## ")[2]
    return f"## Benchmark {page.stem}\n\n" + f"## {tables}".replace("## ", "### ")
