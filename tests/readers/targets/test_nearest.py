"""Nearest pixels against Pillow, PyTorch and SciPy, which were not written here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage
from torch.nn import functional

from readers.sampling.geometry import Geometry
from readers.sampling.placement import Placement
from readers.targets.nearest import NearestPixels
from readers.window import Window

CASES = 400
"""Drawn for each kind of geometry."""

KINDS: dict[str, dict[str, Any]] = {
    "whole": {},
    "crop": {"crop": (23, 29), "window": "random"},
    "region": {"random_area": (0.08, 1.0)},
}


def pixels(generator: np.random.Generator) -> NDArray[np.uint8]:
    height, width = generator.integers(30, 90, 2)
    return generator.integers(0, 256, (height, width), np.uint8)


def sampled(image: NDArray[Any], placement: Placement, outside: float = 0) -> NDArray[Any]:
    nearest = NearestPixels.of(placement)
    y, x, height, width = nearest.box
    return nearest.take(image[y : y + height, x : x + width], outside)


def flipped(image: NDArray[Any], flip: tuple[bool, bool]) -> NDArray[Any]:
    turned = Image.fromarray(image)
    if flip[0]:
        turned = turned.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if flip[1]:
        turned = turned.transpose(Image.Transpose.FLIP_TOP_BOTTOM)
    return np.asarray(turned)


def draw_flip(generator: np.random.Generator) -> tuple[bool, bool]:
    horizontal, vertical = generator.integers(0, 2, 2)
    return bool(horizontal), bool(vertical)


def exact_resize(image: NDArray[Any], size: tuple[int, int]) -> NDArray[Any]:
    """Resize by integers: floor((2 i + 1) * pixels / (2 * size))."""
    indices = [
        (2 * np.arange(new) + 1) * old // (2 * new)
        for old, new in zip(image.shape, size, strict=True)
    ]
    return image[np.ix_(*indices)]


def test_crops_and_flips_are_those_of_pillow() -> None:
    generator = np.random.default_rng(0)
    for row in range(CASES):
        image, flip = pixels(generator), draw_flip(generator)
        geometry = Geometry(crop=(20, 25), window="random")
        window = geometry.draw_window(3, 0, row)
        assert window is not None
        y, x = window.place(*image.shape)
        expected = np.asarray(Image.fromarray(image).crop((x, y, x + 25, y + 20)))
        found = sampled(image, geometry.placement(window, image.shape, flip))
        np.testing.assert_array_equal(found, flipped(expected, flip))
        assert found.flags.c_contiguous


@pytest.mark.parametrize("kind", KINDS)
def test_resizes_are_those_of_pillow_and_torch(kind: str) -> None:
    generator = np.random.default_rng(1)
    without_ties = 0
    for row in range(CASES):
        image, flip = pixels(generator), draw_flip(generator)
        size = int(generator.integers(5, 120)), int(generator.integers(5, 120))
        geometry = Geometry(resize=size, **KINDS[kind])
        window = geometry.draw_window(3, 0, row)
        part = image
        if window is not None:
            inner = window.within(*image.shape)
            y, x = inner.place(*image.shape)
            part = image[y : y + inner.height, x : x + inner.width]
        found = sampled(image, geometry.placement(window, image.shape, flip))
        np.testing.assert_array_equal(found, flipped(exact_resize(part, size), flip))
        tensor = torch.from_numpy(part.astype(np.float64))[None, None]
        by_torch = functional.interpolate(tensor, size, mode="nearest-exact")[0, 0].numpy()
        by_pillow = np.asarray(Image.fromarray(part).resize(size[::-1], Image.Resampling.NEAREST))
        if not _has_ties(part.shape, size):  # where they depend on how floats are rounded
            without_ties += 1
            np.testing.assert_array_equal(by_torch, exact_resize(part, size))
            np.testing.assert_array_equal(by_pillow, exact_resize(part, size))
    assert without_ties > CASES // 4


def _has_ties(shape: tuple[int, ...], size: tuple[int, int]) -> bool:
    return any(
        ((2 * np.arange(new) + 1) * old % (2 * new) == 0).any()
        for old, new in zip(shape, size, strict=True)
    )


def test_resize_shorter_is_a_window_of_the_resized_image() -> None:
    generator = np.random.default_rng(2)
    for row in range(CASES):
        image, flip = pixels(generator), draw_flip(generator)
        shorter = int(generator.integers(24, 70))
        geometry = Geometry(resize_shorter=shorter, crop=(20, 24), window="random")
        window = geometry.draw_window(3, 0, row)
        assert window is not None
        size = [shorter * side // min(image.shape) for side in image.shape]
        resized = exact_resize(image, (size[0], size[1]))
        (top, _), (left, _) = window.part(*image.shape)
        y, x = round(top * size[0] / image.shape[0]), round(left * size[1] / image.shape[1])
        found = sampled(image, geometry.placement(window, image.shape, flip))
        np.testing.assert_array_equal(found, flipped(resized[y : y + 20, x : x + 24], flip))


def test_turned_windows_are_those_of_scipy() -> None:
    generator = np.random.default_rng(3)
    compared = 0
    for row in range(CASES):
        image, flip = pixels(generator), draw_flip(generator)
        geometry = Geometry(crop=(25, 28), window="random", rotate=180, zoom=(0.4, 2.5))
        window = geometry.draw_window(3, 0, row)
        placement = geometry.placement(window, image.shape, flip)
        found = sampled(image, placement, outside=7)
        matrix = placement.matrix[::-1][:, [1, 0, 2]]  # SciPy counts (y, x)
        expected = ndimage.affine_transform(
            image, matrix[:, :2], matrix[:, 2], (25, 28), order=0, mode="grid-constant", cval=7
        )
        y, x = np.mgrid[:25, :28]
        places = placement.matrix @ np.stack((x.ravel(), y.ravel(), np.ones(x.size)))
        clear = (np.abs(places % 1 - 0.5) > 1e-5).all(axis=0).reshape(25, 28)
        np.testing.assert_array_equal(found[clear], expected[clear])
        compared += int(clear.sum())
    assert compared > 0.999 * CASES * 25 * 28


@pytest.mark.parametrize("angle", [90.0, -90.0, 180.0, 360.0])
def test_quarter_turns_lose_nothing(angle: float) -> None:
    """The grid meets the pixels, although sine and cosine are off by 1e-16."""
    image = np.random.default_rng(4).integers(0, 256, (31, 31), np.uint8)
    window = Window(height=31, width=31, angle=angle)
    placement = Placement.of(window, (31, 31), None, (False, False))
    expected = np.asarray(Image.fromarray(image).rotate(-angle))  # rows upwards
    np.testing.assert_array_equal(sampled(image, placement), expected)


def test_a_sample_that_is_outside_is_read_as_one_pixel() -> None:
    matrix = np.array([[1.0, 0, 500], [0, 1.0, -90]])
    none, zeros = np.zeros(4, np.float32), np.zeros(2, np.int32)
    placement = Placement((40, 50), (6, 8), none, zeros, matrix)
    nearest = NearestPixels.of(placement)
    assert nearest.box[2:] == (1, 1)
    assert (nearest.take(np.zeros((1, 1), np.int16), -3) == np.full((6, 8), -3)).all()


def test_large_turned_samples_are_made_in_blocks() -> None:
    image = np.random.default_rng(5).integers(0, 256, (900, 1000), np.uint8)
    window = Window(height=700, width=800, angle=33, zoom=1.1)
    placement = Placement.of(window, image.shape, None, (True, False))
    x, y = np.meshgrid(np.arange(800), np.arange(700))
    places = np.stack((x, y, np.ones_like(x)), axis=-1) @ placement.matrix.T
    columns, rows = np.floor(places + 0.5 + 2.0**-20).astype(int).transpose(2, 0, 1)
    inside = (rows >= 0) & (rows < 900) & (columns >= 0) & (columns < 1000)
    expected = np.where(inside, image[rows % 900, columns % 1000], 0)
    np.testing.assert_array_equal(sampled(image, placement), expected)
