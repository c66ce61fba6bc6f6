"""The warp against SciPy's affine_transform, which aiapy and sunpy call."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import ndimage

from dali_pipelines.kernels.resample.bspline import REACH
from dali_pipelines.kernels.resample.warp import warp
from dali_pipelines.stretch import Stretch

OUTSIDE = -7.0
PLAIN = Stretch().parameters()
NO_FLIP = np.zeros(2, np.int32)
Image = NDArray[np.float32]


def warped(
    image: Image,
    matrix: NDArray[np.float64],
    shape: tuple[int, int],
    *,
    order: int = 3,
    reduce: int = 1,
    special: tuple[float, float, float, float] = (OUTSIDE, math.nan, -math.inf, -math.inf),
    clip: bool = False,
    gain: float = 1.0,
    stretch: NDArray[np.float64] = PLAIN,
    flip: tuple[int, int] = (0, 0),
) -> Image:
    out = np.full(shape, 99, np.float32)
    values = np.array(special, np.float32)
    warp(out, image, matrix, order, reduce, values, clip, gain, stretch, np.array(flip, np.int32))
    return out


def by_scipy(
    image: Image, matrix: NDArray[np.float64], shape: tuple[int, int], order: int
) -> NDArray[np.float64]:
    """Axes come in the other order there, and it knows no outside but by a value."""
    return ndimage.affine_transform(
        image.astype(np.float64),
        matrix[::-1, 1::-1],
        matrix[::-1, 2],
        output_shape=shape,
        order=order,
        cval=np.nan,
    )


def turned(angle: float, scale: float, size: int, shift: tuple[float, float]) -> Any:
    """Return the matrix of a turn about the middle."""
    cos, sin = np.cos(np.deg2rad(angle)) / scale, np.sin(np.deg2rad(angle)) / scale
    linear = np.array([[cos, sin], [-sin, cos]])
    middle = np.full(2, (size - 1) / 2)
    return np.column_stack((linear, middle + shift - linear @ middle))


def noise(*shape: int, seed: int = 0) -> Image:
    return np.random.default_rng(seed).poisson(400, shape).astype(np.float32)


@pytest.mark.parametrize("order", [1, 3])
@pytest.mark.parametrize("angle", [0, 0.019, -0.2, 17.3, 90, 179.93, -45])
def test_as_scipy(angle: float, order: int) -> None:
    """Over several tiles, short ones at the edges, and beyond the frame."""
    image = noise(300, 340)
    matrix = turned(angle, 0.999, 320, (3.3, -2.7))
    expected = by_scipy(image, matrix, (330, 560), order)
    outside = np.isnan(expected)
    assert 0.02 < outside.mean() < 0.6
    found = warped(image, matrix, (330, 560), order=order)
    np.testing.assert_array_equal(found == OUTSIDE, outside)
    np.testing.assert_allclose(found[~outside], expected[~outside], rtol=0, atol=1e-3)


@given(
    seed=st.integers(0, 2**32),
    shape=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    size=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    linear=st.lists(st.floats(-3, 3), min_size=4, max_size=4),
    shift=st.tuples(st.floats(-10, 40), st.floats(-10, 40)),
    order=st.sampled_from([1, 3]),
)
@settings(max_examples=200, deadline=None)
def test_any_matrix(
    seed: int,
    shape: tuple[int, int],
    size: tuple[int, int],
    linear: list[float],
    shift: tuple[float, float],
    order: int,
) -> None:
    image = noise(*shape, seed=seed)
    matrix = np.column_stack((np.reshape(linear, (2, 2)), shift))
    expected = by_scipy(image, matrix, size, order)
    found = warped(image, matrix, size, order=order)
    # At the very edge rounding decides what is outside.
    both = ~np.isnan(expected) & (found != OUTSIDE)
    y, x = np.mgrid[: size[0], : size[1]]
    places = np.einsum("ij,jyx->iyx", matrix[:, :2], np.stack((x, y))) + matrix[:, 2, None, None]
    far = np.array(shape)[::-1, None, None] - 1
    clear = ((np.abs(places) > 1e-6) & (np.abs(places - far) > 1e-6)).all(axis=0)
    assert not (np.isnan(expected) == (found != OUTSIDE))[clear].any()
    np.testing.assert_allclose(found[both], expected[both], rtol=0, atol=2e-3)


def test_a_window_is_as_the_whole() -> None:
    """Tiles begin elsewhere, and of the image no more is there than within the filter's reach."""
    image = noise(400, 400)
    matrix = turned(1.5, 1.01, 400, (0.3, 0.1))
    whole = warped(image, matrix, (400, 400))
    y, x, height, width = 120, 130, 60, 70
    corners = np.array([[x, x + width, x, x + width], [y, y, y + height, y + height], [1] * 4])
    places = matrix @ corners
    x0, y0 = (math.floor(low) - REACH - 2 for low in places.min(axis=1))
    x1, y1 = (math.ceil(high) + REACH + 3 for high in places.max(axis=1))
    part = matrix.copy()
    part[:, 2] += matrix[:, :2] @ (x, y) - (x0, y0)
    found = warped(image[y0:y1, x0:x1].copy(), part, (height, width))
    np.testing.assert_allclose(found, whole[y : y + height, x : x + width], rtol=0, atol=2e-4)


