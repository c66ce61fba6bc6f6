"""
Spot keywords in recordings
===========================

Recordings of one "word" each, in a folder for each class: a rising, a falling and a steady tone, at
any pitch and under noise. A small network learns to tell them apart from log mel features, which
the graph makes. Half of the recordings are kept apart, to test it.
"""

# %%
# The recordings: 0.6 to 1.4 s long, 16 kHz, WAV.

import tempfile
import wave
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

from dali_pipelines import Gain, Index, Loader, LogMel, SpecAugment, WhiteNoise, audio_pipeline

RATE = 16000
WORDS = {"falling": -1.0, "rising": 1.0, "steady": 0.0}


def record(path, slope, random):
    """Write a tone whose pitch changes by a factor of 2, up or down, or stays."""
    seconds = random.uniform(0.6, 1.4)
    t = np.linspace(0, 1, int(seconds * RATE))
    pitch = random.uniform(300, 1200) * 2 ** (slope * (t - 0.5))
    tone = np.sin(2 * np.pi * np.cumsum(pitch) / RATE) * np.hanning(len(t))
    sound = 0.3 * tone + random.normal(0, 0.02, len(t))
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((sound * 32767).astype("<i2").tobytes())


def make_folder(folder):
    """Write 200 recordings of each word, in a folder of its own."""
    random = np.random.default_rng(0)
    for word, slope in WORDS.items():
        (folder / word).mkdir()
        for number in range(200):
            record(folder / word / f"{number:02}.wav", slope, random)


# %%
# Every sample is 1.5 s long, padded with silence where a recording is shorter. Training plays each
# a little faster or slower, louder or quieter, adds noise, and overwrites some bands and times. All
# of these depend only on the seed, the epoch and the row.


def make_loader(index, **settings):
    """Make a Loader of log mel features."""
    return Loader(
        audio_pipeline,
        index,
        batch_size=15,
        num_read_processes=1,
        devices="cpu",
        duration=1.5,
        short="pad",
        features=LogMel(n_mels=32, top_db=50, normalize="all"),
        columns=("label",),
        **settings,
    )


def make_model():
    """Make a network of three convolutions."""
    layers = []
    for channels, more in ((1, 16), (16, 32), (32, 32)):
        layers += [nn.Conv2d(channels, more, 3, 2, 1), nn.BatchNorm2d(more), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d((4, 4)), nn.Flatten(), nn.Linear(512, 3))


def train(model, loader, epochs):
    """Train the network."""
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(epochs):
        for (batch,) in loader:
            loss = nn.functional.cross_entropy(model(batch["features"]), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def share_right(model, loader):
    """Return the fraction of the recordings that are recognised."""
    model.eval()
    right = total = 0
    with torch.no_grad():
        for (batch,) in loader:
            right += int((model(batch["features"]).argmax(1) == batch["label"]).sum())
            total += len(batch["label"])
    return right / total


# %%
# What the network gets: bands against time.


def draw(batch, classes):
    """Show the features of four recordings."""
    figure, axes = plt.subplots(1, 4, figsize=(10, 2.5), sharey=True, layout="constrained")
    for axis, features, label in zip(axes, batch["features"], batch["label"], strict=False):
        axis.imshow(features[0], origin="lower", aspect="auto")
        axis.set(title=classes[int(label)], xlabel="frame")
    axes[0].set_ylabel("mel band")


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)  # on few cores, leave the others to DALI's threads
    with tempfile.TemporaryDirectory() as folder:
        make_folder(Path(folder))
        index = Index.scan_audio(folder, class_folders=True)
        parts = index.split({"train": 0.5, "test": 0.5}, seed=0)
        training = make_loader(
            parts["train"],
            window="random",
            speeds=(0.95, 1.0, 1.05),
            augment=(Gain((-6, 6)), WhiteNoise((15, 40)), SpecAugment(1, 4, 1, 10)),
        )
        test = make_loader(parts["test"], mode="eval")
        with training, test:
            train(model := make_model(), training, epochs=15)
            share = share_right(model, test)
            (batch,) = next(iter(training))
    print(f"recognised: {share:.0%} of {len(parts['test'])}")
    assert share > 0.85
    draw(batch, index.classes)
    plt.show()
