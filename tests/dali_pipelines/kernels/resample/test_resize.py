"""The kernel against DALI's own resize, which runs on the GPU in its place."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from nvidia.dali import Pipeline, fn, types
from PIL import Image

from dali_pipelines.kernels.resample.filters import CUBIC, LANCZOS, LINEAR
from dali_pipelines.kernels.resample.resize import resize

DALIS = {LINEAR: types.INTERP_LINEAR, CUBIC: types.INTERP_CUBIC, LANCZOS: types.INTERP_LANCZOS3}


Part = tuple[float, float, float, float]


def dali_resize(
    image: np.ndarray, size: tuple[int, int], kind: int = LINEAR, part: Part | None = None
) -> np.ndarray:
    pipeline = Pipeline(batch_size=1, num_threads=1, device_id=None, prefetch_queue_depth=1)
    with pipeline:
        node = fn.external_source(lambda: [image], layout="HWC", batch=True)
        options: dict[str, Any] = {"dtype": types.FLOAT, "interp_type": DALIS[kind]}
        if part is not None:
            options |= {"roi_start": part[:2], "roi_end": part[2:]}
        pipeline.set_outputs(fn.resize(node, size=size, **options))
    pipeline.build()
    return np.array(pipeline.run()[0][0])


def resized(
    image: np.ndarray, size: tuple[int, int], kind: int = LINEAR, part: Part | None = None
) -> np.ndarray:
    finish = np.tile(np.array((0, 1), np.float32), (image.shape[2], 1))
    return finished(image, size, (0, 0), finish, kind, part)


def finished(
    image: np.ndarray,
    size: tuple[int, int],
    flip: tuple[int, int],
    finish: np.ndarray,
    kind: int = LINEAR,
    part: Part | None = None,
) -> np.ndarray:
    whole = (0.0, 0.0, float(image.shape[0]), float(image.shape[1]))
    out = np.full((image.shape[2], *size), np.nan, np.float32)
    resize(out, image, part or whole, np.array(flip, np.int32), finish, kind)
    return out.transpose(1, 2, 0)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("flip", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_flips_and_normalises(channels: int, flip: tuple[int, int]) -> None:
    image = np.random.default_rng(0).integers(0, 256, (31, 47, channels), np.uint8)
    mean, factor = np.arange(channels, dtype=np.float32) + 7, np.float32(0.25)
    finish = np.stack((mean, np.full(channels, factor)), axis=1)
    across, down = (-1 if flipped else 1 for flipped in flip)
    expected = (resized(image, (20, 13))[::down, ::across] - mean) * factor
    np.testing.assert_allclose(finished(image, (20, 13), flip, finish), expected, rtol=1e-6)


SIZES = pytest.mark.parametrize(
    ("source", "target"),
    [
        ((213, 320), (56, 56)),
        ((213, 320), (212, 319)),
        ((64, 64), (32, 32)),
        ((31, 47), (31, 20)),
        ((20, 30), (50, 45)),
        ((1, 1), (3, 2)),
        ((9, 1), (1, 5)),
    ],
)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("channels", [1, 3, 4])
@SIZES
def test_equals_dali(
    dtype: type, channels: int, source: tuple[int, int], target: tuple[int, int]
) -> None:
    rng = np.random.default_rng(0)
    image: np.ndarray = rng.integers(0, 256, (*source, channels)).astype(dtype)
    # DALI rounds its filter table a little: 0.03 of 255 was seen where images grow.
    np.testing.assert_allclose(resized(image, target), dali_resize(image, target), atol=0.05)


@pytest.mark.parametrize("kind", [CUBIC, LANCZOS])
@pytest.mark.parametrize("channels", [1, 3])
@SIZES
def test_other_filters_equal_dali(
    kind: int, channels: int, source: tuple[int, int], target: tuple[int, int]
) -> None:
    image = np.random.default_rng(0).integers(0, 256, (*source, channels)).astype(np.uint8)
    found, expected = resized(image, target, kind), dali_resize(image, target, kind)
    np.testing.assert_allclose(found, expected, atol=0.3)


PILLOWS = {
    LINEAR: Image.Resampling.BILINEAR,
    CUBIC: Image.Resampling.BICUBIC,
    LANCZOS: Image.Resampling.LANCZOS,
}


@pytest.mark.parametrize("kind", PILLOWS)
@pytest.mark.parametrize("target", [(21, 40), (64, 97), (150, 131)])
def test_the_filters_are_those_of_pillow(kind: int, target: tuple[int, int]) -> None:
    """Away from the edges, beyond which Pillow takes no pixels."""
    image = np.random.default_rng(0).normal(100, 30, (64, 97)).astype(np.float32)
    expected = np.asarray(Image.fromarray(image).resize(target[::-1], PILLOWS[kind]))
    found = resized(image[..., None], target, kind)[..., 0]
    reach = tuple(
        slice(edge, -edge)
        for edge in (
            1 + math.ceil((kind + 1) * max(1, new / old))
            for new, old in zip(target, (64, 97), strict=True)
        )
    )
    np.testing.assert_allclose(found[reach], expected[reach], atol=1e-3)


PARTS: list[tuple[Part, tuple[int, int]]] = [
    ((0.0, 0.0, 60.0, 90.0), (20, 30)),
    ((10.25, 7.5, 50.75, 80.125), (13, 24)),
    ((0.0, 70.4, 20.3, 90.0), (9, 8)),
    ((20.6, 0.0, 60.0, 33.3), (60, 50)),
    ((30.1, 40.2, 31.4, 42.9), (7, 5)),
]


@pytest.mark.parametrize("kind", DALIS)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("part", "target"), PARTS)
def test_a_part_equals_dali(kind: int, channels: int, part: Part, target: tuple[int, int]) -> None:
    image = np.random.default_rng(0).integers(0, 256, (60, 90, channels), np.uint8)
    found, expected = resized(image, target, kind, part), dali_resize(image, target, kind, part)
    np.testing.assert_allclose(found, expected, atol=0.05 if kind == LINEAR else 0.3)


@pytest.mark.parametrize("kind", PILLOWS)
@pytest.mark.parametrize(("part", "target"), PARTS[1:2] + PARTS[4:])
def test_a_part_equals_pillow(kind: int, part: Part, target: tuple[int, int]) -> None:
    """Inside the image, where nothing lies beyond the border."""
    image = np.random.default_rng(0).normal(size=(60, 90)).astype(np.float32)
    box = (part[1], part[0], part[3], part[2])
    expected = np.asarray(Image.fromarray(image).resize(target[::-1], PILLOWS[kind], box))
    inner = (slice(1, -1), slice(2, -2))  # lanczos reaches three pixels of the output
    found = resized(image[..., None], target, kind, part)[..., 0]
    np.testing.assert_allclose(found[inner], expected[inner], atol=1e-4)


@pytest.mark.parametrize("target", [(21, 40), (150, 131)])
def test_bicubic_is_that_of_torchvision(target: tuple[int, int]) -> None:
    image = np.random.default_rng(0).normal(100, 30, (64, 97, 3)).astype(np.float32)
    expected = by_torch(image, target, "bicubic")
    found = resized(image, target, CUBIC)
    edge = 10 if target[0] > 64 else 3
    inner = (slice(edge, -edge), slice(edge, -edge))
    np.testing.assert_allclose(found[inner], expected[inner], atol=1e-3)


def by_torch(image: np.ndarray, size: tuple[int, int], mode: str = "bilinear") -> np.ndarray:
    """Resize by the filter of torchvision's ``Resize`` (antialias=True)."""
    node = torch.from_numpy(image.astype(np.float32)).permute(2, 0, 1)[None]
    found = F.interpolate(node, size, mode=mode, antialias=True)
    return found[0].permute(1, 2, 0).numpy()