@pytest.mark.parametrize("reduce", [2, 3, 4, 8])
@pytest.mark.parametrize("order", [1, 3])
def test_reduced(order: int, reduce: int) -> None:
    image = noise(310, 310)
    matrix = turned(3, 1, 310, (0, 0))
    shape = 300 // reduce, 310 // reduce
    whole = warped(image, matrix, (shape[0] * reduce, shape[1] * reduce), order=order)
    means = whole.reshape(shape[0], reduce, shape[1], reduce).mean(axis=(1, 3), dtype=np.float64)
    found = warped(image, matrix, shape, order=order, reduce=reduce)
    np.testing.assert_allclose(found, means, rtol=1e-6)


@pytest.mark.parametrize("order", [1, 3])
def test_gain_stretch_and_flip(order: int) -> None:
    image = noise(300, 320)
    matrix = turned(0.5, 1, 300, (0, 0))
    stretch = Stretch(kind="asinh", a=100, mean=1, std=2)
    whole = warped(image, matrix, (300, 320), order=order)
    expected = stretch(whole.astype(np.float64) * 0.25)
    for flip in (0, 0), (1, 0), (0, 1), (1, 1):
        found = warped(
            image,
            matrix,
            (300, 320),
            order=order,
            gain=0.25,
            stretch=stretch.parameters(),
            flip=flip,
        )
        flipped = found[:: -1 if flip[1] else 1, :: -1 if flip[0] else 1]
        np.testing.assert_allclose(flipped, expected, rtol=1e-6, atol=1e-6)


def test_clipped_to_the_range_of_the_image() -> None:
    image = np.zeros((40, 40), np.float32)
    image[20, 20] = 1000
    matrix = turned(10, 1, 40, (0.3, 0.4))
    assert warped(image, matrix, (40, 40), special=(0,) * 2 + (-math.inf,) * 2).min() < -10
    clipped = warped(image, matrix, (40, 40), special=(0,) * 2 + (-math.inf,) * 2, clip=True)
    assert clipped.min() == 0
    expected = np.clip(by_scipy(image, matrix, (40, 40), 3), 0, 1000)
    inside = ~np.isnan(expected)
    np.testing.assert_allclose(clipped[inside], expected[inside], atol=1e-3)


class TestHoles:
    @pytest.mark.parametrize("order", [1, 3])
    @pytest.mark.parametrize("angle", [0, 30])
    def test_they_stay_where_they_are(self, order: int, angle: float) -> None:
        """A plane is resampled exactly beside its holes, whatever their shape."""
        y, x = np.mgrid[:120, :120].astype(np.float32)
        plane = 100 + 2 * x - y
        holes = np.zeros(plane.shape, bool)
        holes[50:53, 60:62] = holes[80, 20:90] = holes[10, 10] = True
        image = np.where(holes, np.float32(np.nan), plane)
        matrix = turned(angle, 1, 120, (0.25, 0.25))
        found = warped(image, matrix, (120, 120), order=order)
        expected = warped(plane, matrix, (120, 120), order=order)
        missing = np.isnan(found)
        weight = by_scipy((~holes).astype(np.float32), matrix, (120, 120), 1)
        np.testing.assert_array_equal(missing, np.nan_to_num(weight, nan=1) <= 0.5)
        # In the last half pixel before a hole its stand-in has a say.
        beside = ~missing & (np.nan_to_num(weight, nan=1) < 1)
        assert np.abs(found - expected)[beside].max() < 2.5
        away = ndimage.distance_transform_edt(~(missing | beside)) > 8
        np.testing.assert_allclose(found[away], expected[away], atol=0.02)

    def test_bright_neighbours_do_not_ring(self) -> None:
        """Half of the frame is missing, as off the limb of HMI, next to large values."""
        image = noise(100, 100) + 16000
        image[:, 50:] = np.nan
        found = warped(image, turned(0, 1, 100, (0.4, 0.4)), (100, 100))
        # Inside the frame: 400 is 20 standard deviations of the noise.
        values = found[:99, :49]
        assert np.isfinite(values).all()
        assert np.abs(values - 16400).max() < 400

    def test_reduced_they_are_left_out(self) -> None:
        image = np.full((40, 40), 5, np.float32)
        image[0:4, 0:2] = image[4:8, 0:4] = np.nan
        found = warped(image, np.eye(2, 3), (10, 10), order=1, reduce=4)
        assert np.isnan(found[1, 0])
        assert np.isnan(found[0, 0])  # half of it
        image[0, 0] = 5
        found = warped(image, np.eye(2, 3), (10, 10), order=1, reduce=4)
        np.testing.assert_array_equal(found[0], 5)

    def test_values_for_special_pixels(self) -> None:
        image = np.full((20, 20), 10, np.float32)
        image[5, 5], image[7, 7], image[9, 9] = np.nan, 0, -4
        shifted = np.array([[1.0, 0, -2], [0, 1, 0]])
        found = warped(image, shifted, (20, 20), order=1, special=(1, 2, 0, -math.inf))
        assert set(found[:, :2].ravel()) == {1}
        assert (found[5, 7], found[7, 9], found[9, 11]) == (2, 0, 0)
        found = warped(image, shifted, (20, 20), order=1, special=(1, 2, 0, 0))
        assert (found[5, 7], found[7, 9], found[9, 11]) == (2, 2, 2)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300, -1e300])
@pytest.mark.parametrize("place", range(6))
@pytest.mark.parametrize("order", [1, 3])
def test_a_senseless_matrix_does_no_harm(order: int, place: int, value: float) -> None:
    matrix = np.eye(2, 3)
    matrix.flat[place] = value
    found = warped(noise(30, 30), matrix, (30, 30), order=order)
    assert not (found == 99).any()
