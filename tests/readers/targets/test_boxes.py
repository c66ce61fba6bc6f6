"""Boxes against the formulas of torchvision v2, one step after the other, in PyTorch.

torchvision itself does not install here. Its source is cited: transforms/v2/functional/_geometry.py
and _meta.py of 0.20.
"""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from numpy.typing import NDArray

from readers import Boxes
from readers.contract import Sample
from readers.sampling.geometry import Geometry
from readers.sampling.placement import Placement
from readers.sampling.region import ScaledWindow
from readers.targets.nearest import NearestPixels
from readers.window import Window

CASES = 500
"""For each of `KINDS`."""
SEED = 3

KINDS: dict[str, dict[str, Any]] = {
    "whole, resized": {"resize": (33, 48), "flip": "hv"},
    "crop": {"crop": (30, 41), "window": "random", "flip": "hv"},
    "region": {"random_area": (0.08, 1.0), "resize": (32, 40), "flip": "hv"},
    "shorter": {"resize_shorter": 37, "crop": (30, 33), "window": "random", "flip": "h"},
    "turned": {
        "crop": (30, 41),
        "window": "random",
        "rotate": 180,
        "zoom": (0.5, 2.0),
        "resize": (25, 50),
        "flip": "hv",
    },
}


def crop(boxes: torch.Tensor, top: float, left: float) -> torch.Tensor:
    """Do what ``crop_bounding_boxes`` does, without the clamp."""
    return boxes - torch.tensor([left, top, left, top], dtype=boxes.dtype)


def resize(boxes: torch.Tensor, old: tuple[int, int], new: tuple[int, int]) -> torch.Tensor:
    """Do what ``resize_bounding_boxes`` does."""
    ratios = torch.tensor([new[1] / old[1], new[0] / old[0]] * 2, dtype=boxes.dtype)
    return boxes * ratios


def horizontal_flip(boxes: torch.Tensor, width: int) -> torch.Tensor:
    boxes = boxes.clone()
    boxes[:, [2, 0]] = boxes[:, [0, 2]].sub(width).neg()
    return boxes


def vertical_flip(boxes: torch.Tensor, height: int) -> torch.Tensor:
    boxes = boxes.clone()
    boxes[:, [1, 3]] = boxes[:, [3, 1]].sub(height).neg()
    return boxes


def affine(
    boxes: torch.Tensor, canvas: tuple[int, int], angle: float, scale: float
) -> torch.Tensor:
    """Do what ``affine_bounding_boxes`` does: turn clockwise about the centre of the canvas."""
    centre = canvas[1] * 0.5, canvas[0] * 0.5
    rot = math.radians(angle)
    a, b = math.cos(rot) * scale, -math.sin(rot) * scale
    c, d = math.sin(rot) * scale, math.cos(rot) * scale
    points = boxes[:, [[0, 1], [2, 1], [2, 3], [0, 3]]]
    x, y = points[..., 0] - centre[0], points[..., 1] - centre[1]
    moved = torch.stack([a * x + b * y + centre[0], c * x + d * y + centre[1]], dim=-1)
    lowest, highest = torch.aminmax(moved, dim=1)
    return torch.cat([lowest, highest], dim=1)


def clamp(boxes: torch.Tensor, canvas: tuple[int, int]) -> torch.Tensor:
    boxes = boxes.clone()
    boxes[:, 0::2].clamp_(min=0, max=canvas[1])
    boxes[:, 1::2].clamp_(min=0, max=canvas[0])
    return boxes


