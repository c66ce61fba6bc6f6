"""
Classify cutouts of a catalogue
===============================

A survey detects stars, but also cosmic rays. From a catalogue of sky positions we make cutouts of
image and data quality, and train a network to tell the two apart.
"""

# %%
# First the data: exposures of an image (``SCI``) and flags of its pixels (``DQ``) with a WCS, and a
# catalogue of the detections, labelled by hand: 1 is real, 0 is bogus.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from astropy.io import fits
from astropy.table import Table
from astropy.wcs import WCS
from torch import nn

from dali_pipelines import Hdu, Index, Loader, fits_pipeline

SIZE, EXPOSURES, EACH, CROP = 512, 8, 60, 32


def make_survey(folder):
    """Write the exposures; return the catalogue."""
    random = np.random.default_rng(0)
    found = []
    for number in range(EXPOSURES):
        image = random.normal(100, 5, (SIZE, SIZE)).astype(np.float32)
        flags = (random.random((SIZE, SIZE)) < 0.01).astype(np.int16)
        image[flags > 0] = 0  # dead pixels
        wcs = WCS(naxis=2)
        wcs.wcs.ctype = "RA---TAN", "DEC--TAN"
        wcs.wcs.crval, wcs.wcs.crpix = (150 + number, 2), (SIZE / 2, SIZE / 2)
        wcs.wcs.cdelt = -7e-5, 7e-5
        y, x = random.uniform(0, SIZE, (2, EACH))
        real = random.random(EACH) < 0.5
        for is_real, *place in zip(real, y, x, strict=True):
            (add_star if is_real else add_ray)(image, *place, random)
        ra, dec = wcs.pixel_to_world_values(x, y)
        found += zip(ra, dec, real.astype(int), [number] * EACH, strict=True)
        header = wcs.to_header()
        hdus = fits.ImageHDU(image, header, "SCI"), fits.CompImageHDU(flags, header, "DQ")
        fits.HDUList([fits.PrimaryHDU(), *hdus]).writeto(folder / f"exposure{number}.fits")
    return Table(rows=found, names=("ra", "dec", "label", "exposure"))


def add_star(image, y, x, random):
    """Add a star as wide as the seeing, at any position within a pixel."""
    rows, columns = np.ogrid[:SIZE, :SIZE]
    away = (rows - y) ** 2 + (columns - x) ** 2
    image += random.uniform(30, 200) * np.exp(-away / (2 * 1.8**2))


def add_ray(image, y, x, random):
    """Add a cosmic ray: a sharp track of a few pixels."""
    length, angle = random.integers(1, 6), random.uniform(0, 2 * np.pi)
    along = np.arange(length) - length // 2
    rows = np.clip(np.rint(y + along * np.sin(angle)), 0, SIZE - 1).astype(int)
    columns = np.clip(np.rint(x + along * np.cos(angle)), 0, SIZE - 1).astype(int)
    image[rows, columns] += random.uniform(50, 600)


# %%
# Each position becomes a row for each image that contains it, with the columns of the catalogue.
# The Loader takes the size of the windows from the Index. Near an edge, pixels outside the image
# are filled, here with the background. ``dq`` has the type in the file, int16, and gets the same
# window and flips as the image.


def make_loader(index, **settings):
    """Make a Loader of cutouts."""
    return Loader(
        fits_pipeline,
        index,
        batch_size=32,
        num_read_processes=2,
        devices="cpu",
        hdus={"image": Hdu(), "dq": "DQ"},
        missing=100,
        mean=100,
        std=20,
        columns=("label",),
        **settings,
    )


def inputs_of(batch):
    """Return image and flags as the channels of one tensor."""
    return torch.cat((batch["image"], (batch["dq"] != 0).float()), 1)


def make_model():
    """Make a network that gives one number: above 0 is real."""
    layers, width = [], 2
    for channels in (16, 32, 32):
        layers += [nn.Conv2d(width, channels, 3, padding=1), nn.BatchNorm2d(channels)]
        layers += [nn.ReLU(), nn.MaxPool2d(2)]
        width = channels
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width * (CROP // 8) ** 2, 1))


def train(model, loader, epochs):
    """Train; return the loss of each step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    losses = []
    for _ in range(epochs):
        for batch in loader:
            found = model(inputs_of(batch))[:, 0]
            loss = nn.functional.binary_cross_entropy_with_logits(found, batch["label"].float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def share_right(model, loader):
    """Return the fraction of the cutouts that are classified correctly."""
    model.eval()
    right = total = 0
    with torch.no_grad():
        for batch in loader:
            real = model(inputs_of(batch))[:, 0] > 0
            right += int((real == batch["label"].bool()).sum())
            total += len(real)
    return right / total


# %%
# Whole exposures are reserved for validation, because two cutouts of one exposure are not
# independent.


def draw(batch, losses):
    """Show twelve cutouts with their labels, and the loss by step."""
    figure = plt.figure(figsize=(10, 3.6), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[3, 2])
    for place, axis in enumerate(left.subplots(2, 6).flat):
        axis.imshow(batch["image"][place, 0], cmap="gray", vmin=-1, vmax=3, origin="lower")
        axis.set_title(("bogus", "real")[int(batch["label"][place])], fontsize=8)
        axis.set(xticks=[], yticks=[])
    right.subplots().plot(losses)
    right.axes[0].set(xlabel="step", ylabel="loss", ylim=(0, None))


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)  # on few cores, leave the others to DALI's threads
    with tempfile.TemporaryDirectory() as folder:
        catalogue = make_survey(Path(folder))
        index = Index.cutouts(folder, catalogue, CROP, hdus="SCI", outside="fill")
        parts = index.split({"train": 0.75, "val": 0.25}, by="exposure", seed=2)
        training = make_loader(parts["train"], flip="hv")
        validation = make_loader(parts["val"], mode="eval")
        with training, validation:
            losses = train(model := make_model(), training, epochs=8)
            share = share_right(model, validation)
            batch = next(iter(validation))
    print(f"right: {share:.0%} of {len(parts['val'])}")
    assert share > 0.9
    draw(batch, losses)
    plt.show()
