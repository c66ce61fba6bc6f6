"""Where windows are drawn: everywhere alike, and each number independent of the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from readers.sampling.geometry import Geometry
from readers.window import Window

COUNT = 6000
IMAGE = 40, 60
CROP = 5, 7
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "grid": {"grid": (5, 4)},
    "may reach outside": {"outside": "fill"},
    "resized": {"resize_shorter": 40},
    "turned": {"rotate": 30.0, "zoom": (0.5, 2.0)},
}


def drawn(**settings: Any) -> tuple[list[Window], NDArray[np.int64]]:
    """Return the windows of many rows, and their flips, shape (rows, 2)."""
    geometry = Geometry(crop=CROP, window="random", flip="hv", **settings)
    windows = [geometry.draw_window(3, 1, row) for row in range(COUNT)]
    flips = [geometry.draw_flips(3, 1, row) for row in range(COUNT)]
    return [window for window in windows if window is not None], np.array(flips, np.int64)


@pytest.mark.parametrize("kind", KINDS)
def test_windows_are_anywhere(kind: str) -> None:
    windows, flips = drawn(**KINDS[kind])
    places = np.array([[part[0] for part in one.part(*IMAGE)] for one in windows])
    for axis, (size, crop) in enumerate(zip(IMAGE, CROP, strict=True)):
        step = KINDS[kind].get("grid", (1, 1))[axis]
        starts = {*range(0, size - crop + 1, step), size - crop}
        values, counts = np.unique(places[:, axis], return_counts=True)
        assert set(values) == starts
        assert stats.chisquare(counts).pvalue > 1e-3
    numbers = [places, flips]
    if kind == "turned":
        numbers.append(np.array([(one.angle, np.log2(one.zoom)) for one in windows]))
        for column, scale in zip(numbers[-1].T, (30, 1), strict=True):
            assert stats.kstest(column, stats.uniform(-scale, 2 * scale).cdf).pvalue > 1e-3
    ranks = stats.spearmanr(np.hstack(numbers)).statistic
    assert np.abs(ranks - np.eye(len(ranks))).max() < 4.5 / np.sqrt(COUNT)


@pytest.mark.parametrize("probability", [0.5, 0.2, 0.0, 1.0])
@pytest.mark.parametrize(("flip", "axes"), [("", ()), ("h", (0,)), ("v", (1,)), ("hv", (0, 1))])
def test_flips_are_as_likely_as_asked(flip: Any, axes: tuple[int, ...], probability: float) -> None:
    """In order (left-right, up-down)."""
    geometry = Geometry(flip=flip, flip_probability=probability)
    flips = np.array([geometry.draw_flips(3, 1, row) for row in range(COUNT)])
    for axis in range(2):
        share = probability if axis in axes else 0.0
        assert stats.binomtest(int(flips[:, axis].sum()), COUNT, share).pvalue > 1e-3
    if flip == "hv" and 0 < probability < 1:
        assert abs(np.corrcoef(flips.T)[0, 1]) < 4.5 / np.sqrt(COUNT)
