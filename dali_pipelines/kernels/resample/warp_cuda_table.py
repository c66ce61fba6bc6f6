"""Table of addresses and sizes that describes the images of a batch to the warp on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from dali_pipelines.kernels.bits import load_int64
from dali_pipelines.kernels.jit import njit

MOST_BLOCKS = 65535
"""Maximum number of blocks of a launch in y and in z, on any GPU."""


@dataclass(frozen=True, slots=True)
class WarpedImage:
    """Image of a batch: addresses on the device, and sizes.

    The arrays are as in `dali_pipelines.kernels.resample.warp.warp`, but special is float64, reduce
    (int64) and gain have shape (1,), and frame (int64) has shape (4,).
    """

    out: int
    rows: int
    columns: int
    """rows and columns: shape of `out`."""
    image: int
    height: int
    width: int
    """height and width: shape of the image, the lines and the coefficients."""
    lines: int
    coefficients: int
    """Scratch memory for order 3, float32; 0 for order 1."""
    ranges: int
    """Scratch memory for order 3, float32, shape (blocks of `prefilter_rows`, 2)."""
    limits: int
    """Address of the smallest and the largest value of the spline, float32, shape (2,)."""
    frame: int
    matrix: int
    reduce: int
    gain: int
    stretch: int
    special: int
    flip: int


_NUM_FIELDS = len(fields(WarpedImage))
(
    OUT,
    ROWS,
    COLUMNS,
    IMAGE,
    HEIGHT,
    WIDTH,
    LINES,
    COEFFICIENTS,
    RANGES,
    LIMITS,
    FRAME,
    MATRIX,
    REDUCE,
    GAIN,
    STRETCH,
    SPECIAL,
    FLIP,
) = range(_NUM_FIELDS)
"""Fields of a `WarpedImage` in the table."""


def blocks(tile: tuple[int, int], shapes: Sequence[tuple[int, int]]) -> tuple[int, int, int]:
    """Return the number of blocks in x, in y and by image, for images and tiles of these shapes.

    The largest image determines the number; additional blocks of other images do nothing.

    Raises
    ------
    ValueError
        If an image has more rows of tiles than a GPU allows blocks.
    """
    height, width = (max(sizes) for sizes in zip(*shapes, strict=True))
    most = MOST_BLOCKS * tile[0]
    if height > most:
        raise ValueError(f"a GPU resamples images of at most {most} rows, got one of {height}")
    return -(-width // tile[1]), -(-height // tile[0]), len(shapes)


@njit
def field_of(table, image, field):  # type: ignore[no-untyped-def]
    """Return a field of an image from the table at address `table`."""
    return load_int64(table + 8 * (_NUM_FIELDS * image + field))
