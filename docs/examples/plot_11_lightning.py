"""
Train with Lightning, and resume
================================

A Trainer of PyTorch Lightning stops in the middle of an epoch, and continues from its checkpoint as
if nothing had happened.
"""

# %%
# A ``DataModule`` takes one Loader for each loop. Here images are noise with a bright spot, and the
# network learns to locate the spot.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torchmetrics import MeanMetric

from dali_pipelines import Index, Loader, npy_pipeline
from dali_pipelines.lightning import DataModule


def write_images(folder, count):
    """Write images of 16x16 pixels with a spot; return their Index, with the row of the spot."""
    generator = np.random.default_rng(1)
    places = generator.integers(0, 16, count)
    for number, place in enumerate(places):
        pixels = generator.normal(0, 1, (16, 16)).astype(np.float32)
        pixels[place, generator.integers(16)] += 6
        np.save(folder / f"{number:04}.npy", pixels)
    return Index.scan(folder).with_column("place", places)


def make_data(index):
    """Make the Loaders: every fifth image is for validation."""
    is_validation = np.arange(len(index)) % 5 == 0
    settings = {"batch_size": 16, "num_read_processes": 1, "columns": ("place",)}
    return DataModule(
        Loader(npy_pipeline, index.select(~is_validation), tail="drop", **settings),
        val=Loader(npy_pipeline, index.select(is_validation), mode="eval", **settings),
    )


# %%
# A step gets the dict of its rank. The validation metric is updated with the values of all samples,
# so it is right on any number of ranks, even if the last batch of a rank is empty.


class Network(LightningModule):
    """Find the row of the spot."""

    def __init__(self, stop_at=None):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU())
        self.last = nn.Linear(8 * 16, 16)
        self.right = MeanMetric()
        self.losses, self.accuracy, self.stop_at = [], [], stop_at

    def forward(self, image):
        """Return a value for each row."""
        return self.last(self.layers(image).amax(3).flatten(1))

    def training_step(self, batch, _):
        """Return the loss, unless it is time to stop."""
        if self.global_step == self.stop_at:
            raise RuntimeError("the power is gone")
        loss = nn.functional.cross_entropy(self(batch["image"]), batch["place"])
        self.losses.append([self.global_step, float(loss)])
        return loss

    def validation_step(self, batch, _):
        """Count the right predictions."""
        self.right.update((self(batch["image"]).argmax(1) == batch["place"]).float())
        self.log("accuracy", self.right)

    def configure_optimizers(self):
        """Return the optimizer, Adam."""
        return torch.optim.Adam(self.parameters(), 0.01)


# %%
# Train once without interruption. Then stop after 70 steps, and resume with new Loaders, as a new
# process would. The number of ranks could also differ.


def train(index, folder, stop_at=None, checkpoint=None):
    """Train; return the loss of each step."""
    torch.manual_seed(0)
    network = Network(stop_at)
    saves = ModelCheckpoint(folder, "saved", every_n_train_steps=50)
    quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)
    trainer = Trainer(max_epochs=6, accelerator="cpu", callbacks=[saves], **quiet)
    try:
        trainer.fit(network, make_data(index), ckpt_path=checkpoint)
    except RuntimeError as error:
        print(f"after {trainer.global_step} steps: {error}")
    return network.losses


def draw(whole, before, after):
    """Show the losses of both."""
    figure, axis = plt.subplots(figsize=(10, 3.6), layout="constrained")
    axis.plot(*np.transpose(whole), color="lightgray", linewidth=5, label="without a break")
    axis.plot(*np.transpose(before), label="stopped after 70 steps")
    axis.plot(*np.transpose(after), label="resumed from step 50")
    axis.set(xlabel="step", ylabel="loss")
    axis.legend()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        index = write_images(folder, count=400)
        whole = train(index, folder / "whole")
        before = train(index, folder, stop_at=70)
        after = train(index, folder, checkpoint=folder / "saved.ckpt")
    np.testing.assert_allclose(whole[50:], after, rtol=1e-4)
    draw(whole, before, after)
    plt.show()
