"""
Forecast the next frame of a sequence
=====================================

Make samples of several consecutive frames, with the same window and flip for all of them. A network
learns to forecast the frame that follows three others.
"""

# %%
# First the data: a frame every 12 minutes for thirty hours, of bright regions that drift west.
# One frame is missing.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from astropy.io import fits
from torch import nn

from dali_pipelines import Index, Loader, TimeBlocks, fits_pipeline

SIZE, COUNT, CROP = 128, 150, 96
START = np.datetime64("2024-05-10T00:00", "s")
OFFSETS = ("-24min", "-12min", "0min", "+12min")


def make_frames(folder):
    """Write the frames; return an Index of them with a column of times."""
    random = np.random.default_rng(0)
    y, x = np.mgrid[:SIZE, :SIZE]
    regions = random.uniform((10, 0, 3, 50), (SIZE - 10, 4 * SIZE, 9, 100), (24, 4))
    paths, times = [], []
    for number in range(COUNT):
        if number == 100:
            continue
        image = random.normal(0, 2, (SIZE, SIZE))
        for row, column, radius, light in regions:
            drift = 2.5 + 1.5 * np.sin(np.pi * row / SIZE)  # faster at the equator
            away = (x - (column + drift * number) % (4 * SIZE)) ** 2 + (y - row) ** 2
            image += light * np.exp(-away / (2 * radius**2))
        paths.append(folder / f"{number:03d}.fits")
        times.append(START + np.timedelta64(12 * number, "m"))
        fits.PrimaryHDU(image.astype(np.float32)).writeto(paths[-1])
    return Index.from_paths(paths).with_column("time", np.array(times))


# %%
# Each frame makes a sample with the frames 24 and 12 minutes before and 12 minutes after it, if all
# of them exist. ``image`` has shape (batch, 4, 1, height, width).
#
# Blocks of time are reserved for validation. A sample spans 36 minutes, so the blocks are further
# apart than that, and no frame is in both.


def make_loaders(index):
    """Return a Loader for training, and one for validation."""
    samples = index.group(time="time", offsets=OFFSETS, tolerance="1min")
    blocks = TimeBlocks("time", block="6h", gap="40min")
    parts = samples.split({"train": 0.8, "val": 0.2}, by=blocks)
    settings = {
        "batch_size": 8,
        "num_read_processes": 2,
        "devices": "cpu",
        "crop": CROP,
        "std": 50,
    }
    random = {"window": "random", "flip": "v", "tail": "drop"}  # no step of only some samples
    training = Loader(fits_pipeline, parts["train"], **random, **settings)
    return training, Loader(fits_pipeline, parts["val"], mode="eval", **settings)


# %%
# The baseline of a forecast is persistence: the next frame is like the last one.


class Forecaster(nn.Module):
    """A network that maps three frames to the change from the last one to the next."""

    def __init__(self, width=32):
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(3, width, 5, padding=2), nn.ReLU()),
            *(nn.Conv2d(width, width, 5, padding=2), nn.ReLU()),
            nn.Conv2d(width, 1, 5, padding=2),
        )

    def forward(self, frames):
        """Return the next frame of frames of shape (batch, 3, height, width)."""
        return frames[:, 2:] + self.layers(frames)


def train(model, loader, epochs):
    """Train; return the loss of each step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    losses = []
    for _ in range(epochs):
        for batch in loader:
            frames = batch["image"][:, :, 0]
            loss = nn.functional.mse_loss(model(frames[:, :3]), frames[:, 3:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def errors(model, loader):
    """Return the mean squared errors of the forecast, and of persistence."""
    found, sizes = [], []
    with torch.no_grad():
        for batch in loader:
            frames = batch["image"][:, :, 0]
            forecasts = model(frames[:, :3]), frames[:, 2:3]
            found.append([nn.functional.mse_loss(one, frames[:, 3:]).item() for one in forecasts])
            sizes.append(len(frames))  # the last batch may be short
    return np.average(found, axis=0, weights=sizes)


def draw(model, batch, losses):
    """Show a sequence with its forecast, and the loss by step."""
    frames = batch["image"][:1, :, 0]
    with torch.no_grad():
        forecast = model(frames[:, :3])[0, 0]
    figure = plt.figure(figsize=(10, 2.6), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[4, 2])
    titles = (*OFFSETS, "forecast")
    for axis, image, title in zip(left.subplots(1, 5), (*frames[0], forecast), titles, strict=True):
        axis.imshow(image, cmap="magma", vmin=0, vmax=2, origin="lower")
        axis.set_title(title, fontsize=8)
        axis.set(xticks=[], yticks=[])
    right.subplots().plot(losses)
    right.axes[0].set(xlabel="step", ylabel="loss", ylim=(0, None))


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)  # on few cores, leave the others to DALI's threads
    with tempfile.TemporaryDirectory() as folder:
        training, validation = make_loaders(make_frames(Path(folder)))
        with training, validation:
            losses = train(model := Forecaster(), training, epochs=5)
            forecast, persistence = errors(model, validation)
            batch = next(iter(validation))
    print(f"mean squared error: {forecast:.4f}, of persistence {persistence:.4f}")
    assert forecast < 0.5 * persistence
    draw(model, batch, losses)
    plt.show()
