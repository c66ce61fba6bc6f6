from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers import Index

side = st.integers(1, 40)


def index_of(shapes: list[tuple[int, int]]) -> Index:
    index = Index.from_paths([f"/{number}.fits" for number in range(len(shapes))])
    heights, widths = np.array(shapes).T
    return index.with_column("height", heights).with_column("width", widths)


def test_the_size_is_kept_with_the_corners(tmp_path: Path) -> None:
    grid = index_of([(30, 40)]).each_window((8, 9), (30, 40))
    grid.save(tmp_path / "a.parquet")
    grid.save(tmp_path / "a.arrow")
    other = index_of([(30, 40)]).each_window(8, (30, 40))
    for index in (
        *(grid, grid.select([3, 1]), grid.with_column("name", ["a"] * len(grid))),
        *(Index.concat([grid, grid]), *grid.split({"a": 0.5, "b": 0.5}, by="y").values()),
        *(Index.load(tmp_path / "a.parquet"), Index.load(tmp_path / "a.arrow")),
    ):
        assert index.window_size == (8, 9)
    for index in (
        *(index_of([(30, 40)]), grid.with_column("x", [0] * len(grid))),
        *(Index.concat([grid, other]), Index(grid.table.drop_columns(["y"]))),
        Index(grid.table.drop_columns(["y"])).with_column("y", [0] * len(grid)),
    ):
        assert index.window_size is None


@given(st.lists(st.tuples(side, side), min_size=1, max_size=4), side, side, side, side)
def test_the_windows_cover_each_image(
    shapes: list[tuple[int, int]], height: int, width: int, down: int, across: int
) -> None:
    crop = min(height, min(shapes)[0]), min(width, min(width for _, width in shapes))
    stride = min(down, crop[0]), min(across, crop[1])
    grid = index_of(shapes).each_window(crop, ("height", "width"), stride=stride)
    counts = [np.zeros(shape, int) for shape in shapes]
    table = grid.table
    corners = zip(table["y"].to_pylist(), table["x"].to_pylist(), strict=True)
    for row, (y, x) in enumerate(corners):
        part = counts[int(grid.path(row)[1:-5])][y : y + crop[0], x : x + crop[1]]
        assert part.shape == crop
        part += 1
    assert all(count.min() >= 1 for count in counts)
    assert len(
        set(
            zip(
                table["path"].to_pylist(),
                table["y"].to_pylist(),
                table["x"].to_pylist(),
                strict=True,
            )
        )
    ) == len(grid)
    if stride == crop:  # none more than needed
        needed = [-(-shape[0] // crop[0]) * -(-shape[1] // crop[1]) for shape in shapes]
        assert len(grid) == sum(needed)


def test_rows_keep_their_columns_and_order() -> None:
    grid = (
        index_of([(4, 6), (5, 4)]).with_column("label", [7, 8]).each_window(4, ("height", "width"))
    )
    assert grid.table["label"].to_pylist() == [7, 7, 8, 8]
    assert grid.table["y"].to_pylist() == [0, 0, 0, 1]
    assert grid.table["x"].to_pylist() == [0, 2, 0, 0]
    assert len(Index.from_paths(["/a.fits", "/b.fits"]).each_window((2, 3), (4, 9))) == 12


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (((5, 4), (4, 6)), ValueError, r"/0.fits \(row 0\): crop 5x4 is larger than the image 4x6"),
        *(
            ((crop, (4, 6)), ValueError, r"crop must be \(height, width\) in pixels, .* got ")
            for crop in (
                0,
                2.5,
                True,
                "2",
                None,
                (2, 2, 2),
                [2],
                (2, 0),
                (True, 2),
                np.ones((2, 2)),
            )
        ),
        *(
            ((2, image), ValueError, r"image must be \(height, width\), two .* got ")
            for image in (6, "height", (4, 6, 3), (-4, 6), (True, 6), ([4], 6), None, [4.5, 6])
        ),
        ((2, ("height", "breadth")), KeyError, "no column 'breadth': it has path"),
        ((2, ("height", "path")), ValueError, "column 'path' must hold integers .* got object"),
    ],
)
def test_what_makes_no_grid(arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        index_of([(4, 6)]).each_window(*arguments)


@pytest.mark.parametrize("stride", [0, 7.5, True, "2", (1, 2, 3), (1, -1)])
def test_what_is_no_stride(stride: Any) -> None:
    with pytest.raises(ValueError, match=r"stride must be \(height, width\) in pixels, .* got "):
        index_of([(4, 6)]).each_window(2, (4, 6), stride=stride)


@pytest.mark.parametrize("crop", [[2, 3], np.array([2, 3]), (np.int16(2), np.uint64(3))])
@pytest.mark.parametrize("image", [[4, 6], np.array([4, 6]), (4, "width"), ["height", "width"]])
def test_lists_and_numpy(crop: Any, image: Any) -> None:
    index = index_of([(4, 6)])
    expected = index.each_window((2, 3), (4, 6), stride=(1, 1)).table
    strides: list[Any] = [np.int64(1), [1, 1]]
    for stride in strides:
        assert index.each_window(crop, image, stride=stride).table.equals(expected)


def test_a_grid_is_made_once() -> None:
    grid = index_of([(4, 6)]).each_window(2, (4, 6))
    with pytest.raises(ValueError, match=r"already has columns \['x', 'y'\]"):
        grid.each_window(2, (4, 6))


def test_a_grid_can_be_saved(tmp_path: Path) -> None:
    grid = index_of([(4, 6)]).each_window(2, (4, 6))
    grid.save(tmp_path / "grid.arrow")
    assert Index.load(tmp_path / "grid.arrow").table["y"].to_pylist() == [0, 0, 0, 2, 2, 2]
