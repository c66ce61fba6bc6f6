"""
Recognise actions in videos
===========================

Videos of a square that moves left, right, up or down over noise. No single frame tells which: a
small network of 3-D convolutions learns it from clips of 6 frames. Half of the videos are kept
apart, to test it.
"""

# %%
# The videos: 40 frames of 64x64 pixels, MPEG-4, a folder for each action. They begin anywhere, and
# the square comes back at the other side when it leaves.

import tempfile
from pathlib import Path

import av
import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

from dali_pipelines import ColorJitter, Index, Loader, video_pipeline

ACTIONS = {"down": (1, 0), "left": (0, -1), "right": (0, 1), "up": (-1, 0)}
SIZE, SIDE, FRAMES = 64, 14, 40


def draw_frames(direction, random):
    """Yield frames of a moving bright square of any speed over a background of noise."""
    background = random.integers(40, 120, (SIZE, SIZE, 3))
    colour = random.integers(180, 256, 3)
    speed, place = random.uniform(1.5, 3), random.uniform(0, SIZE, 2)
    for number in range(FRAMES):
        frame = (background + random.integers(-10, 10, background.shape)).astype(np.uint8)
        y, x = (place + number * speed * np.array(direction)).astype(int)
        rows, columns = (y + np.arange(SIDE)) % SIZE, (x + np.arange(SIDE)) % SIZE
        frame[np.ix_(rows, columns)] = colour
        yield frame


def write_video(path, frames):
    """Write a video by PyAV."""
    with av.open(str(path), "w") as file:
        stream = file.add_stream("mpeg4", rate=25)
        stream.width = stream.height = SIZE
        stream.bit_rate = 1_000_000
        for frame in frames:
            file.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        file.mux(stream.encode(None))


def make_folder(folder):
    """Write 50 videos of each action, in a folder of its own."""
    random = np.random.default_rng(0)
    for action, direction in ACTIONS.items():
        (folder / action).mkdir()
        for number in range(50):
            write_video(folder / action / f"{number:02}.mp4", draw_frames(direction, random))


# %%
# An epoch has a random clip of each video, every second frame of twelve. All frames of a clip get
# the same window and change of colours; a flip would turn left into right. The test has every clip
# of its videos, once.


def make_loader(index, **settings):
    """Make a Loader of clips."""
    return Loader(
        video_pipeline,
        index,
        batch_size=10,
        num_read_processes=1,
        devices="cpu",
        frames=6,
        stride=2,
        crop=56,
        mean=110,
        std=60,
        columns=("label",),
        **settings,
    )


def make_model():
    """Make a network of three convolutions over time, height and width."""
    layers = [nn.AvgPool3d((1, 2, 2))]
    for channels, more in ((3, 12), (12, 24), (24, 24)):
        layers += [nn.Conv3d(channels, more, 3, (1, 2, 2), 1), nn.BatchNorm3d(more), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(24, 4))


def actions_of(model, batch):
    """Return the network's output for clips, which it takes as (batch, colours, frames, y, x)."""
    return model(batch["image"].transpose(1, 2))


def train(model, loader, epochs):
    """Train the network."""
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(epochs):
        for (batch,) in loader:
            loss = nn.functional.cross_entropy(actions_of(model, batch), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def share_right(model, loader):
    """Return the fraction of the clips whose action is recognised."""
    model.eval()
    right = total = 0
    with torch.no_grad():
        for (batch,) in loader:
            right += int((actions_of(model, batch).argmax(1) == batch["label"]).sum())
            total += len(batch["label"])
    return right / total


# %%
# What the network gets: a row for each clip.


def draw(batch, classes):
    """Show the frames of four clips."""
    figure, axes = plt.subplots(4, 6, figsize=(8, 6), layout="constrained")
    for row, clip, label in zip(axes, batch["image"], batch["label"], strict=False):
        for axis, frame in zip(row, clip, strict=True):
            axis.imshow((frame.permute(1, 2, 0) * 60 + 110).clamp(0, 255).byte())
            axis.set(xticks=[], yticks=[])
        row[0].set_ylabel(classes[int(label)])


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)  # on few cores, leave the others to DALI's threads
    with tempfile.TemporaryDirectory() as folder:
        make_folder(Path(folder))
        index = Index.scan_videos(folder, class_folders=True)
        parts = index.split({"train": 0.5, "test": 0.5}, seed=0)
        training = make_loader(parts["train"], window="random", augment=(ColorJitter(0.2, 0.2),))
        clips = parts["test"].each_clip(6, stride=2)
        test = make_loader(clips, mode="eval")
        with training, test:
            train(model := make_model(), training, epochs=12)
            share = share_right(model, test)
            (batch,) = next(iter(training))
    print(f"recognised: {share:.0%} of {len(clips)} clips")
    assert share > 0.85
    draw(batch, index.classes)
    plt.show()
