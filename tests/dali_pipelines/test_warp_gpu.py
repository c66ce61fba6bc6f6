"""The warp of the GPU, its PTX run on the CPU, against that of the CPU."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from gpu_offline.device import Device
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dali_pipelines.graph.gpu import operators as operators_gpu
from dali_pipelines.kernels.resample import warp_cuda_table
from dali_pipelines.kernels.resample.prefilter_cuda import ROW_TILE
from dali_pipelines.kernels.resample.warp import warp
from dali_pipelines.kernels.resample.warp_cuda_table import blocks
from dali_pipelines.stretch import Stretch

Image = NDArray[np.float32]
PLAIN = Stretch()
CURVES = (
    PLAIN,
    Stretch(kind="asinh", a=100, mean=1, std=2),
    Stretch(kind="sqrt", clip=(0, 50)),
    Stretch(kind="log1p", clip=(0, 90), unit=3),
    Stretch(kind="signed_log1p", unit=9),
)
SPECIAL = (
    (-3, math.nan, -math.inf, -math.inf),
    (1, 2, 0, 0),
    (1, 2, 0, -math.inf),
    (0, 0, -math.inf, 5),
)
ORDERS = (1, 3)


def sample(
    shape: tuple[int, int],
    matrix: Any,
    size: tuple[int, int],
    *,
    stretch: Stretch = PLAIN,
    whole: bool = True,
    flip: tuple[int, int] = (0, 0),
    reduce: int = 1,
    gain: float = 0.5,
    special: tuple[float, ...] = SPECIAL[0],
    holes: float = 0.01,
    seed: int = 0,
) -> tuple[Any, ...]:
    random = np.random.default_rng(seed)
    image = random.poisson(40, (*shape, 1)).astype(np.float32) - 30
    image[random.random(image.shape) < holes] = np.nan
    frame = (0, 0, *shape) if whole else (5, 5, 80, 80)
    return (
        image,
        np.zeros((*size, 0), np.uint8),
        np.array(matrix, np.float64),
        np.array([reduce]),
        np.array([gain]),
        stretch.parameters(),
        np.array(special, np.float64),
        np.array(frame),
        np.array(flip, np.int32),
    )


TURNED = [[0.95, 0.3, -1.5], [-0.3, 0.95, 2.5]]


@pytest.mark.parametrize("order", ORDERS)
def test_as_the_cpu(gpu: Device, order: int) -> None:
    samples = [
        sample((60, 73), [[1, 0, 0.25], [0, 1, -1.5]], (61, 59)),
        sample((20, 23), [[1, 0, 0], [0, 1, 0]], (20, 23)),  # up to the very edge
        sample((20, 300), [[1, 0, 1], [0, 1, 0]], (20, 290)),  # several tiles of the prefilters
        sample((140, 30), [[1, 0, 1], [0, 1, 0]], (130, 30)),
        sample((24, 30), [[2, 0, 0.5], [0, 2, 0.5]], (12, 15), reduce=2, holes=0.5),  # many ties
        sample((20, 23), TURNED, (12, 25), stretch=CURVES[1], special=SPECIAL[1], flip=(1, 0)),
        sample((20, 23), TURNED, (14, 9), whole=False, reduce=2, flip=(0, 1)),
        sample((9, 9), [[-1.2, 0, 8], [0, -1.2, 8]], (5, 7), special=SPECIAL[2], reduce=3),
    ]
    assert check(gpu, samples, order) > 0.9
    for arrays in samples:
        expected = on_cpu(arrays, order)
        assert np.mean(expected != expected[0, 0]) > 0.05


@pytest.mark.parametrize("size", [(30, 26), (33, 24), (30, 24)])
def test_only_whole_frames_are_clipped(gpu: Device, size: tuple[int, int]) -> None:
    """An image that is as high or as wide as its frame may still be a window of it."""
    image, *others, _frame, flip = sample((30, 24), [[1, 0, 0.5], [0, 1, 0.5]], (29, 23), holes=0)
    image[:] = 100 * (np.arange(24) > 11)[:, None]  # the spline overshoots
    arrays = (image, *others, np.array((0, 0, *size)), flip)
    highest = on_cpu(arrays, 3).max()
    assert highest == 50 if size == image.shape[:2] else highest > 51
    check(gpu, [arrays], 3)


@pytest.mark.parametrize(("most", "launches"), [(10**6, 1), (850, 2), (1, 3)])
def test_launches_of_a_batch(
    gpu: Device, monkeypatch: pytest.MonkeyPatch, most: int, launches: int
) -> None:
    """One, if their scratch arrays are not too large together."""
    samples = [sample(shape, TURNED, (20, 20)) for shape in ((20, 20), (30, 15), (9, 40))]
    monkeypatch.setattr(operators_gpu, "PIXELS", most)
    gpu.counts.clear()
    check(gpu, samples, 3)
    assert {name: counts["launches"] for name, counts in gpu.counts.items()} == dict.fromkeys(
        ("prefilter_rows", "set_limits", "prefilter_columns", "warp"), launches
    )


def test_a_launch_has_no_more_images_than_a_gpu_takes(
    gpu: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warp_cuda_table, "MOST_BLOCKS", 2)
    gpu.counts.clear()
    check(gpu, [sample((12, 12), TURNED, (9, 9), seed=seed) for seed in range(5)], 1)
    assert gpu.counts["warp"]["launches"] == 3


def test_a_batch_of_none(gpu: Device) -> None:
    """A graph may divide batches, and leave none for a part of it."""
    gpu.counts.clear()
    assert gpu.decode([], "float32", (0, 0), ((0.0, 1.0),)) == ([], [])
    assert not gpu.counts


def test_an_image_of_too_many_rows() -> None:
    """Of the kernels, that of the lowest tiles is the first that could not be launched."""
    assert blocks(ROW_TILE, [(524280, 1)]) == (1, 65535, 1)
    with pytest.raises(ValueError, match="at most 524280 rows, got one of 524281"):
        blocks(ROW_TILE, [(3, 3), (524281, 1)])


@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: str(curve.kind))
def test_every_curve(gpu: Device, curve: Stretch) -> None:
    arrays = sample((40, 40), TURNED, (40, 40), stretch=curve)
    assert check(gpu, [arrays], 1) > 0.9


@pytest.mark.parametrize("holes", [0, 0.01, 0.5, 1])
@pytest.mark.parametrize("order", ORDERS)
def test_holes(gpu: Device, order: int, holes: float) -> None:
    samples = [
        sample((50, 40), TURNED, (50, 40), holes=holes, special=special) for special in SPECIAL
    ]
    assert check(gpu, samples, order) > 0.9


@pytest.mark.parametrize("value", [np.inf, -np.inf, 3.4e38, -3.4e38])
@pytest.mark.parametrize("order", ORDERS)
def test_infinite_pixels(gpu: Device, order: int, value: float) -> None:
    """The spline is NaN around what it cannot hold, whatever the range of the image."""
    samples = []
    for whole in (True, False):
        for special in SPECIAL[:2]:
            matrix = [[1, 0, 0.3], [0, 1, 0.3]]
            arrays = sample((60, 57), matrix, (58, 55), whole=whole, special=special, holes=0)
            arrays[0][20, 20] = value
            samples.append(arrays)
    assert check(gpu, samples, order) > 0.7
    if value > 0 and order == 3:
        assert all(np.isnan(on_cpu(arrays, 3)).any() for arrays in samples[::2])


# Not the smallest floats: of an image of one pixel they are outside, but for a rounding.
angles, shifts = (st.floats(-most, most).map(lambda value: round(value, 6)) for most in (4, 10))


@given(
    shape=st.tuples(st.integers(1, 70), st.integers(1, 70)),
    size=st.tuples(st.integers(1, 50), st.integers(1, 50)),
    angle=angles,
    scale=st.sampled_from((1, 0.5, 1.7, 3)),
    shift=st.tuples(shifts, shifts),
    whole=st.booleans(),
    reduce=st.integers(1, 3),
    seed=st.integers(0, 2**32),
)
def test_any_turn(
    gpu: Device,
    shape: tuple[int, int],
    size: tuple[int, int],
    angle: float,
    scale: float,
    shift: tuple[float, float],
    whole: bool,
    reduce: int,
    seed: int,
) -> None:
    cos, sin = math.cos(angle) * scale, math.sin(angle) * scale
    matrix = [[cos, sin, shift[0]], [-sin, cos, shift[1]]]
    arrays = sample(shape, matrix, size, whole=whole, reduce=reduce, seed=seed)
    for order in ORDERS:
        check(gpu, [arrays], order)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300, -1e300])
@pytest.mark.parametrize("place", range(6))
def test_a_senseless_matrix_does_no_harm(gpu: Device, place: int, value: float) -> None:
    matrix = np.eye(2, 3)
    matrix.flat[place] = value
    arrays = sample((30, 30), matrix, (30, 30))
    for order in ORDERS:
        check(gpu, [arrays], order)


def check(gpu: Device, samples: list[tuple[Any, ...]], order: int) -> float:
    """Compare all pixels that have a definite value; return their share."""
    shares = []
    for arrays, found in zip(samples, gpu.warp(samples, order), strict=True):
        expected = on_cpu(arrays, order)
        clear = is_clear(arrays, order, expected)
        assert found.shape == (1, *expected.shape)
        # Products are summed in another order, and a CPU may round a sum of products once.
        np.testing.assert_allclose(found[0][clear], expected[clear], rtol=2e-5, atol=2e-5)
        shares.append(clear.mean())
    return float(np.mean(shares))


def is_clear(arrays: tuple[Any, ...], order: int, expected: Image) -> NDArray[np.bool_]:
    """Return where no rounding decides: at the edge of the frame, or where half is a hole."""
    image, grid, matrix, *others = arrays
    clear = np.full(expected.shape, True)
    for x, y in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
        moved = matrix + 1e-7 * np.array([[0, 0, x], [0, 0, y]])
        near = on_cpu((image, grid, moved, *others), order)
        clear &= np.isclose(near, expected, rtol=1e-3, atol=1e-3, equal_nan=True)
    return clear


def on_cpu(arrays: tuple[Any, ...], order: int) -> Image:
    image, grid, matrix, reduce, gain, stretch, special, frame, flip = arrays
    out = np.full(grid.shape[:2], 99, np.float32)
    values, whole = special.astype(np.float32), tuple(frame[2:]) == image.shape[:2]
    numbers = (order, reduce[0], values, whole, gain[0])
    warp(out, image[:, :, 0], matrix, *numbers, stretch, flip)
    return out
