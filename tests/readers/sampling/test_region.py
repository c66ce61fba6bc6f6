"""Random regions against the published algorithm, drawn by NumPy's generator."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from strategies import fractions

from readers.sampling.draws import ATTEMPTS, Draws, RandomPairs
from readers.sampling.geometry import ASPECT_RATIOS, Geometry
from readers.sampling.region import RandomRegion, ScaledWindow

COUNT = 4000
sides = st.integers(1, 5000)


def published(
    random: np.random.Generator,
    height: int,
    width: int,
    area: tuple[float, float],
    ratio: tuple[float, float],
) -> tuple[int, int, int, int]:
    """Return (y, x, height, width) as the documentation of RandomResizedCrop describes it.

    A share of the area and the logarithm of the ratio are drawn uniformly until the region fits,
    ten times at most; else it is the largest in the middle whose ratio is in bounds.
    """
    for _ in range(10):
        pixels = height * width * random.uniform(*area)
        aspect = math.exp(random.uniform(math.log(ratio[0]), math.log(ratio[1])))
        w, h = round(math.sqrt(pixels * aspect)), round(math.sqrt(pixels / aspect))
        if 0 < w <= width and 0 < h <= height:
            return int(random.integers(height - h + 1)), int(random.integers(width - w + 1)), h, w
    own = width / height
    h, w = height, width
    if own < ratio[0]:
        h = round(width / ratio[0])
    elif own > ratio[1]:
        w = round(height * ratio[1])
    return (height - h) // 2, (width - w) // 2, h, w


def drawn(row: int, height: int, width: int, geometry: Geometry) -> tuple[int, int, int, int]:
    region = geometry.draw_window(3, 0, row)
    assert region is not None
    window = region.within(height, width)
    return *window.place(height, width), window.height, window.width


MEASURES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "area": lambda box: box[:, 2] * box[:, 3],
    "ratio": lambda box: np.log(box[:, 3] / box[:, 2]),
    "middle y": lambda box: box[:, 0] + box[:, 2] / 2,
    "middle x": lambda box: box[:, 1] + box[:, 3] / 2,
    "corner": lambda box: box[:, 0] + box[:, 1],
    "height": lambda box: box[:, 2],
}


@pytest.mark.parametrize(
    ("size", "area", "ratio"),
    [
        ((375, 500), (0.08, 1.0), ASPECT_RATIOS),
        ((1000, 300), (0.08, 1.0), ASPECT_RATIOS),  # large regions do not fit
        ((2000, 200), (0.5, 1.0), ASPECT_RATIOS),  # none fits: the middle
        ((700, 900), (0.3, 0.4), (0.5, 3.0)),
    ],
)
def test_regions_are_distributed_as_published(
    size: tuple[int, int], area: tuple[float, float], ratio: tuple[float, float]
) -> None:
    geometry = Geometry(random_area=area, random_aspect_ratio=ratio)
    random = np.random.default_rng(5)
    found = np.array([drawn(row, *size, geometry) for row in range(COUNT)])
    expected = np.array([published(random, *size, area, ratio) for _ in range(COUNT)])
    for name, measure in MEASURES.items():
        # One chance of 10**4 for each of these to fail wrongly, but the draws are always the same.
        assert stats.ks_2samp(measure(found), measure(expected)).pvalue > 1e-4, name


def test_another_distribution_is_noticed() -> None:
    """The test above fails for a ratio that is uniform, in place of its logarithm."""
    random = np.random.default_rng(5)
    geometry = Geometry(random_area=(0.08, 0.3), random_aspect_ratio=(0.5, 3.0))
    found = np.array([drawn(row, 900, 900, geometry) for row in range(COUNT)])
    ratios = random.uniform(0.5, 3.0, COUNT)
    assert stats.ks_2samp(MEASURES["ratio"](found), np.log(ratios)).pvalue < 1e-9


def test_where_none_fits_the_region_is_the_middle() -> None:
    geometry = Geometry(random_area=(0.9, 1.0))
    assert drawn(0, 1000, 100, geometry) == ((1000 - 133) // 2, 0, 133, 100)
    assert drawn(0, 100, 1000, geometry) == (0, (1000 - 133) // 2, 100, 133)
    assert drawn(0, 1, 1, geometry) == (0, 0, 1, 1)


@given(
    sides,
    sides,
    st.tuples(st.floats(1e-6, 1), st.floats(1e-6, 1)),
    st.tuples(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3)),
    st.lists(st.tuples(fractions, fractions), max_size=10),
    fractions,
    fractions,
)
def test_regions_are_inside(
    height: int,
    width: int,
    area: tuple[float, float],
    ratio: tuple[float, float],
    attempts: list[tuple[float, float]],
    y: float,
    x: float,
) -> None:
    region = RandomRegion(
        height=1,
        width=1,
        y=y,
        x=x,
        area=(min(area), max(area)),
        aspect_ratio=(min(ratio), max(ratio)),
        attempts=attempts,
    )
    window = region.within(height, width)
    top, left = window.place(height, width)
    assert window.height >= 1
    assert window.width >= 1
    assert 0 <= top <= height - window.height
    assert 0 <= left <= width - window.width


@given(st.integers(0, 2**64 - 1), st.integers(0, 9), st.integers(0, 2**40))
def test_pairs_are_pure_and_not_those_of_other_rows(seed: int, epoch: int, row: int) -> None:
    pairs = list(RandomPairs(seed, epoch, row))
    assert len(pairs) == ATTEMPTS
    others = [list(RandomPairs(seed, epoch, row + 1)), list(RandomPairs(seed, epoch + 1, row))]
    Draws.of(seed, epoch, row)
    assert list(RandomPairs(seed, epoch, row)) == pairs
    numbers = {number for many in (pairs, *others) for pair in many for number in pair}
    assert len(numbers) == 3 * 2 * ATTEMPTS
    assert numbers.isdisjoint({Draws.of(seed, epoch, row).y, Draws.of(seed, epoch, row).x})


@pytest.mark.parametrize(
    ("size", "shorter", "crop", "expected"),
    [
        # As torchvision's Resize and CenterCrop: the longer side is rounded down.
        ((375, 500), 256, (224, 224), (256, 341)),
        ((500, 375), 256, (224, 224), (341, 256)),
        ((100, 333), 7, (5, 5), (7, 23)),
        ((224, 224), 224, (224, 224), (224, 224)),
    ],
)
def test_the_part_of_a_resized_image(
    size: tuple[int, int], shorter: int, crop: tuple[int, int], expected: tuple[int, int]
) -> None:
    window = ScaledWindow(height=crop[0], width=crop[1], shorter=shorter)
    for (start, stop), side, resized, pixels in zip(
        window.part(*size), size, expected, crop, strict=True
    ):
        first = int(round((resized - pixels) / 2.0))  # noqa: RUF046  torchvision's words
        assert start == pytest.approx(first * side / resized)
        assert stop == pytest.approx((first + pixels) * side / resized)


@given(st.integers(1, 900), st.integers(1, 900), st.data())
def test_the_part_read_for_a_scaled_window(height: int, width: int, data: st.DataObject) -> None:
    shorter = data.draw(st.integers(1, 600))
    crop = [data.draw(st.integers(1, shorter)) for _ in range(2)]
    y, x = data.draw(st.tuples(fractions, fractions))
    window = ScaledWindow(height=crop[0], width=crop[1], y=y, x=x, shorter=shorter)
    box = window.within(height, width)
    places = zip(
        box.place(height, width), (box.height, box.width), window.part(height, width), strict=True
    )
    for (first, count, (start, stop)), size, pixels in zip(
        places, (height, width), crop, strict=True
    ):
        reach = max(1.0, (stop - start) / pixels)
        assert 0 <= first <= max(0, start - reach) + 1e-6
        assert min(size, stop + reach) - 1e-6 <= first + count <= size
        assert count <= stop - start + 2 * reach + 2


def test_a_window_larger_than_the_resized_image() -> None:
    window = ScaledWindow(height=10, width=30, shorter=10)
    with pytest.raises(ValueError, match=r"crop 10x30 .*20x50, resized to 10x25"):
        window.within(20, 50)
