"""A script that reads on two ranks, as users of four launchers write it: see test_launchers.py.

Arguments: the launcher, a folder of .npy files, and a folder for what each rank has read. The
Loader is made as early as may be, which is before the launcher has told the ranks apart.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def new_loader(folder: str) -> Any:
    from dali_pipelines import Index, Loader, npy_pipeline

    return Loader(npy_pipeline, Index.scan(folder), batch_size=3, num_read_processes=1)


def note(out: str, loader: Any, rows: list[list[int]]) -> None:
    """Write the rows of each epoch that this process has read."""
    known = {"shard": [loader.first_shard, loader.num_shards], "steps": len(loader), "rows": rows}
    Path(out, f"{os.getpid()}.json").write_text(json.dumps(known))


def iterate(loader: Any, out: str) -> None:
    with loader:
        rows = [[row for (batch,) in loader for row in batch["row"].tolist()] for _ in range(2)]
    note(out, loader, rows)


def torchrun(data: str, out: str) -> None:
    iterate(new_loader(data), out)


def spawn(data: str, out: str) -> None:
    import torch.multiprocessing as mp

    mp.spawn(spawned, (data, out), nprocs=2)  # type: ignore[attr-defined, no-untyped-call]


def spawned(rank: int, data: str, out: str) -> None:
    import torch.distributed as dist

    loader = new_loader(data)
    dist.init_process_group("gloo", f"file://{out}/store", rank=rank, world_size=2)
    iterate(loader, out)


def accelerate(data: str, out: str) -> None:
    from accelerate import debug_launcher  # type: ignore[import-untyped]

    debug_launcher(accelerated, (new_loader(data), out), num_processes=2)


def accelerated(loader: Any, out: str) -> None:
    from accelerate import Accelerator

    iterate(Accelerator(cpu=True).prepare(loader), out)


def lightning(data: str, out: str) -> None:
    import torch
    from lightning.pytorch import LightningModule, Trainer

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)
            self.rows: list[list[int]] = [[], []]

        def training_step(self, batches: Any, _: int) -> Any:
            (batch,) = batches
            self.rows[self.current_epoch] += batch["row"].tolist()
            return self.layer(batch["image"].sum().reshape(1, 1)).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.0)

    module = Module()
    with new_loader(data) as loader:
        quiet: dict[str, Any] = dict.fromkeys(
            ("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False
        )
        trainer = Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=2, **quiet)
        trainer.fit(module, loader)
        note(out, loader, module.rows)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
