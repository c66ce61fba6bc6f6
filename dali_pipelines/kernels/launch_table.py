"""Table that describes the images of a batch to a kernel on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from typing import Any

import numpy as np
from numpy.typing import NDArray


def launch_table(images: Sequence[Any]) -> NDArray[np.int64]:
    """Return a table with a row for each image, a dataclass of addresses and sizes."""
    return np.array([astuple(image) for image in images], np.int64)
