"""
Train, save, serve: the same images
===================================

Save the preprocessing of a training run beside the checkpoint, and load both in a service. Its
images equal those of the validation, unlike the images of a reimplemented preprocessing.
"""

# %%
# The network is trained as in :doc:`plot_02_jpeg_training`, on regions of random size. Validation
# resizes photographs and crops their centre, as torchvision's recipes do.

import io
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
import numpy as np
import torch
from PIL import Image
from torch import nn

from dali_pipelines import Index, Loader, Preprocessor, jpeg_pipeline, jpeg_samples

MEAN, STD = (123.7, 116.3, 103.5), (58.4, 57.1, 57.4)
USUAL = {"batch_size": 12, "num_read_processes": 2, "devices": "cpu", "columns": ("label",)}


def train(model, index):
    """Train for a few epochs."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    regions = {"random_area": (0.5, 1), "resize": 64, "flip": "h", "mean": MEAN, "std": STD}
    with Loader(jpeg_pipeline, index, tail="drop", seed=3, **USUAL, **regions) as training:
        for _ in range(4):
            for batch in training:
                loss = nn.functional.cross_entropy(model(batch["image"]), batch["label"])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()


def make_model(classes):
    """Make a small convolutional network."""
    layers, width = [], 3
    for channels in (16, 32, 64):
        layers += [nn.Conv2d(width, channels, 3, stride=2, padding=1), nn.ReLU()]
        width = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(256, classes))


# %%
# Validation saves its preprocessing beside the weights of the network.


def validate(model, index, folder):
    """Return the outputs of the network by row, and save it with its preprocessing."""
    whole = {"resize_shorter": 72, "crop": 64, "mean": MEAN, "std": STD}
    with Loader(jpeg_pipeline, index, mode="eval", **USUAL, **whole) as validation:
        with torch.no_grad():
            answers = torch.cat([model(batch["image"]) for batch in validation])
        validation.preprocessor().save(folder / "preprocess.toml")
    torch.save(model.state_dict(), folder / "model.pt")
    return answers


# %%
# The service gets bytes. A reimplementation looks the same to the eye: Pillow, another filter, and
# the steps in another order.


def serve(folder, contents, classes):
    """Return the outputs of the saved network, and the images."""
    model = make_model(classes)
    model.load_state_dict(torch.load(folder / "model.pt"))
    with Preprocessor.load(folder / "preprocess.toml") as preprocess, torch.no_grad():
        images = preprocess(contents)["image"]
        return model(images), images, model(torch.stack([by_hand(one) for one in contents]))


def by_hand(content):
    """Preprocess as a reimplemented service might do."""
    image = Image.open(io.BytesIO(content)).convert("RGB").resize((64, 64), Image.NEAREST)
    pixels = np.asarray(image, np.float32) / 255
    mean, std = (np.array(three) for three in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    return torch.from_numpy(((pixels - mean) / std).transpose(2, 0, 1).astype(np.float32))


def draw(contents, images, differences):
    """Show images as the network gets them, and the differences of the outputs."""
    figure, axes = plt.subplots(2, 5, figsize=(10, 4), layout="constrained")
    mean, std = (torch.tensor(three)[:, None, None] for three in (MEAN, STD))
    for column, row in zip(axes.T[:4], range(0, len(contents), len(contents) // 4), strict=False):
        for axis, image in zip(column, (images[row], by_hand(contents[row])), strict=True):
            axis.imshow((image * std + mean).clamp(0, 255).byte().permute(1, 2, 0))
            axis.axis("off")
    axes[0, 0].set_title("Preprocessor", loc="left")
    axes[1, 0].set_title("written anew", loc="left")
    for axis, one in zip(axes[:, 4], differences, strict=True):
        axis.hist(one, bins=20, range=(0, float(differences[1].max())))
        axis.set(xlabel="largest difference of a logit", ylabel="images")


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)  # on few cores, leave the others to DALI's threads
    index = Index.from_class_folders(jpeg_samples(num_per_class=24))
    classes = len(index.classes)
    model = make_model(classes)
    train(model, index)
    contents = [Path(path).read_bytes() for path in index.table["path"].to_pylist()]
    with TemporaryDirectory() as folder:
        expected = validate(model, index, Path(folder))
        answers, images, others = serve(Path(folder), contents, classes)
    assert torch.equal(answers, expected)
    changed = int((others.argmax(1) != expected.argmax(1)).sum())
    print(f"served: all {len(answers)} answers are those of validation")
    print(f"written anew: {changed} of {len(others)} images get another class")
    draw(contents, images, [(one - expected).abs().amax(1) for one in (answers, others)])
    plt.show()
