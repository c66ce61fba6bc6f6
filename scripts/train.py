"""Train a small network on windows of an archive, alone or on several ranks: an example to copy.

    python scripts/train.py --checkpoint=train.pt
    torchrun --nproc_per_node=2 scripts/train.py --checkpoint=train.pt --resume

The network learns to take away noise that was added, which needs no labels, so that any archive of
FITS images will do. Without --data it reads a sample set, made on first use in your cache folder.
"""

# Reader processes import this file again: what is heavy is imported in the functions.
from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dali_pipelines.cli.errors import Refusal
from dali_pipelines.cli.options import option, parse
from dali_pipelines.cli.paths import check_output
from dali_pipelines.cli.ranks import Ranks, check_same_index

if TYPE_CHECKING:
    import torch
    from torch import nn
    from tqdm import tqdm

    from dali_pipelines import Index, Loader
    from dali_pipelines.loader import Batch

NOISE = 0.5
"""Standard deviation of what is added to scaled windows."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Flags of train.py; the names are fixed by tests/scripts/test_train.py."""

    data: str | None = option(None, "folder, glob, .csv or Index file (default: the sample set)")
    epochs: int = option(20, "times to go through the data, those before a resume included")
    batch_size: int = option(8, "windows per rank and step")
    num_read_processes: int = option(4, "reader processes in all, shared out over the ranks")
    crop: int = option(128, "height and width of a window in pixels")
    learning_rate: float = option(3e-3, "of AdamW; a resumed run keeps the one it began with")
    seed: int = option(0, "first weights, order, windows, flips and noise follow from it")
    checkpoint: str | None = option(None, "write model, optimizer and Loader here", metavar="FILE")
    checkpoint_every: int = option(100, "steps between checkpoints; each epoch ends with one")
    resume: bool = option(False, "go on from the checkpoint, if there is one yet")
    device: str = option(
        "auto",
        "auto: a GPU for each rank, or the CPU if there are too few; gpu never falls back",
        choices=("auto", "gpu", "cpu"),
    )
    max_steps: int | None = option(None, "stop after this many steps of this run", type=int)

    def __post_init__(self) -> None:
        counts = "epochs", "batch_size", "num_read_processes", "crop", "checkpoint_every"
        for name in (*counts, "max_steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"--{name} must be at least 1, got {value}")
        if not self.learning_rate > 0:
            raise ValueError(f"--learning_rate must be positive, got {self.learning_rate}")
        if self.resume and self.checkpoint is None:
            raise ValueError("--resume needs --checkpoint=FILE")
        # Hours of training should not be lost to a forgotten flag.
        if self.checkpoint is not None and not self.resume and Path(self.checkpoint).exists():
            raise ValueError(f"{self.checkpoint} exists: add --resume to go on, or remove it")


class StopRequest:
    """Set by SIGTERM, which schedulers send some time before they kill."""

    def __init__(self) -> None:
        self.made = False
        signal.signal(signal.SIGTERM, self._make)

    def _make(self, number: int, frame: object) -> None:
        del number, frame
        self.made = True


def main(argv: Sequence[str] | None = None) -> int:
    """Train; give the exit code: 0 done, 1 no file can be read, 2 wrong usage, 143 SIGTERM."""
    config = parse(TrainConfig, argv, __doc__)
    import torch.distributed as dist

    try:
        status = run(config)
    except Refusal as refusal:
        print(f"train.py: {refusal}", file=sys.stderr)
        status = refusal.status
    # All ranks have come to the same end. After another error some may not answer any more.
    if dist.is_initialized():
        dist.destroy_process_group()
    return status


def run(config: TrainConfig) -> int:
    """Train, or refuse what cannot go well before the first step; give the exit code."""
    try:
        if config.checkpoint is not None:
            check_output(config.checkpoint)
        ranks = Ranks.of()
        device = choose_device(config, ranks)
        loader = make_loader(config, device, ranks)
        join_ranks(device, ranks)
        check_same_index(loader.index.digest)
        loader.make_pipelines()  # only to see now whether the crop fits the images
    except (ValueError, OSError, ImportError) as error:
        raise Refusal(error) from error
    with loader:
        training = Training(config, loader, device)
        if config.resume:
            training.resume(config)
        return train(training, config)


def choose_device(config: TrainConfig, ranks: Ranks) -> torch.device:
    """Give this rank's GPU, or the CPU."""
    import torch

    from dali_pipelines.runtime.devices import visible_gpus

    gpus, count = 0 if config.device == "cpu" else visible_gpus(), ranks.local_world_size
    if gpus >= count:
        return torch.device("cuda", ranks.local_rank)
    if config.device == "gpu":
        raise ValueError(f"{count} ranks on this node need a GPU each, {gpus} are visible")
    return torch.device("cpu")


def make_loader(config: TrainConfig, device: torch.device, ranks: Ranks) -> Loader:
    """Make the Loader of this rank; it finds its shard by itself when it starts."""
    from dali_pipelines import Loader, fits_pipeline
    from dali_pipelines.runtime.devices import share_out

    return Loader(
        fits_pipeline,
        open_index(config),
        batch_size=config.batch_size,
        num_read_processes=share_out(config.num_read_processes, ranks.world_size)[ranks.rank],
        devices=[device.index],
        seed=config.seed,
        # Every row counts once in an epoch, and all ranks still take equally many steps. In the
        # last one a rank may have few windows, or none: Training.step weighs them. With `drop`
        # batches would always be full, but an archive smaller than a step would give none.
        tail="partial",
        bad_sample="skip",
        crop=config.crop,
        window="random",
        flip="hv",
        num_epochs=config.epochs,
    )


def open_index(config: TrainConfig) -> Index:
    """Scan the data that was asked for, or the sample set."""
    from readers.index.table import SUFFIXES, Index

    data = config.data
    if data is None:
        from dali_pipelines.cli.samples.sets import fits_samples

        data = str(fits_samples())
    return Index.scan(data, suffixes=SUFFIXES["fits"])


def join_ranks(device: torch.device, ranks: Ranks) -> None:
    """Meet the other ranks."""
    import torch

    if device.type == "cuda":
        torch.cuda.set_device(device)
    ranks.init_process_group("nccl" if device.type == "cuda" else "gloo")


def make_model(width: int = 16, depth: int = 3) -> nn.Module:
    """Give the network: from noisy windows to the noise in them.

    It has no batch norm: statistics of a batch would depend on the number of ranks.
    """
    from torch import nn

    layers: list[nn.Module] = [nn.Conv2d(1, width, 3, padding=1), nn.ReLU()]
    for _ in range(depth):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(width, 1, 3, padding=1))


