"""
Train a detector with boxes
===========================

Read boxes and labels from a COCO file. They are cut, scaled and flipped with the images, and padded
to fit into one tensor.
"""

# %%
# First the data: noisy images of dark discs and bright squares, and a JSON file that lists their
# boxes as COCO does: x, y, width and height, and the id of the category.

import json
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from PIL import Image
from torch import nn

from dali_pipelines import Boxes, Index, Loader, jpeg_pipeline

SIZE, COUNT, CROP, CELLS = 160, 120, 96, 6
LEAST = -1.5  # logit of a confident cell: a probability of 0.18, as a centre may be between cells
CATEGORIES = [{"id": 4, "name": "disc"}, {"id": 9, "name": "square"}]


def make_images(folder):
    """Write images and their annotations; return the path of the JSON file."""
    generator = np.random.default_rng(0)
    y, x = np.mgrid[:SIZE, :SIZE]
    images, annotations = [], []
    for number in range(COUNT):
        pixels = generator.normal(120, 15, (SIZE, SIZE))
        for quarter in generator.permutation(4)[:2]:  # so that they do not overlap
            row, column = 80 * np.array(divmod(quarter, 2)) + generator.integers(26, 55, 2)
            radius, label = int(generator.integers(12, 25)), int(generator.integers(2))
            away = np.abs(y - row), np.abs(x - column)
            inside = np.hypot(*away) <= radius if label == 0 else np.maximum(*away) <= radius
            pixels[inside] += (-60, 60)[label]
            corner, side = [int(column) - radius, int(row) - radius], 2 * radius + 1
            annotations.append(
                {
                    "id": len(annotations),
                    "image_id": number,
                    "category_id": CATEGORIES[label]["id"],
                    "bbox": [*corner, side, side],
                }
            )
        images.append({"id": number, "file_name": f"{number}.jpg"})
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"{number}.jpg")
    path = folder / "instances.json"
    path.write_text(
        json.dumps({"images": images, "annotations": annotations, "categories": CATEGORIES})
    )
    return path


# %%
# The labels count the categories from 0; ``index.classes`` are their names. A box is dropped if the
# random region shows less than half of it.


def make_loader(index, **settings):
    """Make a Loader of images of 96x96 pixels and their boxes."""
    return Loader(
        jpeg_pipeline,
        index,
        batch_size=12,
        num_read_processes=2,
        devices="cpu",
        channels=1,
        resize=CROP,
        mean=120,
        std=40,
        targets={"boxes": Boxes("boxes", labels="labels", min_visible=0.5)},
        **settings,
    )


# %%
# The network processes the image once, like SSD and YOLO. Each of 6x6 cells predicts whether it
# contains the centre of an object, the class of the object, and the distances of the four edges
# from the centre of the cell.


def make_model(classes):
    """Make a network that gives 1 + 4 + classes numbers for each cell."""
    layers, width = [], 1
    for channels in (16, 32, 48, 64):
        layers += [nn.Conv2d(width, channels, 3, stride=2, padding=1)]
        layers += [nn.BatchNorm2d(channels), nn.ReLU()]
        width = channels
    return nn.Sequential(*layers, nn.Conv2d(width, 5 + classes, 1))


def boxes_of(found):
    """Return the boxes that the cells predict, as fractions of the image."""
    centres = (torch.arange(CELLS) + 0.5) / CELLS
    y, x = torch.meshgrid(centres, centres, indexing="ij")
    left, top, right, bottom = found[..., 1:5].sigmoid().unbind(-1)
    return torch.stack((x - left, y - top, x + right, y + bottom), -1)


def targets_of(batch):
    """Return the cell of each box, as indices of (sample, row, column); the boxes; the labels."""
    boxes, count = batch["boxes"], batch["num_boxes"]
    is_box = torch.arange(boxes.shape[1]) < count[:, None]
    samples = is_box.nonzero()[:, 0]
    boxes, labels = boxes[is_box] / CROP, batch["labels"][is_box]
    cells = ((boxes[:, :2] + boxes[:, 2:]) / 2 * CELLS).long().clamp(0, CELLS - 1)
    return (samples, cells[:, 1], cells[:, 0]), boxes, labels


