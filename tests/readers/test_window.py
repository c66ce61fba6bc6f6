from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import fractions

from readers import Window

sizes = st.integers(1, 10**6)


@given(sizes, sizes, st.data(), st.none() | fractions, st.none() | fractions)
def test_a_window_is_inside(
    height: int, width: int, data: st.DataObject, y: float | None, x: float | None
) -> None:
    window = Window(
        height=data.draw(st.integers(1, height)), width=data.draw(st.integers(1, width)), y=y, x=x
    )
    top, left = window.place(height, width)
    assert 0 <= top <= height - window.height
    assert 0 <= left <= width - window.width


PLACES = [
    # height and width of the window, y and x, in 10 rows and 7 columns
    ((10, 7), (None, None), (0, 0)),
    ((4, 3), (None, None), (3, 2)),
    ((3, 2), (None, None), (3, 2)),  # odd play: nearer the origin
    ((4, 3), (0.0, 0.0), (0, 0)),
    ((4, 3), (1 - 2**-53, 1 - 2**-53), (6, 4)),
    ((4, 3), (0.5, None), (3, 2)),
    ((4, 3), (None, 0.5), (3, 2)),
    ((10, 7), (0.9, 0.9), (0, 0)),
]


@pytest.mark.parametrize(("size", "fractions_of_play", "place"), PLACES)
def test_places(
    size: tuple[int, int],
    fractions_of_play: tuple[float | None, float | None],
    place: tuple[int, int],
) -> None:
    y, x = fractions_of_play
    assert Window(height=size[0], width=size[1], y=y, x=x).place(10, 7) == place


def test_all_places_are_as_likely() -> None:
    steps = 7000
    places = [Window(height=4, width=1, y=n / steps).place(10, 1)[0] for n in range(steps)]
    assert [places.count(place) for place in range(7)] == [1000] * 7


@given(st.integers(1, 60), st.data())
def test_windows_on_a_grid_show_all_pixels(length: int, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, length))
    step = data.draw(st.integers(1, size))
    count = 1000
    places = [
        Window(height=size, width=1, y=n / count, step=(step, 1)).place(length, 1)[0]
        for n in range(count)
    ]
    assert sorted({*places}) == sorted({*range(0, length - size, step), length - size})
    # Each is as likely.
    assert max(map(places.count, places)) - min(map(places.count, places)) <= 1
    assert {pixel for place in places for pixel in range(place, place + size)} == {*range(length)}


@pytest.mark.parametrize("size", [(11, 7), (10, 8), (11, 8)])
def test_larger_than_the_image(size: tuple[int, int]) -> None:
    words = f"crop {size[0]}x{size[1]} .*10x7.*smaller crop.*outside='fill'"
    with pytest.raises(ValueError, match=words):
        Window(height=size[0], width=size[1]).place(10, 7)


@given(sizes, sizes, st.data())
def test_a_window_at_a_pixel_is_placed_there(height: int, width: int, data: st.DataObject) -> None:
    rows, columns = data.draw(st.integers(1, height)), data.draw(st.integers(1, width))
    y, x = data.draw(st.integers(0, height - rows)), data.draw(st.integers(0, width - columns))
    window = Window.at(y, x, rows, columns, image=(height, width))
    assert (window.height, window.width) == (rows, columns)
    assert window.place(height, width) == (y, x)


@pytest.mark.parametrize("turn", [{"angle": 1.0}, {"zoom": 0.5}])
def test_a_turned_window_is_not_cut_out(turn: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"rotated by \d .*zoomed by [\d.]+ cannot be cut out"):
        Window(height=2, width=2, **turn).place(10, 7)


@pytest.mark.parametrize("fraction", [-0.1, 1.0, float("nan"), float("inf")])
def test_fractions_outside_are_refused(fraction: float) -> None:
    places: list[dict[str, Any]] = [{"y": fraction}, {"x": fraction}]
    for place in places:
        with pytest.raises(ValueError, match=rf"\[0, 1\), got.*{fraction}"):
            Window(height=4, width=4, **place).place(10, 10)