def scale(image: torch.Tensor) -> torch.Tensor:
    """Bring windows of any unit to the same range: asinh of multiples of the mean brightness.

    Parameters
    ----------
    image : Tensor, shape (batch, 1, height, width), float32
        Physical values. What is not finite (BLANK) becomes 0.
    """
    image = image.nan_to_num(0, 0, 0)
    mean = image.abs().mean((1, 2, 3), keepdim=True)
    return (image / mean.clamp(min=1e-30)).asinh()


def draw_noise(like: torch.Tensor, seed: int, epoch: int, rows: Sequence[int]) -> torch.Tensor:
    """Draw the noise of each window from (seed, epoch, row) alone.

    So do the Loader's windows and flips: a resumed run sees what an uninterrupted one would, on
    any number of ranks, and a checkpoint holds no state of random generators.
    """
    import torch

    generator = torch.Generator()
    noise = torch.empty(like.shape)
    for window, row in zip(noise, rows, strict=True):
        window.normal_(0, NOISE, generator=generator.manual_seed(hash((seed, epoch, row))))
    return noise.to(like.device)


class Training:
    """What a checkpoint holds (model, optimizer, Loader), and the step that changes it.

    Parameters
    ----------
    config : TrainConfig
        The flags.
    loader : Loader
        Of this rank.
    device : torch.device
        Of this rank; the Loader delivers there.
    """

    def __init__(self, config: TrainConfig, loader: Loader, device: torch.device) -> None:
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel

        self.loader = loader
        self.rank, self.num_ranks = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(config.seed)
        model = make_model().to(device)
        self.model = DistributedDataParallel(model, [device] if device.type == "cuda" else None)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=config.learning_rate)
        self.steps = 0
        self._crop = config.crop
        # Over all ranks and the epoch so far: sum of losses, number of windows.
        self.sums = torch.zeros(2, dtype=torch.float64, device=device)
        # The Loader's own state counts a batch when it is delivered, before it is learnt from.
        self._cursor = loader.state_dict()

    def step(self, batch: Batch, epoch: int, stop: bool) -> tuple[int, bool]:
        """Learn from one batch of each rank.

        Parameters
        ----------
        batch : dict
            Of the Loader; it may be empty.
        epoch : int
            Epoch of the batch.
        stop : bool
            Whether this rank was asked to stop.

        Returns
        -------
        int, bool
            Number of windows over all ranks, and whether any rank was asked to stop: they must
            all stop after the same step, or the others would wait for the one that is gone.
        """
        import torch
        import torch.distributed as dist

        image, rows = batch["image"], batch["row"].tolist()
        count = len(rows)
        if count == 0:
            # DDP needs a backward pass on every rank, and not every layer takes an empty batch: a
            # blank window, which weighs nothing.
            image, rows = image.new_zeros((1, 1, self._crop, self._crop)), [0]
        window = scale(image)
        noise = draw_noise(window, self.loader.state_dict()["seed"], epoch, rows)
        error = (self.model(window + noise) - noise).abs().mean((1, 2, 3))
        loss = error[:count].sum()
        totals = torch.stack([loss.detach(), loss.new_tensor(count)]).double()
        totals = torch.cat([totals, totals.new_full((1,), stop)])
        dist.all_reduce(totals)
        windows = int(totals[1])
        # DDP takes the mean over ranks. Weighed like this it is the mean over all windows, however
        # they are spread over the ranks.
        (loss * self.num_ranks / max(windows, 1)).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.sums += totals[:2]
        self.steps += 1
        self._cursor = self.loader.state_dict()
        return windows, bool(totals[2])

    def end_epoch(self) -> float:
        """Give the mean loss of the epoch, over all ranks, and begin the next one.

        Raises
        ------
        Refusal
            On all ranks, if none of them has met a file that can be read.
        """
        loss, windows = self.sums.tolist()
        self.sums.zero_()
        if windows == 0:
            rejected = list(self.loader.stats.rejected.values())  # of this rank: there may be none
            why = f": {rejected[0].path}: {rejected[0].reason}" if rejected else ""
            count = len(self.loader.index)
            raise Refusal(f"none of the {count} files of the Index could be read{why}", 1)
        return loss / windows

    def save(self, config: TrainConfig) -> None:
        """Write the checkpoint, if one is wanted, so that it is always whole."""
        import torch

        # All ranks have the same state, also that of the Loader.
        if config.checkpoint is None or self.rank != 0:
            return
        path = Path(config.checkpoint)
        part = path.with_name(f".{path.name}.part")
        state = {
            "model": self.model.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "loader": self._cursor,
            "steps": self.steps,
            "sums": self.sums,
        }
        with part.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)

    def resume(self, config: TrainConfig) -> None:
        """Take up the checkpoint, of any number of ranks, if there is one.

        Raises
        ------
        Refusal
            If it is none, or of another network or Index. All ranks read it, so all refuse it.
        """
        if not Path(str(config.checkpoint)).exists():
            # So that a job that is requeued can have the same command line from the start.
            if self.rank == 0:
                print(f"{config.checkpoint} is not there yet: starting anew", file=sys.stderr)
            return
        state = load_checkpoint(str(config.checkpoint), self.sums.device)
        try:
            self.model.module.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.loader.load_state_dict(state["loader"])
        except (RuntimeError, ValueError) as error:
            raise Refusal(f"{config.checkpoint}: {error}") from error
        self.steps, self.sums, self._cursor = state["steps"], state["sums"], state["loader"]


