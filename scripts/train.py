"""Train a network to find the noise that is added to FITS images: an example to copy.

python scripts/train.py --checkpoint=train.pt
torchrun --nproc_per_node=2 scripts/train.py --checkpoint=train.pt --resume
"""

from __future__ import annotations

import argparse
import os
import signal
from typing import Any

if __name__ != "__mp_main__":  # the name under which reader processes import this file again
    import torch

    from dali_pipelines import Index, Loader, Ranks, fits_pipeline, fits_samples


def main(argv: list[str] | None = None) -> int:
    """Train; return 0, 1 if no file can be read, 143 after SIGTERM; exit with 2 for wrong usage."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("--data", help="folder, glob, URL, .csv or Index file (default: samples, made once)")
    add("--epochs", type=int, default=20, help="in all, those before a resume included")
    add("--batch_size", type=int, default=8, help="windows per rank and step")
    add("--num_read_processes", type=int, default=4, help="reader processes of each rank")
    add("--crop", type=int, default=128, help="height and width of a window in pixels")
    add("--learning_rate", type=float, default=3e-3, help="of AdamW")
    add("--seed", type=int, default=0, help="of weights, order, windows, flips and noise")
    add("--checkpoint", metavar="FILE", help="save model, optimizer and Loader here")
    add("--checkpoint_every", type=int, default=100, help="steps between checkpoints")
    add("--resume", action="store_true", help="continue from the checkpoint, if it exists")
    add("--device", choices=("auto", "gpu", "cpu"), default="auto", help="auto: GPUs, or the CPU")
    add("--max_steps", type=int, default=10**9, help="stop after this many steps of this run")
    flags, stop = parser.parse_args(argv), list[bool]()
    signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
    try:
        training = Training(flags)
    except (OSError, RuntimeError, ValueError) as error:
        parser.error(str(error))
    with training.loader:
        try:
            status = training.run(stop)
        except RuntimeError:  # SIGTERM may have ended readers or other ranks before this one
            if not stop:
                raise
            training.save()
            status = 128 + signal.SIGTERM
    torch.distributed.destroy_process_group()
    return status


class Training:
    """Model (no batch norm, which would depend on the number of ranks), optimizer and Loader."""

    def __init__(self, flags: argparse.Namespace) -> None:
        self.flags, self.ranks = flags, Ranks.of()
        if min(flags.epochs, flags.num_read_processes, flags.checkpoint_every, flags.max_steps) < 1:
            raise ValueError("numbers of epochs, readers and steps must be at least 1")
        exists = os.path.exists(flags.checkpoint or "")
        if exists and not flags.resume:
            raise ValueError(f"{flags.checkpoint} exists: add --resume to continue, or remove it")
        (gpu,) = self.ranks.choose_devices(flags.device)
        self.loader = Loader(
            fits_pipeline,
            Index.scan(flags.data or fits_samples(), suffixes=(".fits", ".fits.gz", ".fz")),
            batch_size=flags.batch_size,
            num_read_processes=flags.num_read_processes,
            devices=[gpu],
            seed=flags.seed,
            bad_sample="skip",  # a file that cannot be read is left out, with a warning
            crop=flags.crop,
            window="random",
            flip="hv",  # for objects of a store add e.g. cache="FOLDER", cache_bytes=10**11
        )
        self.loader.make_pipelines()  # only to see now whether the crop fits the images
        device = torch.device("cpu" if gpu is None else f"cuda:{gpu}")
        self.ranks.join(gpu, self.loader.index)
        torch.manual_seed(flags.seed)
        convolutions = [torch.nn.Conv2d(n, 16, 3, padding=1) for n in (1, 16, 16, 16)]
        layers = [layer for each in convolutions for layer in (each, torch.nn.ReLU())]
        network = torch.nn.Sequential(*layers, torch.nn.Conv2d(16, 1, 3, padding=1)).to(device)
        self.model = torch.nn.parallel.DistributedDataParallel(network)
        self.optimizer = torch.optim.AdamW(network.parameters(), lr=flags.learning_rate)
        self.parts: Any = {"model": network, "optimizer": self.optimizer, "loader": self.loader}
        self.steps, self.sums = 0, torch.zeros(2, device=device)  # of this epoch: loss, windows
        self.cursor = self.loader.state_dict()  # after the last step that was learned from
        if exists:
            try:
                state = torch.load(flags.checkpoint, map_location=device)
                for name, part in self.parts.items():
                    part.load_state_dict(state[name])
                self.steps, self.sums, self.cursor = state["steps"], state["sums"], state["loader"]
            except Exception as error:  # torch raises whatever its unpickler does
                raise ValueError(
                    f"{flags.checkpoint} is not a checkpoint of this training: {error}"
                ) from error
        self.save()  # to see now whether it can be written

    def save(self) -> None:
        """Write the checkpoint, the same on all ranks, so that a crash leaves the old one."""
        if self.flags.checkpoint and self.ranks.rank == 0:
            state = {name: part.state_dict() for name, part in self.parts.items()}
            state |= {"loader": self.cursor, "steps": self.steps, "sums": self.sums}
            torch.save(state, self.flags.checkpoint + ".part")
            os.replace(self.flags.checkpoint + ".part", self.flags.checkpoint)

    def run(self, stop: list[bool]) -> int:
        """Train until the last epoch, --max_steps or SIGTERM; return the exit status."""
        end, stopped = self.steps + self.flags.max_steps, False
        while self.loader.epoch < self.flags.epochs and self.steps < end and not stopped:
            epoch = self.loader.epoch
            for (batch,) in self.loader:
                stopped = self.step(batch, bool(stop))
                if stopped or self.steps >= end:
                    break
                if self.loader.epoch == epoch and self.steps % self.flags.checkpoint_every == 0:
                    self.save()
            if self.loader.epoch > epoch:
                if self.sums[1] == 0:
                    raise SystemExit("none of the files could be read")
                if self.ranks.rank == 0:
                    print(f"epoch {epoch + 1}: loss {self.sums[0] / self.sums[1]:.4f}", flush=True)
                self.sums.zero_()
            self.save()
        return 128 + signal.SIGTERM if stopped else 0

    def step(self, batch: dict[str, torch.Tensor], stop: bool) -> bool:
        """Learn from a batch of each rank, which may be empty; return whether a rank must stop."""
        image, rows = batch["image"].nan_to_num(0, 0, 0), batch["row"].tolist()
        if not rows:  # DDP needs a backward pass on each rank: a blank window of weight 0
            image, rows = image.new_zeros((1, 1, self.flags.crop, self.flags.crop)), [0]
        image = (image / image.abs().mean((1, 2, 3), keepdim=True).clamp(min=1e-30)).asinh()
        key = self.cursor["seed"], self.cursor["epoch"]  # the same noise on any number of ranks
        seeded = [torch.Generator().manual_seed(hash((*key, row))) for row in rows]
        noise = torch.stack([torch.normal(0.0, 0.5, image[0].shape, generator=g) for g in seeded])
        noise = noise.to(image.device)
        loss = (self.model(image + noise) - noise)[: len(batch["row"])].abs().mean((1, 2, 3)).sum()
        totals = torch.stack([loss.detach(), *loss.new_tensor([len(batch["row"]), stop])])
        torch.distributed.all_reduce(totals)
        (loss * self.ranks.world_size / totals[1].clamp(min=1)).backward()  # DDP: mean over ranks
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.steps, self.sums = self.steps + 1, self.sums + totals[:2]
        self.cursor = self.loader.state_dict()
        return bool(totals[2])


if __name__ == "__main__":
    raise SystemExit(main())
