"""Output of a run: progress bar, NVTX ranges, audit, summary and report."""

from __future__ import annotations

import csv
import dataclasses
import importlib.metadata
import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nvtx
import psutil
from tqdm import tqdm

from dali_pipelines.cli.errors import one_line
from dali_pipelines.cli.paths import OutputFile, write_file, write_table
from dali_pipelines.cli.run.advice import advise
from dali_pipelines.cli.run.delivered import first_images, save_delivered
from dali_pipelines.cli.run.stages import Moment, Stages
from dali_pipelines.runtime.ranks import Ranks
from readers.messages import printable

if TYPE_CHECKING:
    import torch

    from dali_pipelines import Calibration, Loader
    from dali_pipelines.cli.run.auto_readers import Choice
    from dali_pipelines.cli.run_config import RunConfig

DOMAIN = "dali-pipelines"
"""NVTX domain of the ranges run, epoch and batch."""

AUDIT_HEADER = ("epoch", "step", "shard", "slot", "row", "path", "valid")

REJECTED_HEADER = ("path", "hdu", "row", "reason", "epoch", "step")

_STEADY_STEPS = 10
"""Steps from which on the first batch does not count in the rates."""


class Run:
    """One run over a Loader, from the first batch to the summary, which rank 0 prints."""

    def __init__(
        self, loader: Loader, config: RunConfig, ranks: Ranks, choice: Choice | None = None
    ) -> None:
        self.loader = loader
        self.config = config
        self.ranks = ranks
        self.choice = choice
        self.steps_done = 0
        self.first_batch_s = 0.0
        self._state = loader.state_dict()
        self._ready_at_first = 0
        self._images: list[tuple[int, torch.Tensor]] = []
        self._began = self._last = time.perf_counter()
        self._held = ExitStack()

    def __enter__(self) -> Run:
        """Open the audit file and the progress bar, and begin the range ``run``."""
        total = len(self.loader) * self.config.batch_size * self.loader.num_shards
        rows = min(len(self.loader.index), total) * self.config.epochs
        self._held.enter_context(nvtx.annotate("run", domain=DOMAIN))
        self._audit = None
        self._held.callback(self._write_rejected)
        self._held.callback(self._write_state)
        if self.config.audit is not None:
            file = OutputFile(self.config.audit)
            self._held.callback(file.close)
            self._audit = csv.writer(file)
            self._audit.writerow(AUDIT_HEADER)
        self._bar = self._held.enter_context(
            tqdm(
                total=rows // self.ranks.world_size,
                unit=" images",
                disable=self.ranks.rank != 0 or not sys.stderr.isatty(),
                dynamic_ncols=True,
            )
        )
        return self

    def __exit__(self, *_: object) -> None:
        """Close what was opened; write the state and what was rejected, however the run ended."""
        self._held.close()  # all of it, also if one file cannot be written

    def _write_state(self) -> None:
        if self.config.state is not None:
            write_file(self.config.state, json.dumps(self._state) + "\n")

    def _write_rejected(self) -> None:
        if self.config.rejected is not None:
            rejected = self.loader.stats.rejected.values()
            rows = ([getattr(found, name) for name in REJECTED_HEADER] for found in rejected)
            write_table(self.config.rejected, REJECTED_HEADER, rows)

    def steps(self, epoch: int) -> Iterator[list[dict[str, Any]]]:
        """Yield the batches of an epoch inside NVTX ranges."""
        with nvtx.annotate(f"epoch {epoch}", domain=DOMAIN):
            batches = iter(self.loader)
            while True:
                with nvtx.annotate("batch", domain=DOMAIN):
                    batch = next(batches, None)
                if batch is None:
                    return
                yield batch
                del batch  # DALI can use its memory for the next one

    def deliver(self, epoch: int, step: int, batches: list[dict[str, Any]]) -> None:
        """Note one delivered step."""
        self._last = time.perf_counter()
        if self.steps_done == 0:
            self.first_batch_s = self._last - self._began
            self._at_first = Moment.of(self.loader)
            # By the readers, and by the graph.
            self._ready_at_first = 2 * max(each.ahead for each in self.loader.pipelines)
            if self.config.data is None and self.ranks.rank == 0:
                self._images = first_images(batches[0])
        self.steps_done += 1
        for shard, batch in enumerate(batches, self.loader.first_shard):
            rows, valid = batch["row"].tolist(), batch["valid"].tolist()
            self._bar.update(sum(valid))
            if self._audit is not None:
                self._audit.writerows(
                    (epoch, step, shard, slot, row, self.loader.index.path(row), int(is_valid))
                    for slot, (row, is_valid) in enumerate(zip(rows, valid, strict=True))
                )
        seconds = self._last - self._began
        rate = self.loader.stats.input_bytes / seconds / 1e6
        self._bar.set_postfix_str(f"{rate:.0f} MB/s read")
        self._state = self.loader.state_dict()

    def finish(self, status: int = 0) -> int:
        """Print the summary, write the report, and give the exit code: 1 if nothing was read."""
        # While the readers live: their CPU times end with them.
        enough = self.steps_done > self._ready_at_first and self.loader.stats.samples > 0
        lives = bool(self.loader.pipelines)
        measured = self._at_first.stages(self.loader) if enough and lives else None
        self.loader.close()
        self._bar.close()
        report = self._report(measured)
        if self.ranks.rank == 0:
            print(summary(report))
            self._draw()
        if self.config.report is not None:
            write_file(self.config.report, json.dumps(report, indent=2) + "\n")
        # A rank alone may have had no part in a short run. After a stop the others may be gone.
        if not status and self.steps_done and not self.ranks.agree(self.loader.stats.samples > 0):
            return 1
        return status

    def _draw(self) -> None:
        """Draw what the sample set has given; a run does not fail for want of that."""
        if not self._images:
            return
        try:
            path = save_delivered(self._images, self.loader.index, self.config)
            print(f"The first images are drawn in {path}")
        except (ImportError, OSError) as error:
            print(f"No contact sheet is drawn: {one_line(error)}", file=sys.stderr)

    def _report(self, measured: Stages | None) -> dict[str, Any]:
        stats = self.loader.stats
        total = self._last - self._began
        # Rates are from the first batch to the last, as the start is told apart. In a short run
        # that would flatter: the batches made ready while the first was awaited are most of it.
        steady = self.steps_done >= _STEADY_STEPS
        seconds = self._last - self._at_first.at if steady else total
        samples = stats.samples - (self._at_first.stats.samples if steady else 0)
        share = samples / max(1, stats.samples)
        stages = {
            "start": stats.start_s,
            "read": stats.read_s,
            "read_cpu": stats.read_cpu_s,
            "wait_readers": stats.wait_readers_s,
            "wait_graph": stats.wait_graph_s,
            "wait": stats.wait_s,
            "consume": max(0.0, total - stats.start_s - stats.wait_s),
        }
        wait_fraction = stats.wait_s / max(1e-9, total - stats.start_s)
        gpus = self.loader.devices[0] is not None
        advice = None if measured is None else advise(measured, self.ranks.world_size)
        return {
            "config": dataclasses.asdict(self.config),
            "tables": tables(self.config.calibration),
            "versions": versions(),
            "hardware": hardware(),
            "device": "gpu" if gpus else "cpu",
            "num_shards": self.loader.num_shards,
            "rank": self.ranks.rank,
            "world_size": self.ranks.world_size,
            "epochs": self.config.epochs,
            "batches": stats.batches,
            "samples": stats.samples,
            "seconds": seconds,
            "first_batch_s": self.first_batch_s,
            "images_per_s": samples / max(1e-9, seconds),
            "input_mb_per_s": stats.input_bytes * share / max(1e-9, seconds) / 1e6,
            "output_mpix_per_s": stats.output_pixels * share / max(1e-9, seconds) / 1e6,
            "stages": stages,
            "wait_fraction": wait_fraction,
            "chosen": None if self.choice is None else dataclasses.asdict(self.choice),
            "measured": None if measured is None else dataclasses.asdict(measured),
            "limit": None if advice is None else advice.limit,
            "bottleneck": self._no_advice if advice is None else advice.sentence,
            "advised": None if advice is None else dict(advice.change),
            "rejected": [
                {"row": bad.row, "path": bad.path, "reason": bad.reason}
                for bad in stats.rejected.values()
            ],
        }

    @property
    def _no_advice(self) -> str:
        if self.steps_done == 0 and self.loader.epoch < self.config.epochs:
            return "The run was stopped before its first step."
        if self.steps_done == 0:
            done = f"{self.loader.epoch} of --epochs={self.config.epochs}"
            return f"There was nothing left to deliver: {done} are done, so give more."
        if self.loader.stats.samples == 0:
            return "No file could be read."
        if self.steps_done > self._ready_at_first:
            return "The readers were ended before their times could be read."
        return (
            "This run is too short to tell what limits it: that takes more than "
            f"{_count(self._ready_at_first, 'step')}, so give it more --epochs."
        )