def load_checkpoint(path: str, device: torch.device) -> dict[str, Any]:
    """Read what `Training.save` wrote.

    Raises
    ------
    Refusal
        If it is something else.
    """
    import torch

    try:
        state = torch.load(path, map_location=device)
        return {name: state[name] for name in ("model", "optimizer", "loader", "steps", "sums")}
    except Exception as error:  # of many types, with advice to trust the file: not passed on
        raise Refusal(
            f"{path}: expected a checkpoint that train.py wrote, got what cannot be read as one "
            f"({type(error).__name__}): give another --checkpoint"
        ) from error


def train(training: Training, config: TrainConfig) -> int:
    """Train until all epochs are done, or --max_steps, or SIGTERM; give the exit code."""
    from tqdm import tqdm

    loader, stop = training.loader, StopRequest()
    if loader.epoch >= config.epochs and training.rank == 0:
        done = f"{loader.epoch} of {config.epochs} epochs are done"
        print(f"nothing left to do: {done}, give more --epochs", file=sys.stderr)
    end = None if config.max_steps is None else training.steps + config.max_steps
    while loader.epoch < config.epochs and training.steps != end:
        with tqdm(
            desc=f"epoch {loader.epoch + 1} of {config.epochs}",
            total=len(loader.index),
            initial=loader.state_dict()["position"],
            unit=" images",
            disable=training.rank != 0 or not sys.stderr.isatty(),
            leave=False,
        ) as bar:
            try:
                stopped = train_epoch(training, config, stop, end, bar)
            except RuntimeError:
                # SIGTERM may have gone to the readers too, as Slurm does it, or have ended another
                # rank. What was learnt until the last whole step is still there.
                if not stop.made:
                    raise
                training.save(config)
                stopped = True
        if stopped:
            return 128 + signal.SIGTERM
    return 0


def train_epoch(
    training: Training, config: TrainConfig, stop: StopRequest, end: int | None, bar: tqdm[Any]
) -> bool:
    """Take the steps that are left of an epoch; tell whether a rank was asked to stop."""
    loader, epoch = training.loader, training.loader.epoch
    began, seen = time.perf_counter(), 0
    for (batch,) in loader:
        windows, stopped = training.step(batch, epoch, stop.made)
        del batch  # what is held here cannot be reused for the next batch
        bar.update(windows)
        seen += windows
        epoch_is_over = loader.epoch > epoch
        if epoch_is_over:
            loss = training.end_epoch()
            if training.rank == 0:
                bar.close()
                rate = seen / (time.perf_counter() - began)
                print(f"epoch {epoch + 1}: loss {loss:.4f}, {rate:.0f} images/s", flush=True)
        last = stopped or training.steps == end
        if last or epoch_is_over or training.steps % config.checkpoint_every == 0:
            training.save(config)
        if last:
            return stopped
    return False


if __name__ == "__main__":
    raise SystemExit(main())
