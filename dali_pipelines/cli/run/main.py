"""Read an archive through DALI pipelines, and report the speed and the bottleneck.

    dali-pipelines run --num_read_processes=16 --batch_size=16 --num_gpus=4
    torchrun --nproc_per_node=4 --no-python dali-pipelines run --num_read_processes=4

Without --data it reads a sample set, made on first use in your cache folder, with the settings of a
training: random windows, flips, normalisation, some epochs. Your flags override these. At the end
it draws a contact sheet of the first images, next to the set.

Under torchrun, srun or mpirun there is a process, a rank, for each GPU; srun and mpirun need
MASTER_ADDR and MASTER_PORT. --num_read_processes and --batch_size are those of each rank. The ranks
take each step together, and stop at the same step. Each rank writes its own files, such as
audit.rank1.csv for --audit=audit.csv, but there is only one --state.
"""

# Reader processes import this file again: heavy modules are imported in the functions.
from __future__ import annotations

import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dali_pipelines.cli.errors import EXTRA, CommandError, command, count, one_line
from dali_pipelines.cli.options import config_files, parse
from dali_pipelines.cli.paths import check_outputs, check_unread, marked
from dali_pipelines.cli.run_config import (
    RunConfig,
    choose_devices,
    new_loader,
    open_index,
)
from dali_pipelines.cli.samples.job import SAMPLE_JOBS, sample_job
from dali_pipelines.runtime.ranks import Ranks

if TYPE_CHECKING:
    from dali_pipelines import Index, Loader
    from dali_pipelines.cli.run.output import Run


@command("run")
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, 1 if it failed, 2 for wrong usage, 130 if interrupted."""
    config = parse(RunConfig, argv, __doc__, "run", sample_job)
    stop = Stop()
    signal.signal(signal.SIGTERM, stop)
    try:
        ranks = Ranks.of()
        config = share_of(config, ranks)
        names = ("rejected", "report", "audit", "state")
        outputs = {name: getattr(config, name) for name in names}
        check_outputs(config, config_files(argv), **outputs)
        if config.data is None and ranks.rank == 0:
            job = SAMPLE_JOBS[config.pipeline]
            print(f"--data is not set: reading the sample set; defaults: {job}", file=sys.stderr)
        _ = config.calibration  # to check it before a sample set is made
        index, devices = open_index(config), choose_devices(config, ranks)
        check_unread(index.table, *outputs.values())
        if ranks.world_size > 1:
            ranks.join(None, index)
        cores = ranks.cores() / config.num_gpus
        if config.num_threads is None:
            config = replace(config, num_threads=max(1, int(cores)))
        loader = make_loader(config, index, devices, ranks)
        return iterate(loader, config, ranks, stop)
    except ImportError as error:
        if error.name in EXTRA:
            raise
        raise CommandError(error) from error
    except (ValueError, TypeError, KeyError, FileNotFoundError, MemoryError) as error:
        raise CommandError(error) from error
    except BrokenPipeError:
        raise
    except (OSError, RuntimeError) as error:
        raise CommandError(f"{one_line(error)}{_remedy(error, config)}", 1) from error


def _remedy(error: Exception, config: RunConfig) -> str:
    from readers.errors import ReadError
    from readers.places.failures import is_of_store

    if not isinstance(error, ReadError) or is_of_store(error):
        return ""
    return "; --bad_sample=skip leaves such files out" if config.bad_sample == "raise" else ""


class Stop:
    """A handler of SIGTERM that ends the run at once, or after all ranks have delivered a step."""

    def __init__(self) -> None:
        self.later = False
        self.status = 0
        """Exit status to end with; 0 to continue."""

    def __call__(self, number: int, _: object) -> None:
        """Remember the signal; a second one ends the run at once."""
        if not self.later or self.status:
            sys.exit(128 + number)
        self.status = 128 + number


def share_of(config: RunConfig, ranks: Ranks) -> RunConfig:
    """Return the settings of one rank: one shard, and its own files.

    Raises
    ------
    ValueError
        If ``num_gpus`` is neither 1 nor the number of ranks.
    """
    if ranks.world_size == 1:
        return config
    if config.num_gpus not in (1, ranks.world_size):
        raise ValueError(
            f"--num_gpus={config.num_gpus} but {ranks.world_size} ranks were launched, one for "
            "each GPU: leave it out, or launch another number, torchrun's --nproc_per_node"
        )
    own = {name: getattr(config, name) for name in ("rejected", "report", "audit")}
    own = {name: path and marked(path, f"rank{ranks.rank}") for name, path in own.items()}
    state = config.state if ranks.rank == 0 else None
    return replace(config, num_gpus=1, state=state, **own)


def make_loader(
    config: RunConfig, index: Index, devices: Sequence[int | None], ranks: Ranks
) -> Loader:
    """Make the Loader, at the position of --resume, and check that it fits into memory."""
    from dali_pipelines.memory import estimate_memory

    loader = new_loader(config, index, devices)
    if config.resume is not None:
        resume(loader, config)
    estimate_memory(loader.make_pipelines(), ranks.local_world_size).check()
    return loader


def resume(loader: Loader, config: RunConfig) -> None:
    """Continue at the position of a state, in the order of that run.

    Raises
    ------
    ValueError
        If --state did not write the file, or wrote it for other data.
    """
    where = f"--resume={config.resume}"
    try:
        with open(str(config.resume), encoding="utf-8") as file:
            state = json.load(file)
    except ValueError as error:
        raise ValueError(f"{where}: expected a file that --state wrote: {error}") from error
    try:
        loader.load_state_dict(state)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from error


def iterate(loader: Loader, config: RunConfig, ranks: Ranks, stop: Stop) -> int:
    """Go through the epochs, and report on them."""
    from dali_pipelines.cli.run.output import Run
    from dali_pipelines.cli.run.report import finish

    with Run(loader, config, ranks) as run, loader:
        stop.later = True
        try:
            status = go_on(run, loader, config, ranks, stop)
        except KeyboardInterrupt:
            done = f"interrupted after {count(run.steps_done, 'step')}"
            then = "with --state=FILE.json it could be continued"
            if config.state is not None:
                then = f"the same command with --resume={config.state} continues"
            raise KeyboardInterrupt(f"{done}; {then}") from None
        except RuntimeError:
            # Slurm and torchrun send SIGTERM to the readers, too; or the signal has ended another
            # rank.
            if not stop.status:
                raise
            status = stop.status
        return finish(run, status)


def go_on(run: Run, loader: Loader, config: RunConfig, ranks: Ranks, stop: Stop) -> int:
    """Take the remaining steps; return the exit status."""
    for epoch in range(loader.epoch, config.epochs):
        steps_before = run.steps_done
        for step, batches in enumerate(run.steps(epoch), loader.step):
            # A step counts when all ranks have it: if one rank fails before that, it counts for
            # none.
            status = ranks.agree(stop.status)
            run.deliver(epoch, step, batches)
            del batches  # DALI can reuse its memory for the next batch
            enough = run.steps_done == config.max_batches
            if status or enough:
                return status
        if run.steps_done == steps_before:
            raise RuntimeError(f"the Loader delivered no step of epoch {epoch}")
    return 0