def areas(boxes: torch.Tensor) -> torch.Tensor:
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def reference(
    boxes: torch.Tensor,
    geometry: Geometry,
    window: Window | None,
    image: tuple[int, int],
    flip: tuple[bool, bool],
) -> tuple[torch.Tensor, tuple[int, int]]:
    """Return the boxes, not cut yet, and the size of the sample."""
    canvas = image
    if isinstance(window, ScaledWindow):
        shape = [window.shorter * side // min(image) for side in image]
        boxes, canvas = resize(boxes, image, (shape[0], shape[1])), (window.height, window.width)
        (top, _), (left, _) = window.part(*image)
        boxes = crop(boxes, round(top * shape[0] / image[0]), round(left * shape[1] / image[1]))
    elif window is not None:
        plain = window if geometry.is_turned else window.within(*image)
        (top, _), (left, _) = plain.part(*image)
        boxes, canvas = crop(boxes, top, left), (plain.height, plain.width)
        if geometry.is_turned:
            boxes = affine(boxes, canvas, window.angle, window.zoom)
    if geometry.resize is not None:
        boxes, canvas = resize(boxes, canvas, geometry.resize), geometry.resize
    if flip[0]:
        boxes = horizontal_flip(boxes, canvas[1])
    if flip[1]:
        boxes = vertical_flip(boxes, canvas[0])
    return boxes, canvas


def draw_boxes(generator: np.random.Generator, image: tuple[int, int]) -> NDArray[np.float64]:
    """Return some that lie in the image, whole or nearly so, whole pixels and fractions."""
    height, width = image
    count = int(generator.integers(0, 6))
    corners = generator.uniform(-1, 1.02, (count, 2, 2)).clip(-0.02) * (width, height)
    if generator.integers(2):
        corners = corners.round()
    boxes = np.concatenate((corners.min(axis=1), corners.max(axis=1)), axis=1)
    inside = (boxes[:, 2:] > 0).all(1) & (boxes[:, :2] < (width, height)).all(1)
    found: NDArray[np.float64] = boxes[inside]
    return found


def read(target: Boxes, boxes: Any, placement: Placement, labels: Any = ()) -> Sample:
    values = {"b": np.asarray(boxes, np.float64), "l": np.asarray(labels, np.int64)}
    sample = target.read("boxes", values, placement)
    for spec in target.specs("boxes"):
        spec.check(sample[spec.name])
    return sample


@pytest.mark.parametrize("kind", KINDS)
def test_boxes_are_those_of_torchvision(kind: str) -> None:
    generator = np.random.default_rng(list(KINDS).index(kind))
    geometry = Geometry(**KINDS[kind])
    left_in_all = 0
    for row in range(CASES):
        image = int(generator.integers(41, 400)), int(generator.integers(41, 400))
        boxes = draw_boxes(generator, image)
        window = geometry.draw_window(SEED, 0, row)
        flip = geometry.draw_flips(SEED, 0, row)
        least, visible = [(0.0, 0.0), (1.0, 0.0), (9.5, 0.3), (0.0, 0.8)][row % 4]
        target = Boxes("b", "l", max_boxes=6, min_area=least, min_visible=visible)
        placement = geometry.placement(window, image, flip)
        sample = read(target, boxes, placement, np.arange(len(boxes)) + 10)

        moved, canvas = reference(torch.from_numpy(boxes), geometry, window, image, flip)
        assert placement.shape == canvas
        cut = clamp(moved, canvas)
        sides = cut[:, 2:] - cut[:, :2]
        keep = (sides > 1e-6).all(1) & (areas(cut) >= least - 1e-9)
        keep &= areas(cut) >= visible * areas(moved) * (1 - 1e-9)
        count = int(keep.sum())
        assert int(sample["num_boxes"]) == count
        assert sample["l"].tolist() == (keep.nonzero()[:, 0] + 10).tolist() + [-1] * (6 - count)
        assert not sample["boxes"][count:].any()
        # 1e-5 of a pixel, beside the rounding of float32.
        np.testing.assert_allclose(sample["boxes"][:count], cut[keep], atol=1e-5, rtol=1e-6)
        left_in_all += count
    assert left_in_all > CASES // 4


def test_a_box_is_where_its_pixels_are() -> None:
    """In a mask that shows the box, sampled by the same placement."""
    generator = np.random.default_rng(7)
    kinds = [kind for kind in KINDS if kind != "turned"]
    compared = 0
    for row in range(400):
        image = int(generator.integers(60, 100)), int(generator.integers(60, 100))
        geometry = Geometry(**KINDS[kinds[row % len(kinds)]])
        window, flip = geometry.draw_window(SEED, 0, row), geometry.draw_flips(SEED, 0, row)
        placement = geometry.placement(window, image, flip)
        x, y = generator.integers(0, 40, 2).tolist()
        mask = np.zeros(image, np.uint8)
        mask[y : y + 18, x : x + 15] = 1
        nearest = NearestPixels.of(placement)
        top, left, height, width = nearest.box
        rows, columns = nearest.take(mask[top : top + height, left : left + width], 0).nonzero()
        target = Boxes("b", max_boxes=1, min_area=0)
        sample = read(target, [(x, y, x + 15, y + 18)], placement)
        if len(rows):
            found = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
            assert np.abs(sample["boxes"][0] - found).max() <= 0.5001
            compared += 1
    assert compared > 100


@pytest.mark.parametrize("angle", [0.0, 17.0, 45.0, -100.0])
def test_a_turned_box_holds_its_pixels_tightly(angle: float) -> None:
    window = Window(height=200, width=200, angle=angle)
    placement = Placement.of(window, (200, 200), None, (True, False))
    mask = np.zeros((200, 200), np.uint8)
    mask[70:120, 60:150] = 1
    rows, columns = NearestPixels.of(placement).take(mask, 0).nonzero()
    found = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
    (box,) = read(Boxes("b", max_boxes=1), [(60, 70, 150, 120)], placement)["boxes"]
    assert np.abs(box - found).max() < 1.5


def whole(image: tuple[int, int]) -> Placement:
    return Placement.of(None, image, None, (False, False))


def test_boxes_stay_as_they_are_in_whole_images() -> None:
    boxes = [(0, 0, 50, 40), (10.25, 3.5, 11.5, 4.5), (49, 39, 50, 40)]
    sample = read(Boxes("b", max_boxes=5, min_visible=1.0), boxes, whole((40, 50)))
    np.testing.assert_array_equal(sample["boxes"][:3], np.asarray(boxes, np.float32))
    assert sample["num_boxes"] == 3


def test_rounding_drops_no_box_that_is_wholly_visible() -> None:
    for row in range(300):
        geometry = Geometry(resize=(37, 91), flip="hv")
        placement = geometry.placement(None, (61, 77), geometry.draw_flips(SEED, 0, row))
        boxes = [(0, 0, 77, 61), (0, 3, 5, 61), (70, 0, 77, 9)]
        assert read(Boxes("b", max_boxes=3, min_visible=1), boxes, placement)["num_boxes"] == 3


@pytest.mark.parametrize(
    ("box", "words"),
    [
        ((5, 5, 4, 9), r"box 1 \(5, 5, 4, 9\).*inverted.*x2"),
        ((5, 9, 8, 5), "inverted"),
        ((math.nan, 0, 1, 1), r"box 1 \(nan, 0, 1, 1\).*finite"),
        ((0, 0, math.inf, 1), "finite"),
        ((-1e300, -1e300, 1e300, 1e300), r"box 1 \(-1e\+300, .*\) .*beyond 1e\+09"),
        ((-1.7e308, 0, 1.7e308, 9), "beyond"),
        ((50, 0, 60, 9), "outside .*40x50"),
        ((0, -9, 5, 0), "outside"),
        ((-9, 0, 0, 5), "outside"),
        ((0, 40, 5, 60), "outside"),
    ],
)
def test_bad_boxes_are_named(box: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read(Boxes("b", max_boxes=9), [(1, 1, 2, 2), box], whole((40, 50)))


@pytest.mark.parametrize("side", [1e4, 1e9])
@pytest.mark.parametrize("angle", [0.0, 30.0])
def test_a_large_box_that_covers_the_image_stays(side: float, angle: float) -> None:
    window = Window(height=30, width=30, angle=angle)
    placement = Placement.of(window, (40, 50), None, (False, False))
    sample = read(Boxes("b", max_boxes=1), [(-side, -side, side, side)], placement)
    assert sample["num_boxes"] == 1
    assert sample["boxes"].tolist() == [[0, 0, 30, 30]]


def test_boxes_without_area_are_dropped() -> None:
    for least in (0, 1.0):
        target = Boxes("b", max_boxes=9, min_area=least)
        sample = read(target, [(3, 3, 3, 9), (4, 4, 8, 4), (1, 1, 9, 9)], whole((40, 50)))
        assert sample["num_boxes"] == 1


@pytest.mark.parametrize(
    ("target", "boxes", "labels", "words"),
    [
        (Boxes("b", max_boxes=2), [(1, 1, 5, 5)] * 3, (), "3 boxes.*max_boxes is 2"),
        (Boxes("b", "l", max_boxes=3), [(1, 1, 5, 5)] * 3, [1, 2], "'l' has 2 labels for 3"),
        (Boxes("b", max_boxes=3), np.ones((2, 5)), (), "boxes of 5 numbers"),
    ],
)
def test_too_many_boxes_or_labels(target: Boxes, boxes: Any, labels: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read(target, boxes, whole((40, 50)), labels)


def table(**columns: Any) -> pa.Table:
    return pa.table({"path": ["a", "b"], **columns})


def test_max_boxes_is_that_of_the_index() -> None:
    boxes = [[[1, 2, 3, 4.0]] * 7, None]
    fitted = Boxes("b").fitted(table(b=boxes))
    assert fitted.max_boxes == 7
    assert pickle.loads(pickle.dumps(fitted)) == fitted
    assert Boxes("b", max_boxes=2).fitted(table(b=boxes)).max_boxes == 2
    assert Boxes("b").fitted(table(b=[[], None])).max_boxes == 1


GOOD: Any = [[[1, 2, 3, 4]], []]


@pytest.mark.parametrize(
    ("target", "columns", "error", "words"),
    [
        (Boxes("b"), {"c": GOOD}, KeyError, "'b'"),
        (Boxes("b"), {"b": [[1, 2, 3, 4], []]}, TypeError, "'b'.*list of boxes"),
        (Boxes("b"), {"b": ["[[1, 2, 3, 4]]", "[]"]}, TypeError, "'b'.*list of boxes.*json.loads"),
        (Boxes("b", "l"), {"b": GOOD, "l": ["[1]", "[]"]}, TypeError, "'l'.*json.loads"),
        (Boxes("b", "l"), {"b": GOOD, "l": [["cat"], []]}, TypeError, "'l'.*list of integers"),
        (Boxes("b", size="s"), {"b": GOOD, "b_size": [[40, 50], None]}, KeyError, "'s'"),
        (Boxes("b"), {"b": GOOD, "b_size": [40, 50]}, TypeError, "'b_size'.*list of integers"),
    ],
)
def test_columns_must_hold_lists(
    target: Boxes, columns: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        target.fitted(table(**columns))


def test_boxes_are_for_images_of_the_size_that_a_column_gives() -> None:
    """Of a table of one's own; by default the column is named after that of the boxes."""
    boxes: Any = [[[1, 2, 3, 4.0]], None]
    sizes: Any = [[40, 50], None]
    assert Boxes("b").fitted(table(b=boxes)).size is None
    for target, columns in (
        (Boxes("b"), table(b=boxes, b_size=sizes)),
        (Boxes("b", size="s"), table(b=boxes, s=sizes)),
        (Boxes("b", size="s"), table(b=boxes, s=sizes, b_size=[[9, 9], None])),
    ):
        fitted = target.fitted(columns)
        of_image = {"b": np.array(boxes[0]), fitted.columns[-1]: np.array([40, 50])}
        assert fitted.read("boxes", of_image, whole((40, 50)))["num_boxes"] == 1
        for image in ((50, 40), (80, 100), (40, 51)):
            with pytest.raises(ValueError, match=f"{image[0]}x{image[1]} .*40x50"):
                fitted.read("boxes", of_image, whole(image))
        unknown = of_image | {fitted.columns[-1]: np.zeros(0, np.int64)}
        assert fitted.read("boxes", unknown, whole((50, 40)))["num_boxes"] == 1
    values = {"b": np.array(boxes[0]), "s": np.array([3, 40, 50])}
    with pytest.raises(ValueError, match="'s' has 3 numbers"):
        Boxes("b", size="s", max_boxes=1).read("boxes", values, whole((40, 50)))


def test_labels_must_fit_int64() -> None:
    def of(label: int) -> pa.Table:
        return table(b=GOOD, l=pa.array([[label], None], pa.large_list(pa.uint64())))

    assert Boxes("b", "l").fitted(of(2**63 - 1)).max_boxes == 1
    with pytest.raises(ValueError, match=r"'l'.*9223372036854775808"):
        Boxes("b", "l").fitted(of(2**63))


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("max_boxes", 0),
        ("max_boxes", 2.5),
        ("max_boxes", True),
        ("min_area", -1),
        ("min_area", True),
        ("min_visible", 1.5),
        ("min_visible", True),
        ("labels", 3),
    ],
)
def test_bad_settings(setting: str, value: Any) -> None:
    settings: dict[str, Any] = {setting: value}
    with pytest.raises(ValueError, match=f"{setting} must be.*{value}"):
        Boxes("b", **settings)
