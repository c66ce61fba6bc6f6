from __future__ import annotations

import numpy as np
from astropy.nddata import Cutout2D, NoOverlapError
from hypothesis import assume, given
from hypothesis import strategies as st

from readers.index.catalogue.cutouts import Corners, corners_of
from readers.sampling.row_window import Outside

side = st.integers(1, 12)
shapes = st.tuples(side, side)
coordinate = st.floats(-30, 40) | st.integers(-40, 60).map(lambda halves: halves / 2)

near = st.floats(-2, 3)
exact = st.integers(-800, 1600).map(lambda parts: parts / 64)
"""Positions without rounding errors."""


def corner(
    position: tuple[float, float],
    image: tuple[int, int],
    size: tuple[int, int],
    outside: Outside = "reject",
    *,
    subpixel: bool = False,
) -> Corners:
    return corners_of(np.array([position]), np.array([image]), size, outside, subpixel=subpixel)


@given(st.tuples(coordinate, coordinate), shapes, shapes)
def test_windows_are_those_of_cutout2d(
    position: tuple[float, float], image: tuple[int, int], size: tuple[int, int]
) -> None:
    """Pixels, too: each has its own number, and those outside are -1."""
    pixels = np.arange(image[0] * image[1]).reshape(image)
    found = corner(position, image, size, "fill")
    try:
        expected = Cutout2D(pixels, position[::-1], size, mode="partial", fill_value=-1).data
    except NoOverlapError:
        assert not found.kept[0]
        assert not found.overlaps[0]
        return
    assert found.kept[0]
    padded = np.pad(pixels, 100, constant_values=-1)
    y, x = int(found.y[0]) + 100, int(found.x[0]) + 100
    np.testing.assert_array_equal(padded[y : y + size[0], x : x + size[1]], expected)
    is_inside = corner(position, image, size, "reject").kept[0]
    assert is_inside == (expected >= 0).all()


@given(st.tuples(near, near), shapes, shapes)
def test_a_subpixel_window_has_the_position_in_its_middle(
    position: tuple[float, float], image: tuple[int, int], size: tuple[int, int]
) -> None:
    found = corner(position, image, size, "fill", subpixel=True)
    assume(found.kept[0])
    middle = found.y[0] + (size[0] - 1) / 2, found.x[0] + (size[1] - 1) / 2
    np.testing.assert_allclose(middle, position, atol=1e-12)
    whole = corner(position, image, size, "fill")
    assert abs(found.y[0] - whole.y[0]) <= 0.5
    assert abs(found.x[0] - whole.x[0]) <= 0.5


@given(st.tuples(exact, exact), shapes, shapes)
def test_a_subpixel_window_needs_a_sample_inside_the_image(
    position: tuple[float, float], image: tuple[int, int], size: tuple[int, int]
) -> None:
    overlaps, inside = True, True
    for at, pixels, wanted in zip(position, image, size, strict=True):
        samples = at - (wanted - 1) / 2 + np.arange(wanted)
        shown = (samples >= 0) & (samples <= pixels - 1)
        overlaps, inside = overlaps and bool(shown.any()), inside and bool(shown.all())
    assert corner(position, image, size, "fill", subpixel=True).kept[0] == overlaps
    assert corner(position, image, size, "reject", subpixel=True).kept[0] == inside


@given(st.tuples(coordinate, coordinate), shapes, shapes, st.booleans())
def test_shift_keeps_positions_on_images_that_hold_a_window(
    position: tuple[float, float], image: tuple[int, int], size: tuple[int, int], subpixel: bool
) -> None:
    on_image = all(-0.5 <= at < n - 0.5 for at, n in zip(position, image, strict=True))
    holds = all(n >= wanted for n, wanted in zip(image, size, strict=True))
    assert corner(position, image, size, "shift", subpixel=subpixel).kept[0] == (on_image and holds)


def test_positions_far_beyond_all_numbers_of_pixels() -> None:
    for far in (1e300, -1e300):
        assert not corner((far, 3.0), (10, 10), (4, 4), "fill").overlaps[0]
