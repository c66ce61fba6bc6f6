"""Cut each image of an Index into a grid of windows, one in each row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa


def window_rows(
    table: pa.Table,
    crop: tuple[int, int],
    image: tuple[int, int] | tuple[str, str],
    stride: tuple[int, int],
) -> pa.Table:
    """Return a row for each window of each row, with columns ``y`` and ``x``.

    See `readers.index.rows.methods.IndexRows.each_window`.
    """
    import pyarrow as pa

    if taken := {"y", "x"} & set(table.column_names):
        raise ValueError(f"the Index already has columns {sorted(taken)}: rename or drop them")
    if min(crop) < 1 or min(stride) < 1:
        raise ValueError(f"crop and stride must be at least 1, got {crop} and {stride}")
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
    return chosen.append_column("y", pa.array(y)).append_column("x", pa.array(x))


def _sizes(table: pa.Table, image: tuple[int, int] | tuple[str, str]) -> NDArray[np.int64]:
    sides = []
    for side in image:
        if isinstance(side, str) and side not in table.column_names:
            raise KeyError(
                f"the Index has no column {side!r}, it has {', '.join(table.column_names)}"
            )
        found = table[side].to_numpy() if isinstance(side, str) else np.full(table.num_rows, side)
        if not np.issubdtype(found.dtype, np.integer):
            raise ValueError(
                f"image must be (height, width), integers or names of columns of integers without "
                f"empty rows, got {side!r}, {found.dtype}"
            )
        sides.append(found.astype(np.int64))
    return np.stack(sides, -1)


def _starts(size: int, pixels: int, step: int) -> NDArray[np.int64]:
    """Return where windows begin along an axis; the last one ends at its end."""
    starts = np.arange(0, size - pixels + 1, step)
    last = size - pixels
    return starts if starts[-1] == last else np.append(starts, last)
