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
        assert index.outside == "reject"
    for index in (
        *(index_of([(30, 40)]), grid.with_column("x", [0] * len(grid))),
        *(Index.concat([grid, other]), Index(grid.table.drop_columns(["y"]))),
        Index(grid.table.drop_columns(["y"])).with_column("y", [0] * len(grid)),
    ):
        assert index.window_size is None
        assert index.outside is None


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
        {tuple(row.values()) for row in table.select(["path", "y", "x"]).to_pylist()}
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


SIZE = r"\(height, width\) in pixels.*got"
IMAGE = r"image.*\(height, width\).*got"


@pytest.mark.parametrize(
    ("crop", "image", "stride", "error", "words"),
    [
        ((5, 4), (4, 6), None, ValueError, r"/0.fits \(row 0\): crop 5x4.*4x6"),
        *(
            (crop, (4, 6), None, ValueError, f"crop.*{SIZE}")
            for crop in (0, 2.5, True, "2", None, (2, 2, 2), (2, 0), (True, 2), np.ones((2, 2)))
        ),
        *(
            (2, image, None, ValueError, IMAGE)
            for image in (6, "height", (4, 6, 3), (-4, 6), (True, 6), ([4], 6), None, [4.5, 6])
        ),
        *(
            (2, (4, 6), stride, ValueError, f"stride.*{SIZE}")
            for stride in (0, 7.5, True, "2", (1, 2, 3), (1, -1))
        ),
        (2, ("height", "breadth"), None, KeyError, "'breadth'.*path"),
        (2, ("height", "path"), None, ValueError, "'path'.*integers"),
    ],
)
def test_invalid_grids(
    crop: Any, image: Any, stride: Any, error: type[Exception], words: str
) -> None:
    strides = {} if stride is None else {"stride": stride}
    with pytest.raises(error, match=words):
        index_of([(4, 6)]).each_window(crop, image, **strides)


@pytest.mark.parametrize(
    ("crop", "image", "stride"),
    [
        ([2, 3], [4, 6], np.int64(1)),
        (np.array([2, 3]), np.array([4, 6]), [1, 1]),
        ((np.int16(2), np.uint64(3)), (4, "width"), np.array([1, 1])),
        ((2, 3), ["height", "width"], 1),
    ],
)
def test_lists_and_numpy(crop: Any, image: Any, stride: Any) -> None:
    index = index_of([(4, 6)])
    expected = index.each_window((2, 3), (4, 6), stride=(1, 1)).table
    assert index.each_window(crop, image, stride=stride).table.equals(expected)


def test_a_grid_is_made_once() -> None:
    grid = index_of([(4, 6)]).each_window(2, (4, 6))
    assert grid.table["y"].to_pylist() == [0, 0, 0, 2, 2, 2]
    with pytest.raises(ValueError, match=r"\['x', 'y'\]"):
        grid.each_window(2, (4, 6))