@pytest.mark.parametrize("way", [resized, dali_resize])
def test_torchvision_differs_in_the_outermost_pixels_alone(way: Callable[..., Any]) -> None:
    """It gives the weight beyond the edge to all pixels, and DALI to that at the edge."""
    image = np.random.default_rng(0).integers(0, 256, (64, 96, 3)).astype(np.float32)
    found, torchs = way(image, (16, 24)), by_torch(image, (16, 24))
    np.testing.assert_allclose(found[1:-1, 1:-1], torchs[1:-1, 1:-1], atol=0.05)
    repeated = by_torch(np.pad(image, ((8, 8), (8, 8), (0, 0)), "edge"), (20, 28))[2:-2, 2:-2]
    np.testing.assert_allclose(found, repeated, atol=0.05)
    np.testing.assert_allclose(way(image, (80, 97)), by_torch(image, (80, 97)), atol=0.1)


def test_the_edges_of_photographs_differ_little_from_torchvision(shared_data: Path) -> None:
    paths = sorted(shared_data.glob("jpeg/*/*.jpg"))
    assert len(paths) > 20
    differences = []
    for path in paths:
        image = np.asarray(Image.open(path).convert("RGB"))
        differences.append(np.abs(resized(image, (224, 224)) - by_torch(image, (224, 224))))
    assert max(one[1:-1, 1:-1].max() for one in differences) < 0.05
    edges = [np.concatenate((one[[0, -1]], one[:, [0, -1]].swapaxes(0, 1))) for one in differences]
    assert np.mean(edges) < 1
    assert np.max(edges) < 255 / 8


@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(1, 60),
    st.integers(1, 60),
    st.floats(-9, 9),
    st.sampled_from([*DALIS]),
)
def test_a_flat_image_stays_flat(
    height: int, width: int, rows: int, columns: int, value: float, kind: int
) -> None:
    image = np.full((height, width, 3), value, np.float32)
    np.testing.assert_allclose(resized(image, (rows, columns), kind), value, rtol=1e-5, atol=1e-5)


def test_the_same_size_changes_nothing() -> None:
    image = np.random.default_rng(1).normal(size=(17, 23, 1)).astype(np.float32)
    np.testing.assert_array_equal(resized(image, (17, 23)), image)
    for kind in (CUBIC, LANCZOS):
        np.testing.assert_allclose(resized(image, (17, 23), kind), image, atol=1e-6)


def test_nan_reaches_only_pixels_that_it_has_a_weight_in() -> None:
    image = np.zeros((16, 16, 1), np.float32)
    image[8, 8] = np.nan
    found = np.isnan(resized(image, (4, 4))[..., 0])
    # The triangles of output rows 1 and 2 (2 to 9 and 6 to 13, ends included) hold pixel 8.
    np.testing.assert_array_equal(np.flatnonzero(found.any(axis=1)), [1, 2])
    assert int(found.sum()) == 4