def loss_of(found, batch):
    """Return the loss: is there an object, of which class, and where."""
    cells, boxes, labels = targets_of(batch)
    found = found.permute(0, 2, 3, 1)
    has_object = torch.zeros(found.shape[:3])
    has_object[cells] = 1
    there = nn.functional.binary_cross_entropy_with_logits(found[..., 0], has_object)
    own = found[cells]
    where = nn.functional.smooth_l1_loss(boxes_of(found)[cells], boxes, beta=0.05)
    return 3 * there + 5 * where + nn.functional.cross_entropy(own[:, 5:], labels)


def train(model, loader, epochs):
    """Train; return the loss of each step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    losses = []
    for _ in range(epochs):
        for batch in loader:
            loss = loss_of(model(batch["image"]), batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        schedule.step()
    return losses


# %%
# An object counts as found if a cell is confident, its class is right, and its box overlaps the box
# of the object by more than half.


def detections(model, images):
    """Return for each image the boxes in pixels, shape (n, 4), and their labels."""
    with torch.no_grad():
        found = model(images).permute(0, 2, 3, 1)
    return [
        (boxes[sure] * CROP, each[sure][:, 5:].argmax(1))
        for each, boxes, sure in zip(found, boxes_of(found), found[..., 0] > LEAST, strict=True)
    ]


def overlaps(box, others):
    """Return intersection over union of a box with others."""
    low, high = torch.maximum(box[:2], others[:, :2]), torch.minimum(box[2:], others[:, 2:])
    shared = (high - low).clamp(min=0).prod(1)
    return shared / ((box[2:] - box[:2]).prod() + (others[:, 2:] - others[:, :2]).prod(1) - shared)


def share_found(model, loader):
    """Return the fraction of the validation objects that are found."""
    model.eval()
    hits = total = 0
    for batch in loader:
        found = detections(model, batch["image"])
        for place, (boxes, labels) in enumerate(found):
            for number in range(int(batch["num_boxes"][place])):
                same = boxes[labels == batch["labels"][place, number]]
                hits += bool((overlaps(batch["boxes"][place, number], same) > 0.5).any())
                total += 1
    return hits / total


# %%
# The boxes of the annotations are dashed, the boxes found by the network are solid.


def draw(model, batch, losses, names):
    """Show six validation samples, and the loss by step."""
    figure = plt.figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[3, 2])
    found = detections(model, batch["image"])
    for place, axis in enumerate(left.subplots(2, 3).flat):
        axis.imshow(batch["image"][place, 0], cmap="gray")
        truth = batch["boxes"][place, : batch["num_boxes"][place]]
        known = batch["labels"][place, : batch["num_boxes"][place]]
        for style, boxes, labels in (("--", truth, known), ("-", *found[place])):
            for (x1, y1, x2, y2), label in zip(boxes.tolist(), labels.tolist(), strict=True):
                edges = (x1 - 0.5, y1 - 0.5), x2 - x1, y2 - y1  # edges of pixels, not centres
                colour = ("tab:orange", "tab:cyan")[label]
                axis.add_patch(plt.Rectangle(*edges, fill=False, linestyle=style, color=colour))
        axis.set(xticks=[], yticks=[])
    left.suptitle(f"{names[0]}s are orange, {names[1]}s are cyan", fontsize=9)
    right.subplots().plot(losses)
    right.axes[0].set(xlabel="step", ylabel="loss", ylim=(0, None))


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)  # on few cores, leave the others to DALI's threads
    with tempfile.TemporaryDirectory() as folder:
        index = Index.from_coco(folder, make_images(Path(folder)))
        training = make_loader(index.select(range(96)), random_area=(0.4, 1), flip="hv")
        validation = make_loader(index.select(range(96, COUNT)), mode="eval")
        model = make_model(len(index.classes))
        with training, validation:
            losses = train(model, training, epochs=25)
            share = share_found(model, validation)
            batch = next(iter(validation))
    print(f"found: {share:.0%}")
    assert share > 0.6
    draw(model, batch, losses, index.classes)
    plt.show()
