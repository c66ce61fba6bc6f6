"""Scripts that read on two ranks, as users of each launcher write them: see test_launchers.py.

Arguments: the launcher, a folder of .npy files, and a folder for what each rank has read. The
Loader is made as early as may be, which is before the launcher has told the ranks apart.
"""

from __future__ import annotations

import json
import sys
from itertools import islice
from pathlib import Path
from typing import Any

STEPS_BEFORE = 3
"""Steps of one process that a checkpoint holds, before two ranks continue from it."""


def new_loader(folder: str, **settings: Any) -> Any:
    from dali_pipelines import Index, Loader, npy_pipeline

    settings = {"batch_size": 3, "num_read_processes": 1, **settings}
    return Loader(npy_pipeline, Index.scan(folder), **settings)


def note(out: str, loader: Any, rows: list[list[list[int]]], **more: Any) -> None:
    """Write the rows of each epoch and step that this process has read."""
    known = {"shard": [loader.first_shard, loader.num_shards], "steps": len(loader), "rows": rows}
    Path(out, f"rank{loader.first_shard}.json").write_text(json.dumps(known | more))


def rest_of_epoch(loader: Any) -> list[list[int]]:
    return [batch["row"].tolist() for (batch,) in loader]


def spawn(data: str, out: str) -> None:
    from torch.multiprocessing.spawn import spawn as start

    start(spawned, (data, out), nprocs=2)  # type: ignore[no-untyped-call]


def spawned(rank: int, data: str, out: str) -> None:
    import torch.distributed as dist

    loader = new_loader(data)
    dist.init_process_group("gloo", f"file://{out}/store", rank=rank, world_size=2)
    with loader:
        note(out, loader, [rest_of_epoch(loader) for _ in range(2)])


def accelerate(data: str, out: str) -> None:
    from accelerate import debug_launcher  # type: ignore[import-untyped]

    debug_launcher(accelerated_before, (new_loader(data), out), num_processes=1)
    debug_launcher(accelerated, (new_loader(data), data, out), num_processes=2)


def accelerated_before(loader: Any, out: str) -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    accelerator.register_for_checkpointing(loader)
    with loader:
        before = [batch["row"].tolist() for (batch,) in islice(loader, STEPS_BEFORE)]
        accelerator.save_state(f"{out}/state")
    Path(out, "before.json").write_text(json.dumps(before))


def accelerated(loader: Any, data: str, out: str) -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    assert accelerator.prepare(loader) is loader
    accelerator.register_for_checkpointing(loader)
    accelerator.load_state(f"{out}/state")
    rows = []
    with loader:
        while loader.epoch < 2:
            rows.append(rest_of_epoch(loader))
    with new_loader(data, batch_size=8, mode="eval") as validation:
        note(out, loader, rows, mean=mean_of_rows(accelerator, validation))


def mean_of_rows(accelerator: Any, validation: Any) -> float:
    """Return the mean of all pixels over the ranks: the last batch of one of them is empty."""
    import torch

    total, counts = torch.zeros(2), []
    for (batch,) in validation:
        values = batch["image"][:, 0, 0, 0]
        total += torch.tensor([values.sum(), len(values)])
        counts.append(len(values))
    assert counts == ([8, 7] if accelerator.process_index == 0 else [8, 0])
    total = accelerator.reduce(total)
    return float(total[0] / total[1])


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
