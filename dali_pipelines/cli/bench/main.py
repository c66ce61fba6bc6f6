"""Run the benchmarks, which are in benchmarks/ of the repository and are not installed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from dali_pipelines.cli.errors import CommandError, command

ROOT = Path(__file__).parents[3]


@command("bench")
def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmarks of the clone that this package is installed from; return the status."""
    if not (ROOT / "benchmarks" / "suites").is_dir():
        raise CommandError(
            "the benchmarks are not installed: clone the repository, run 'make .venv/ready' there, "
            "and then '.venv/bin/dali-pipelines bench'"
        )
    sys.path.insert(0, str(ROOT))
    status: int = import_module("benchmarks.main").main(argv)
    return status
