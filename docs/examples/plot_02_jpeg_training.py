"""
Train on photographs in class folders
=====================================

An image classifier in PyTorch: random crops and flips for training, centre crops for validation.
"""

# %%
# The sample photographs are in one folder per class, as in ImageNet. The Index of such folders has
# a column ``label``; ``columns`` delivers it with each batch.

import matplotlib.pyplot as plt
import torch
from torch import nn

from dali_pipelines import Index, Loader, jpeg_pipeline, jpeg_samples

MEAN, STD = (123.7, 116.3, 103.5), (58.4, 57.1, 57.4)


def make_loader(index, **settings):
    """Make a Loader of 64x64 images, cut as 640x640 windows."""
    return Loader(
        jpeg_pipeline,
        index,
        batch_size=12,
        num_read_processes=2,
        devices="cpu",
        columns=("label",),
        crop=640,
        resize=64,
        mean=MEAN,
        std=STD,
        **settings,
    )


# %%
# Every fourth file is kept for validation. ``index.select`` takes row numbers or a mask.


def split(index):
    """Return the rows for training and those for validation."""
    is_validation = torch.arange(len(index)) % 4 == 0
    return index.select(~is_validation.numpy()), index.select(is_validation.numpy())


# %%
# The training loops are plain PyTorch. Both Loaders stay open, so their reader processes start only
# once. Validation is not random, and its tail is ``partial``, so each image counts once.


def train(model, training, validation, epochs):
    """Train; return the accuracy on the validation set after each epoch."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    accuracy = []
    for _ in range(epochs):
        model.train()
        for batch in training:
            loss = nn.functional.cross_entropy(model(batch["image"]), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            correct = sum(
                int((model(batch["image"]).argmax(1) == batch["label"]).sum())
                for batch in validation
            )
        accuracy.append(correct / len(validation.index))
    return accuracy


def make_model(classes):
    """Make a small convolutional network."""
    layers, width = [], 3
    for channels in (16, 32, 64):
        layers += [nn.Conv2d(width, channels, 3, stride=2, padding=1)]
        layers += [nn.BatchNorm2d(channels), nn.ReLU()]
        width = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(256, classes))


# %%
# Plot one batch of training images, and the accuracy.


def draw(batch, names, accuracy):
    """Show a batch, and the accuracy by epoch."""
    figure = plt.figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[3, 2])
    pixels = batch["image"] * torch.tensor(STD)[:, None, None] + torch.tensor(MEAN)[:, None, None]
    for axis, image, label in zip(left.subplots(3, 4).flat, pixels, batch["label"], strict=True):
        axis.imshow(image.permute(1, 2, 0).clamp(0, 255).byte())
        axis.set_title(names[int(label)], fontsize=8)
        axis.axis("off")
    axis = right.subplots()
    axis.plot(range(1, len(accuracy) + 1), accuracy, marker="o")
    axis.axhline(1 / len(names), color="gray", linestyle=":", label="by chance")
    axis.legend()
    axis.set(xlabel="epoch", ylabel="accuracy on the validation set", ylim=(0, 1.02))


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)  # on few cores, leave the others to DALI's threads
    index = Index.from_class_folders(jpeg_samples(num_per_class=48))
    names = sorted(set(index.table["class_name"].to_pylist()))
    train_index, validation_index = split(index)
    training = make_loader(train_index, window="random", flip="h", tail="drop", seed=3)
    validation = make_loader(validation_index, shuffle=False)
    with training, validation:
        accuracy = train(make_model(len(names)), training, validation, epochs=6)
        batch = next(iter(training))
    draw(batch, names, accuracy)
    plt.show()
