"""Windows that a row places, against what a pixel-by-pixel definition says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from strategies import fractions

from readers.sampling.geometry import Geometry
from readers.sampling.row_window import Outside, RowWindow
from readers.window import Window

SIZES = st.integers(1, 12)
PLACES = st.one_of(
    st.integers(-14, 14),
    st.floats(-14, 14),
    st.sampled_from([-0.0, 0.5, 3 + 1e-9, -1e-9, 2**62, -(2**62), 1e300]),
)


def needed(first: float, pixels: int, size: int) -> tuple[set[int], set[int]]:
    """Return which pixels of a window are inside along an axis, and what they are made of."""
    first = round(first) if abs(first - round(first)) < 1e-6 else first
    inside = {k for k in range(pixels) if 0 <= first + k <= size - 1}
    made_of = {f(first + k) for k in inside for f in (math.floor, math.ceil)}
    return inside, made_of


@pytest.mark.parametrize("outside", ["reject", "fill", "shift"])
@given(y=PLACES, x=PLACES, window=st.tuples(SIZES, SIZES), image=st.tuples(SIZES, SIZES))
@example(y=0, x=0, window=(1, 1), image=(1, 1))
def test_any_place(
    outside: Outside,
    y: float,
    x: float,
    window: tuple[int, int],
    image: tuple[int, int],
) -> None:
    one = RowWindow(height=window[0], width=window[1], top=y, left=x, outside=outside)
    axes = [needed(*each) for each in zip((y, x), window, image, strict=True)]
    whole = all(len(inside) == size for (inside, _), size in zip(axes, window, strict=True))
    some = all(inside for inside, _ in axes)
    fits_in = window[0] <= image[0] and window[1] <= image[1]
    accepted = {"reject": whole, "fill": some, "shift": whole or (some and fits_in)}
    if not accepted[outside]:
        with pytest.raises(ValueError, match="leave the row out"):
            one.within(*image)
        return
    box = one.within(*image)
    top, left = box.place(*image)
    read = set(range(top, top + box.height)), set(range(left, left + box.width))
    assert 0 <= top <= image[0] - box.height
    assert 0 <= left <= image[1] - box.width
    if whole or outside == "fill":
        # No more than what is needed, and no less.
        assert read == (axes[0][1], axes[1][1])
        inside = one.inside(*image)
        assert [inside.y, inside.x] == [min(kept) for kept, _ in axes]
        assert [inside.height, inside.width] == [len(kept) for kept, _ in axes]
    if outside == "shift":
        place = one.start(*image)
        for first, given_place, pixels, size in zip(place, (y, x), window, image, strict=True):
            assert first == pytest.approx(min(max(given_place, 0), size - pixels), abs=1e-6)
    np.testing.assert_allclose(one.matrix(*image)[:, 2], one.start(*image)[::-1], atol=1e-12)


@given(
    window=st.tuples(SIZES, SIZES),
    image=st.tuples(SIZES, SIZES),
    at=st.none() | st.tuples(fractions, fractions),
)
def test_windows_without_a_place_are_centred_where_they_are_larger(
    window: tuple[int, int], image: tuple[int, int], at: tuple[float, float] | None
) -> None:
    """Elsewhere they are where a Window is."""
    y, x = at or (None, None)
    one = RowWindow(height=window[0], width=window[1], y=y, x=x, outside="fill")
    for start, fraction, pixels, size in zip(one.start(*image), (y, x), window, image, strict=True):
        if pixels <= size:
            plain = Window(height=pixels, width=1, y=fraction).place(size, 1)
            assert start == plain[0]
        else:
            before, after = -start, pixels - size + start
            assert after - before in (0, 1)
    if window[0] <= image[0] and window[1] <= image[1]:
        assert one.place(*image) == one.within(*image).place(*image) == one.start(*image)


def test_turned_windows_of_rows_are_not_cut_out() -> None:
    one = RowWindow(height=3, width=4, top=1, left=1, angle=90.0)
    with pytest.raises(ValueError, match="cannot be cut out"):
        one.place(9, 9)


def test_a_window_that_must_be_filled_is_not_cut_out() -> None:
    one = RowWindow(height=3, width=4, top=-1, left=1, outside="fill")
    with pytest.raises(ValueError, match=r"y -1, x 1 .*9x9"):
        one.place(9, 9)


def test_memory_is_that_of_a_window_in_the_middle() -> None:
    for crop, image in (((5, 6), (20, 30)), ((50, 60), (20, 30)), ((5, 60), (20, 30))):
        largest = Geometry(crop=crop, window="row", outside="fill").largest_window()
        assert largest is not None
        box = largest.within(*image)
        assert (box.height, box.width) == (min(crop[0], image[0]), min(crop[1], image[1]))