def summary(report: dict[str, Any]) -> str:
    """Return a report as text."""
    rejected = report["rejected"]
    ranks = report["world_size"]
    shards = _count(report["num_shards"] // ranks, report["device"].upper() + " shard")
    lines = [
        (
            f"{f'Rank 0 of {ranks}: ' if ranks > 1 else ''}{_count(report['samples'], 'image')} in "
            f"{_count(report['batches'], 'step')} on {shards}: "
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
    if rejected:
        lines.append(f"{_count(len(rejected), 'file')} could not be read:")
        lines += [f"  {printable(bad['path'])}: {bad['reason']}" for bad in rejected[:10]]
        if len(rejected) > 10:
            lines.append(f"  and {len(rejected) - 10} more (--report lists them all)")
    return "\n".join(lines)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def tables(calibration: Calibration | None) -> dict[str, dict[str, Any]]:
    """Return the tables of the calibration: name, SHA-256, and version where there is one.

    Parameters
    ----------
    calibration : Calibration, optional
        What is done to frames; None for nothing.
    """
    found = {}
    for name in ("pointing_table", "correction_table"):
        table = getattr(calibration, name, None)
        if table is not None:
            words = ("name", "sha256", "version")
            found[name] = {word: getattr(table, word) for word in words if hasattr(table, word)}
    return found


def versions() -> dict[str, str]:
    """Return the versions of what the speed and the pixels depend on."""
    names = ("dali-pipelines", "nvidia-dali-cuda120", "torch", "numpy", "astropy", "numba")
    found = {"python": platform.python_version()}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def hardware() -> dict[str, Any]:
    """Describe this machine."""
    import torch

    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": psutil.virtual_memory().total,
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
    }
