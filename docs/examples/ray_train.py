"""Train with Ray Train on two workers, stop in mid-epoch, and continue with one: each row once.

python docs/examples/ray_train.py

It needs ``pip install 'ray[train]'``; ``make test-ray`` runs it.
"""

from __future__ import annotations

import os
import tempfile
from itertools import chain
from typing import Any

import numpy as np
import ray
import torch
from ray.train import Checkpoint, RunConfig, ScalingConfig, get_context, report
from ray.train.torch import TorchTrainer, prepare_model

from dali_pipelines import Index, Loader, npy_pipeline

ROWS, EPOCHS = 23, 2


def train(config: dict[str, Any]) -> None:
    """Train as one worker: Ray connects the workers, so the Loader finds its rank and shard."""
    loader = Loader(npy_pipeline, Index.load(config["index"]), batch_size=2, num_read_processes=1)
    network = torch.nn.Linear(64, 1)
    model = prepare_model(network)  # which wraps it, if there are several workers
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    if config["checkpoint"] is not None:
        with config["checkpoint"].as_directory() as folder:
            state = torch.load(os.path.join(folder, "state.pt"))
        network.load_state_dict(state["network"])
        loader.load_state_dict(state["loader"])
    rows, steps = [], 0
    with loader:
        while (epoch := loader.epoch) < EPOCHS and steps < config["max_steps"]:
            for batch in loader:
                loss = model(batch["image"].flatten(1)).square().sum()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                rows += [(epoch, row) for row in batch["row"].tolist()]
                steps += 1
                if steps == config["max_steps"]:
                    break
    everyone: list[Any] = [None] * get_context().get_world_size()
    torch.distributed.all_gather_object(everyone, rows)
    save(network, loader, everyone)


def save(network: torch.nn.Module, loader: Loader, rows: list[Any]) -> None:
    """Report a checkpoint, only from the first worker: all have the same state of the Loader."""
    with tempfile.TemporaryDirectory() as folder:
        state = {"network": network.state_dict(), "loader": loader.state_dict()}
        torch.save(state, os.path.join(folder, "state.pt"))
        is_first = get_context().get_world_rank() == 0
        report({"rows": rows}, checkpoint=Checkpoint.from_directory(folder) if is_first else None)


def run(folder: str, name: str, num_workers: int, **config: Any) -> ray.train.Result:
    """Train on `num_workers` workers, which may be on several machines that all see the folder."""
    trainer = TorchTrainer(
        train,
        train_loop_config={"index": os.path.join(folder, "index.parquet"), **config},
        scaling_config=ScalingConfig(num_workers=num_workers),  # use_gpu=True: a GPU for each
        run_config=RunConfig(storage_path=folder, name=name),
    )
    return trainer.fit()


def main() -> None:
    """Make some files, train, and check which rows each worker had."""
    with tempfile.TemporaryDirectory() as folder:
        for row in range(ROWS):
            np.save(os.path.join(folder, f"{row:02d}.npy"), np.full((8, 8), row, np.float32))
        Index.scan(folder).save(os.path.join(folder, "index.parquet"))
        first = run(folder, "first", 2, checkpoint=None, max_steps=4)
        second = run(folder, "second", 1, checkpoint=first.checkpoint, max_steps=10**9)
        print("rows of each worker:", first.metrics["rows"])
        delivered = chain(*first.metrics["rows"], *second.metrics["rows"])
    assert sorted(delivered) == [(epoch, row) for epoch in range(EPOCHS) for row in range(ROWS)]
    print(f"each of {ROWS} rows was delivered once in each of {EPOCHS} epochs")


if __name__ == "__main__":
    main()
