"""Rows that are spread over a whole Index."""

from __future__ import annotations

from itertools import pairwise

import numpy as np


def spread_rows(num_rows: int, count: int, seed: int) -> list[int]:
    """Return a random row of each of `count` equal parts of an Index; all rows if it has fewer.

    Equidistant rows could miss a whole class, if classes alternate.
    """
    if num_rows <= count:
        return list(range(num_rows))
    edges = [number * num_rows // count for number in range(count + 1)]
    random = np.random.default_rng(seed)
    return [int(random.integers(*part)) for part in pairwise(edges)]
