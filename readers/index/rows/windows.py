"""Rows for parts of images: planes, and windows with their common properties."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from readers.index.arrow import pa
from readers.index.schema import check_column, metadata_of, part_names, with_metadata
from readers.sampling.row_window import Outside
from readers.values import is_integer

CORNERS = ("y", "x")
"""Columns of the first row and column of each window."""

_KEY = b"dali-pipelines window size"


class Windows(NamedTuple):
    """Common properties of the windows in a table."""

    size: tuple[int, int]
    """(height, width) in pixels."""
    outside: Outside | None = None
    """Treatment of windows that cross an edge of the image; None if unknown."""


def windows_of(table: pa.Table) -> Windows | None:
    """Return the common properties of windows from the metadata of a table, or None."""
    stored = metadata_of(table, _KEY)
    if stored is None or not {*CORNERS} <= {*table.column_names}:
        return None
    height, width, *outside = stored
    return Windows((height, width), *outside)


def with_windows(table: pa.Table, windows: Windows | None) -> pa.Table:
    """Return the table with the properties of windows in its metadata; None removes them."""
    if windows is None:
        return with_metadata(table, {_KEY: None})
    outside = [windows.outside] if windows.outside else []
    return with_metadata(table, {_KEY: [*windows.size, *outside]})


def common_windows(tables: Iterable[pa.Table]) -> Windows | None:
    """Return the common properties of windows of several tables; None if sizes differ."""
    found = {windows_of(table) for table in tables}
    if len(found) == 1:
        return found.pop()
    sizes = {None if one is None else one.size for one in found}
    size = sizes.pop() if len(sizes) == 1 else None
    return None if size is None else Windows(size)


def window_rows(
    table: pa.Table,
    crop: int | Sequence[int],
    image: Sequence[int] | Sequence[str],
    stride: int | Sequence[int] | None,
) -> pa.Table:
    """Return a row for each window of each row, with columns ``y`` and ``x``.

    See `readers.index.table.Index.each_window`.
    """
    if taken := {*CORNERS} & set(table.column_names):
        raise ValueError(f"the Index already has columns {sorted(taken)}: rename or drop them")
    crop = pixel_pair("crop", crop)
    stride = crop if stride is None else pixel_pair("stride", stride)
    sizes = _sizes(table, image)
    corners: dict[tuple[int, int], NDArray[np.int64]] = {}
    for height, width in np.unique(sizes, axis=0).tolist():
        if height < crop[0] or width < crop[1]:
            row = int(np.flatnonzero((sizes == (height, width)).all(1))[0])
            raise ValueError(
                f"{table['path'][row].as_py()} (row {row}): crop {crop[0]}x{crop[1]} is larger "
                f"than the image {height}x{width} (height x width): leave such images out"
            )
        starts = [
            _starts(size, pixels, step)
            for size, pixels, step in zip((height, width), crop, stride, strict=True)
        ]
        corners[height, width] = np.stack(np.meshgrid(*starts, indexing="ij"), -1).reshape(-1, 2)
    grids = [corners[height, width] for height, width in sizes.tolist()]
    rows = np.repeat(np.arange(len(grids)), [len(grid) for grid in grids])
    y, x = np.concatenate(grids).T
    chosen = table.take(pa.array(rows))
    chosen = chosen.append_column("y", pa.array(y)).append_column("x", pa.array(x))
    return with_windows(chosen, Windows(crop, "reject"))


def pixel_pair(name: str, given: int | Sequence[int]) -> tuple[int, int]:
    """Return (height, width) from an argument of one or two integers."""
    pair: Sequence[Any] = _two(given) or (given, given)
    if not all(is_integer(side, 1) for side in pair):
        raise ValueError(
            f"{name} must be (height, width) in pixels, or one number for both, from 1 on, got "
            f"{given!r}"
        )
    return int(pair[0]), int(pair[1])


def _two(given: Any) -> Sequence[Any] | None:
    given = given.tolist() if isinstance(given, np.ndarray) else given
    return given if isinstance(given, list | tuple) and len(given) == 2 else None


def _sizes(table: pa.Table, image: Any) -> NDArray[np.int64]:
    pair = _two(image)
    if pair is None or not all(isinstance(side, str) or is_integer(side, 1) for side in pair):
        raise ValueError(
            "image must be (height, width), two integers from 1 on or two names of columns, got "
            f"{image!r}"
        )
    return np.stack([_lengths(table, side) for side in pair], -1)


def _lengths(table: pa.Table, side: int | str) -> NDArray[np.int64]:
    """Return the heights or widths of all images."""
    if not isinstance(side, str):
        return np.full(table.num_rows, int(side))
    check_column(table, side)
    found = table[side].to_numpy()
    if not np.issubdtype(found.dtype, np.integer):
        raise ValueError(
            f"image: column {side!r} must have integers and no empty rows, got {found.dtype}"
        )
    return found.astype(np.int64)


def _starts(size: int, pixels: int, step: int) -> NDArray[np.int64]:
    """Return the starts of windows on an axis. The last window ends at the end of the axis."""
    starts = np.arange(0, size - pixels + 1, step)
    last = size - pixels
    return starts if starts[-1] == last else np.append(starts, last)


# ---- Planes --------------------------------------------------------------------------------------


def plane_rows(table: pa.Table, planes: Iterable[int]) -> pa.Table:
    """Return a row for each plane of each row, see `readers.index.table.Index.each_plane`."""
    numbers = [*planes] if isinstance(planes, Iterable) else []
    if not numbers or not all(is_integer(number, 0) for number in numbers):
        raise ValueError(
            f"planes must be one or more integers from 0 on, in a list, got {planes!r}"
        )
    if "plane" in table.column_names or part_names(table):
        raise ValueError("the rows must be single files without a column 'plane'")
    count = table.num_rows
    rows = table.take(pa.array(np.repeat(np.arange(count), len(numbers))))
    return rows.append_column("plane", pa.array(np.tile(np.array(numbers, np.int64), count)))
