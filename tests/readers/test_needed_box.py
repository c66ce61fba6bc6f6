from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import ndimage

from readers.window import HALO, Box, needed_box

IMAGE = np.random.default_rng(0).uniform(0, 16000, (90, 110))


def resampled(
    image: NDArray[Any], matrix: NDArray[Any], shape: tuple[int, int], order: int
) -> NDArray[Any]:
    """Resample as the graph does: splines that mirror at the edges, zero outside."""
    return ndimage.affine_transform(
        image, matrix[::-1, 1::-1], matrix[::-1, 2], shape, order=order, mode="constant"
    )


@st.composite
def matrices(draw: st.DrawFn) -> NDArray[Any]:
    angle, zoom = draw(st.floats(-3.2, 3.2)), draw(st.floats(0.4, 2.0))
    cos, sin = zoom * np.cos(angle), zoom * np.sin(angle)
    x, y = draw(st.floats(-40, 140)), draw(st.floats(-40, 140))
    return np.array([[cos, sin, x], [-sin, cos, y]])


@given(matrices(), st.integers(1, 25), st.integers(1, 25), st.sampled_from([1, 3]))
def test_the_box_holds_all_that_is_needed(
    matrix: NDArray[Any], height: int, width: int, order: int
) -> None:
    """Resampling gives the same if all of the image but the box is replaced."""
    box = needed_box(matrix, (height, width), IMAGE.shape, order)
    assert 0 <= box.y < box.y + box.height <= IMAGE.shape[0]
    assert 0 <= box.x < box.x + box.width <= IMAGE.shape[1]
    other = np.full_like(IMAGE, 8000.0)
    part = slice(box.y, box.y + box.height), slice(box.x, box.x + box.width)
    other[part] = IMAGE[part]
    found = resampled(other, matrix, (height, width), order)
    expected = resampled(IMAGE, matrix, (height, width), order)
    # Of the prefilter, 13 pixels away, 4e-8 are left, of 8000 and of some pixels.
    tolerance = 2e-3 if order == 3 else 1e-9
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("order", HALO)
def test_the_box_is_no_larger_than_that(order: int) -> None:
    halo = HALO[order]
    shifted = np.array([[1.0, 0, 40.5], [0, 1, 30.5]])
    box = needed_box(shifted, (5, 7), IMAGE.shape, order)
    assert box == (30 - halo, 40 - halo, 6 + 2 * halo, 8 + 2 * halo)


PLACES = [
    ((0, 0), Box(0, 0, 25, 25)),
    ((105, 85), Box(71, 91, 19, 19)),
    ((500, 40), Box(26, 109, 39, 1)),
    ((-500, -500), Box(0, 0, 1, 1)),
]


@pytest.mark.parametrize(("place", "expected"), PLACES)
def test_it_is_cut_at_the_edges(place: Any, expected: Any) -> None:
    matrix = np.array([[1.0, 0, place[0]], [0, 1, place[1]]])
    assert needed_box(matrix, (11, 11), IMAGE.shape, 3) == expected
