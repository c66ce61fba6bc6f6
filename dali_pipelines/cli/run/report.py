"""Report of a run, as JSON and as text: figures, limit and advice."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING, Any

from dali_pipelines.cli.environment import hardware, versions
from dali_pipelines.cli.errors import count, in_flags
from dali_pipelines.cli.options import given_flags
from dali_pipelines.cli.paths import write_json
from dali_pipelines.cli.run.advice import advise
from readers.messages import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dali_pipelines import Calibration
    from dali_pipelines.cli.run.output import Run
    from dali_pipelines.cli.run.stages import Stages

_LISTED = 10
"""Maximum number of unreadable files that the summary names."""
_STEADY_STEPS = 10
"""In runs of at least so many steps the rates leave out the first batch."""


def finish(run: Run, status: int) -> int:
    """Print the summary, write the report, return the exit status: 1 if nothing was read."""
    report = report_of(run, run.end())
    if run.ranks.rank == 0:
        print(summary(report))
        run.draw()
    if run.config.report is not None:
        write_json(run.config.report, report, indent=2)
    # In a short run a rank may have had no samples. After a stop the other ranks may be gone.
    if not status and run.steps_done and not run.ranks.agree(run.loader.stats.samples > 0):
        return 1
    return status


def report_of(run: Run, measured: Stages | None) -> dict[str, Any]:
    """Return the report of a run, for JSON; `measured` is None if the run was too short."""
    loader, stats = run.loader, run.loader.stats
    total = run.last - run.began
    first_batch_s = run.at_first.at - run.began if run.steps_done else 0.0
    # Rates are from the first batch to the last, as the start is reported separately. In a short
    # run they would be too high, because most batches became ready during the wait for the first.
    steady = run.steps_done >= _STEADY_STEPS
    seconds = max(1e-9, run.last - run.at_first.at if steady else total)
    samples = stats.samples - (run.at_first.stats.samples if steady else 0)
    share = samples / max(1, stats.samples)
    advice = None if measured is None else advise(measured)
    return {
        "config": given_flags(run.config),
        "tables": tables(run.config.calibration),
        "versions": versions(),
        "hardware": hardware(),
        "device": "cpu" if loader.devices[0] is None else "gpu",
        "num_shards": loader.num_shards,
        "rank": run.ranks.rank,
        "world_size": run.ranks.world_size,
        "epochs": run.config.epochs,
        "batches": stats.batches,
        "samples": stats.samples,
        "seconds": seconds,
        "first_batch_s": first_batch_s,
        "images_per_s": samples / seconds,
        "input_mb_per_s": stats.input_bytes * share / seconds / 1e6,
        "output_mpix_per_s": stats.output_pixels * share / seconds / 1e6,
        "requests": stats.requests,
        "remote_bytes": stats.remote_bytes,
        "cached_bytes": stats.cached_bytes,
        "restarts": stats.restarts,
        "stages": {
            "start": stats.start_s,
            "read": stats.read_s,
            "read_cpu": stats.read_cpu_s,
            "wait_readers": stats.wait_readers_s,
            "wait_graph": stats.wait_graph_s,
            "wait": stats.wait_s,
            "consume": max(0.0, total - stats.start_s - stats.wait_s),
        },
        "wait_fraction": stats.wait_s / max(1e-9, total - stats.start_s),
        "measured": None if measured is None else dataclasses.asdict(measured),
        "limit": None if advice is None else advice.limit,
        "bottleneck": _no_advice(run) if advice is None else advice.sentence,
        "advised": None if advice is None else dict(advice.change),
        "rejected": [
            {"row": bad.row, "path": bad.path, "name": bad.name, "reason": bad.reason}
            for bad in stats.rejected.values()
        ],
    }


def _no_advice(run: Run) -> str:
    """Explain why the limit is not known."""
    if run.steps_done == 0 and run.loader.epoch < run.config.epochs:
        return "The run was stopped before its first step."
    if run.steps_done == 0:
        done = f"{run.loader.epoch} of --epochs={run.config.epochs}"
        return f"Nothing was left to deliver: {done} are done. Set more --epochs."
    if run.loader.stats.samples == 0:
        return "No file could be read."
    if run.steps_done > run.ready_at_first:
        return "The readers ended before their times could be read."
    return (
        "This run is too short to find the bottleneck: it needs more than "
        f"{count(run.ready_at_first, 'step')}. Set more --epochs."
    )


def summary(report: dict[str, Any]) -> str:
    """Return a report as text."""
    rejected = report["rejected"]
    ranks = report["world_size"]
    shards = count(report["num_shards"] // ranks, report["device"].upper() + " shard")
    lines = [
        (
            f"{f'Rank 0 of {ranks}: ' if ranks > 1 else ''}{count(report['samples'], 'image')} in "
            f"{count(report['batches'], 'step')} on {shards}: "
            f"{report['images_per_s']:.1f} images/s, {report['input_mb_per_s']:.0f} MB/s read, "
            f"{report['output_mpix_per_s']:.0f} Mpixel/s delivered."
        ),
        (
            f"The first batch came after {report['first_batch_s']:.1f} s "
            f"({report['stages']['start']:.1f} s of it to start the readers); the consumer waited "
            f"{100 * report['wait_fraction']:.0f} % of the time."
        ),
        report["bottleneck"],
    ]
    if report["requests"] or report["cached_bytes"]:
        lines.insert(
            1,
            f"Remote storage: {count(report['requests'], 'request')} for "
            f"{report['remote_bytes'] / 1e6:.1f} MB, and {report['cached_bytes'] / 1e6:.1f} MB "
            "from the cache.",
        )
    if restarts := report["restarts"]:
        times = "once" if restarts == 1 else f"{restarts} times"
        lines.append(f"The readers were restarted {times}, because one of them had died.")
    if rejected:
        lines += _rejected_lines(rejected, report["config"])
    return "\n".join(lines)


def _rejected_lines(rejected: Sequence[Mapping[str, Any]], config: Mapping[str, Any]) -> list[str]:
    """Return lines about unreadable files, each once, with the number of its rows."""
    files = Counter((bad["path"], bad["reason"]) for bad in rejected)
    names = {(bad["path"], bad["reason"]): bad.get("name") for bad in rejected}
    rows = f" ({count(len(rejected), 'row')})" * (len(rejected) > len(files))
    lines = [f"{count(len({path for path, _ in files}), 'file')}{rows} could not be read:"]
    for (path, reason), number in list(files.items())[:_LISTED]:
        several = f" ({number} rows)" * (number > 1)
        name = path if number > 1 else names[path, reason] or path
        lines.append(f"  {printable(name)}{several}: {in_flags(reason)}")
    if len(files) > _LISTED:
        all_of_them = config["rejected"] or config["report"] or "--rejected or --report"
        lines.append(f"  and {len(files) - _LISTED} more ({all_of_them} lists them all)")
    return lines


def tables(calibration: Calibration | None) -> dict[str, dict[str, Any]]:
    """Return the tables of the calibration: name, SHA-256, and version if there is one."""
    found = {}
    for name in ("pointing_table", "correction_table"):
        table = getattr(calibration, name, None)
        if table is not None:
            words = ("name", "sha256", "version")
            found[name] = {word: getattr(table, word) for word in words if hasattr(table, word)}
    return found
