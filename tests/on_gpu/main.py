"""Run all that needs an NVIDIA GPU, and write one report of it.

    make gpu
    make gpu STAGES="kernels pixels"
    PYTHONPATH=.:tests python -m on_gpu.main --out results    # from a clone, nothing installed

environment  doctor, for a run over all GPUs
kernels      one launch of each CUDA kernel
pixels       every pipeline against the CPU
devices      one and several pipelines: each row once, with the same pixels
resume       a state saved on CPU or GPU, continued on the other and on more of them
faults       bad files, a reader that is killed, an error in an operator of the GPU
times        of the CUDA kernels
benchmarks   suites of bench.py, --quick unless --full is given; a part is e.g. benchmarks:jpeg

Each runs in a process of its own, and the others run whatever becomes of it. All but the last take
10 minutes at most. --out gets NAME.json and NAME.md, written anew after each stage, which can be
committed to benchmarks/results, and NAME.log with all output.

The exit status is 0 if all passed, 1 if not, and 2 if there is no GPU, where nothing runs.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dali_pipelines.cli.errors import CommandError, command
from dali_pipelines.cli.options import option, parse
from on_gpu.process import Outcome, run
from on_gpu.report import report_name, write_report
from on_gpu.stages import NAMES, SUITES, Stage, stages

_MACHINE_LIMIT_S = 120


@dataclass(frozen=True, kw_only=True)
class GpuConfig:
    """Flags of the command."""

    stages: str = option(" ".join(NAMES), "which to run, with blanks between them")
    out: str = option("build/gpu", "where the report is written", metavar="FOLDER")
    full: bool = option(False, "all files and rounds of the benchmarks, up to an hour for each")

    def __post_init__(self) -> None:
        known = {*NAMES, *(f"benchmarks:{suite}" for suite in SUITES)}
        unknown = [name for name in self.stages.split() if name not in known]
        if unknown or not self.stages.split():
            raise ValueError(f"--stages takes {', '.join(NAMES)}, got {self.stages!r}")


@command("gpu")
def main(argv: Sequence[str] | None = None) -> int:
    """Run the stages that are asked for; return the exit status."""
    config = parse(GpuConfig, argv, __doc__, "gpu")
    words = sys.argv[1:] if argv is None else argv
    with TemporaryDirectory() as folder:
        facts = {
            "command": f"python -m on_gpu.main {shlex.join(words)}".rstrip(),
            "config": dataclasses.asdict(config),
            **describe_machine(Path(folder)),
        }
        gpus = facts["hardware"]["gpus"]
        if not gpus:
            raise CommandError(
                f"PyTorch {facts['versions']['torch']} sees no GPU, so nothing was run: "
                "python -m dali_pipelines doctor --device=gpu says why"
            )
        tables = Path(folder) / "benchmarks"
        tables.mkdir()
        chosen = stages(config.stages.split(), len(gpus), tables, quick=not config.full)
        path = Path(config.out) / report_name(gpus, date.today())
        return run_all(chosen, path, facts, tables)


def describe_machine(folder: Path) -> dict[str, Any]:
    """Return what `on_gpu.machine` prints; CommandError if it does not end well."""
    log = folder / "machine.log"
    asked = Stage("machine", (sys.executable, "-m", "on_gpu.machine"), _MACHINE_LIMIT_S)
    outcome = run(asked, log)
    if not outcome.good:
        lines = outcome.tail.splitlines()
        raise CommandError(
            f"this machine could not be described, so nothing was run: {outcome.status}"
            f"{': ' + lines[-1] if lines else ''}"
        )
    lines = log.read_text(errors="replace").splitlines()
    facts: dict[str, Any] = json.loads(next(line for line in lines if line.startswith("{")))
    return facts


def run_all(chosen: Sequence[Stage], path: Path, facts: dict[str, Any], benchmarks: Path) -> int:
    """Run stages one after the other, and write the report anew after each.

    Parameters
    ----------
    chosen : sequence of Stage
        What to run.
    path : Path
        Of the report, without suffix.
    facts : dict
        What the report says of the machine.
    benchmarks : Path
        Folder where the benchmarks write.

    Returns
    -------
    int
        0 if all are good, else 1.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    log = path.with_name(f"{path.name}.log")
    log.unlink(missing_ok=True)
    names = [stage.name for stage in chosen]
    outcomes: list[Outcome] = []
    write_report(path, facts, outcomes, names, benchmarks)
    for stage in chosen:
        print(f"{stage.name}: at most {stage.limit_s:g} s ...", flush=True)
        outcome = run(stage, log)
        outcomes.append(outcome)
        print(f"{stage.name}: {outcome.status}, {outcome.seconds:.0f} s", flush=True)
        if not outcome.good:
            print(outcome.tail, flush=True)
        write_report(path, facts, outcomes, names, benchmarks)
    print(f"report: {path}.md, {path}.json; all output: {log}")
    return 0 if all(outcome.good for outcome in outcomes) else 1


if __name__ == "__main__":
    raise SystemExit(main())
