"""The warp of the GPU in numba's CUDA simulator, against that of the CPU."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from simulation import simulated

from dali_pipelines.kernels.resample.warp import warp
from dali_pipelines.stretch import Stretch

PLAIN = Stretch()
CURVE = Stretch(kind="asinh", a=100, mean=1, std=2)


def sample(
    shape: tuple[int, int],
    matrix: list[list[float]],
    size: tuple[int, int],
    *,
    stretch: Stretch = PLAIN,
    frame: tuple[int, ...] | None = None,
    flip: tuple[int, int] = (0, 0),
    reduce: int = 1,
    gain: float = 0.5,
    special: tuple[float, ...] = (-3, math.nan, -math.inf, -math.inf),
) -> tuple[Any, ...]:
    image = np.random.default_rng(size[0]).poisson(40, (*shape, 1)).astype(np.float32) - 30
    image[2:4, 3:5] = np.nan
    return (
        image,
        np.zeros((*size, 0), np.uint8),
        np.array(matrix),
        np.array([reduce]),
        np.array([gain]),
        stretch.parameters(),
        np.array(special, np.float64),
        np.array(frame or (0, 0, *shape)),
        np.array(flip, np.int32),
    )


TURNED = [[0.95, 0.3, -1.5], [-0.3, 0.95, 2.5]]
SAMPLES = [
    sample((20, 23), [[1, 0, 0.25], [0, 1, -1.5]], (21, 19)),
    sample((20, 23), TURNED, (12, 25), stretch=CURVE, special=(1, 2, 0, 0), flip=(1, 0)),
    sample(
        (20, 23), TURNED, (14, 9), frame=(5, 5, 80, 80), reduce=2, flip=(0, 1)
    ),  # part of a frame
    sample((9, 9), [[-1.2, 0, 8], [0, -1.2, 8]], (5, 7), special=(1, 2, 0, -math.inf), reduce=3),
]


def test_as_the_cpu() -> None:
    batches = simulated("warp", [(SAMPLES, order) for order in (1, 3)])
    for order, batch in zip((1, 3), batches, strict=True):
        for arrays, found in zip(SAMPLES, batch, strict=True):
            expected = on_cpu(arrays, order)
            assert found.shape == (1, *expected.shape)
            assert np.mean(expected != expected[0, 0]) > 0.05
            # Products are summed in another order, and a CPU may round a sum of products once.
            np.testing.assert_allclose(found[0], expected, rtol=0, atol=2e-5)


def on_cpu(arrays: tuple[Any, ...], order: int) -> Any:
    image, grid, matrix, reduce, gain, stretch, special, frame, flip = arrays
    out = np.full(grid.shape[:2], 99, np.float32)
    whole = tuple(frame[2:]) == image.shape[:2]
    warp(
        out,
        image[:, :, 0],
        matrix,
        order,
        reduce[0],
        special.astype(np.float32),
        whole,
        gain[0],
        stretch,
        flip,
    )
    return out
