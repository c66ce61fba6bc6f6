"""
Train a segmentation with masks
===============================

The mask of each image gets the same random crop, rotation, zoom and flips as the image.
"""

# %%
# First the data: noisy images of red discs and blue squares, each with a mask of the classes 0, 1
# and 2 beside it. The Index has a text column with the files of the masks.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from PIL import Image
from torch import nn

from dali_pipelines import Index, Loader, Mask, jpeg_pipeline

SIZE, COUNT = 128, 60


def make_images(folder):
    """Write images and masks; return their Index."""
    generator = np.random.default_rng(0)
    y, x = np.mgrid[:SIZE, :SIZE]
    for number in range(COUNT):
        mask = np.zeros((SIZE, SIZE), np.uint8)
        for label in (1, 2, 1, 2):
            row, column, radius = generator.integers((20, 20, 8), (108, 108, 20))
            away = np.abs(y - row), np.abs(x - column)
            mask[np.hypot(*away) < radius if label == 1 else np.maximum(*away) < radius] = label
        colours = np.array([[90, 90, 90], [130, 80, 80], [80, 80, 130]])[mask]
        pixels = colours + generator.normal(0, 40, (SIZE, SIZE, 3))
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"{number}.png")
        Image.fromarray(mask).save(folder / f"{number}_mask.png")
    index = Index.from_paths(folder / f"{number}.png" for number in range(COUNT))
    return index.with_column("mask_path", [str(folder / f"{n}_mask.png") for n in range(COUNT)])


# %%
# ``targets`` names the outputs. A mask has no channel axis, (batch, height, width), and integer
# values: each pixel has the value of the nearest one in the file. Where rotation shows the outside
# of the image, the mask is 255, which the loss ignores.


def make_loader(index, **settings):
    """Make a Loader of images and masks of 96x96 pixels."""
    return Loader(
        jpeg_pipeline,
        index,
        batch_size=12,
        num_read_processes=2,
        devices="cpu",
        crop=96,
        mean=90,
        std=40,
        targets={"mask": Mask("mask_path", outside=255)},
        **settings,
    )


# %%
# A small network that classifies each pixel from its surroundings, and a plain training loop.


def make_model():
    """Make a network that gives three classes for each pixel."""
    layers, width = [], 3
    for dilation in (1, 2, 4):
        layers += [nn.Conv2d(width, 16, 3, padding=dilation, dilation=dilation)]
        layers += [nn.BatchNorm2d(16), nn.ReLU()]
        width = 16
    return nn.Sequential(*layers, nn.Conv2d(width, 3, 1))


def train(model, loader, epochs):
    """Train; return the loss of each step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(epochs):
        for batch in loader:
            found = model(batch["image"])
            loss = nn.functional.cross_entropy(found, batch["mask"].long(), ignore_index=255)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def intersection_over_union(model, loader):
    """Return the mean IoU of the two object classes, on whole validation images."""
    inside, either = torch.zeros(2), torch.zeros(2)
    model.eval()
    with torch.no_grad():
        for batch in loader:
            found = model(batch["image"]).argmax(1)
            for label in (1, 2):
                guess, truth = found == label, batch["mask"] == label
                inside[label - 1] += (guess & truth).sum()
                either[label - 1] += (guess | truth).sum()
    return float((inside / either).mean())


# %%
# Validation images, their masks, and the predictions of the network.


def draw(model, batch, losses):
    """Show three samples, and the loss by step."""
    figure = plt.figure(figsize=(10, 5), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[3, 2])
    with torch.no_grad():
        found = model(batch["image"]).argmax(1)
    for row, name, pictures in zip(
        left.subplots(3, 3), ("image", "mask", "found"), (None, batch["mask"], found), strict=True
    ):
        for place, axis in enumerate(row):
            if pictures is None:
                axis.imshow((batch["image"][place].permute(1, 2, 0) * 40 + 90).clamp(0, 255).byte())
            else:
                axis.imshow(pictures[place], vmin=0, vmax=2)
            axis.set(xticks=[], yticks=[], ylabel=name if place == 0 else "")
    right.subplots().plot(losses)
    right.axes[0].set(xlabel="step", ylabel="loss", ylim=(0, None))


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)  # on few cores, leave the others to DALI's threads
    with tempfile.TemporaryDirectory() as folder:
        index = make_images(Path(folder))
        training = make_loader(
            index.select(range(48)), window="random", flip="hv", rotate=45, zoom=(0.8, 1.25)
        )
        validation = make_loader(index.select(range(48, COUNT)), mode="eval")
        model = make_model()
        with training, validation:
            losses = train(model, training, epochs=12)
            score = intersection_over_union(model, validation)
            batch = next(iter(validation))
    print(f"intersection over union: {score:.2f}")
    assert score > 0.6
    draw(model, batch, losses)
    plt.show()
