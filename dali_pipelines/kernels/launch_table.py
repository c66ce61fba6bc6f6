"""Table that describes the images of a batch to a kernel on a GPU, and the number of blocks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple
from typing import Any

import numpy as np
from numpy.typing import NDArray


def launch_table(images: Sequence[Any]) -> NDArray[np.int64]:
    """Return a table with a row for each image, a dataclass of addresses and sizes."""
    return np.array([astuple(image) for image in images], np.int64)


def blocks_of(sizes: Iterable[int], tile: int) -> int:
    """Return the number of blocks of `tile` values for the largest of several sizes."""
    return max(-(-size // tile) for size in sizes)
