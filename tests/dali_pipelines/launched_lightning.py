"""The same as launched.py for a Trainer of Lightning: ddp, ddp_spawn, and ddp under torchrun."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torchmetrics import MeanMetric

from dali_pipelines import Index, Loader, npy_pipeline
from dali_pipelines.lightning import DataModule

STEPS_BEFORE = 3
"""Steps of one process that a checkpoint holds, before two ranks continue from it."""


class Module(LightningModule):
    """Note which rows each step gets, and the mean of the validation."""

    def __init__(self, out: str, killed: bool = False) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.mean = MeanMetric()
        self.out, self.killed = out, killed
        self.rows: list[list[list[int]]] = [[], []]

    def training_step(self, batch: Any, _: int) -> Any:
        batch = batch[0] if isinstance(batch, list) else batch  # without a DataModule
        self.rows[self.current_epoch].append(batch["row"].tolist())
        if self.killed and self.global_step == STEPS_BEFORE + 1:
            Path(self.out, "before.json").write_text(json.dumps(self.rows[0][:STEPS_BEFORE]))
            os.kill(os.getpid(), signal.SIGKILL)
        return self.layer(batch["image"].sum().reshape(1, 1)).mean()

    def validation_step(self, batch: Any, _: int) -> None:
        self.mean.update(batch["image"][:, 0, 0, 0])
        self.log("mean", self.mean)

    def on_fit_end(self) -> None:
        loader: Any = self.trainer.train_dataloader
        known = {"shard": [loader.first_shard, loader.num_shards], "steps": len(loader)}
        known |= {name: float(mean) for name, mean in self.trainer.callback_metrics.items()}
        text = json.dumps(known | {"rows": self.rows})
        Path(self.out, f"rank{self.global_rank}.json").write_text(text)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.0)


def loader(folder: str, **settings: Any) -> Loader:
    settings = {"batch_size": 3, "num_read_processes": 1, **settings}
    return Loader(npy_pipeline, Index.scan(folder), **settings)


def trainer(devices: int, strategy: str, **settings: Any) -> Trainer:
    quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)
    settings = {"enable_checkpointing": False, **quiet, **settings}
    return Trainer(accelerator="cpu", devices=devices, strategy=strategy, max_epochs=2, **settings)


def killed_then_resumed(strategy: str, data: str, out: str) -> None:
    """Fit in a process that is killed in mid-epoch; then resume its checkpoint on two ranks."""
    loaders = DataModule(loader(data), val=loader(data, batch_size=8, mode="eval"))
    if "LOCAL_RANK" not in os.environ:  # this is no rank that ddp has started
        if (child := os.fork()) == 0:
            saves = ModelCheckpoint(out, "saved", every_n_train_steps=STEPS_BEFORE)
            alone = trainer(1, "auto", callbacks=[saves], enable_checkpointing=True)
            alone.fit(Module(out, killed=True), loaders)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    trainer(2, strategy).fit(Module(out), loaders, ckpt_path=f"{out}/saved.ckpt")


if __name__ == "__main__":
    launcher, *folders = sys.argv[1:]
    if launcher == "torchrun":
        trainer(2, "ddp").fit(Module(folders[1]), loader(folders[0]))
    else:
        killed_then_resumed(launcher, *folders)
