from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from dali_pipelines import Index, ReadError
from dali_pipelines.loading.position import Position
from dali_pipelines.loading.recovery import BadRows
from dali_pipelines.loading.stats import LoaderStats
from dali_pipelines.runtime.ranks import find_shards

ROWS = 10
INDEX = Index.from_paths([f"/archive/{row}.fits" for row in range(ROWS)])


def bad_rows(max_bad: float | None, stats: LoaderStats, index: Index = INDEX) -> BadRows:
    settings: dict[str, Any] = {
        "batch_size": 1,
        "tail": "partial",
        "seed": 0,
        "shuffle": True,
        "rejected": {},
    }
    position = Position(index, settings, partial(find_shards, devices=[None]))
    return BadRows(index, settings, position, stats, "skip", max_bad)


@pytest.mark.parametrize(
    ("max_bad", "allowed"),
    [
        (None, 10),
        (0, 0),
        (1, 1),
        (9, 9),
        (10, 10),
        (10**9, 10),
        (np.int64(1), 1),
        (0.0, 0),
        (0.1, 1),
        (0.19, 1),
        (0.5, 5),
        (0.99, 9),
        (1.0, 10),
        (np.float32(1), 10),
        (np.float64(0.5), 5),
    ],
    ids=repr,
)
def test_an_integer_is_rows_and_a_float_a_share_of_them(max_bad: float, allowed: int) -> None:
    stats = LoaderStats()
    made = bad_rows(max_bad, stats)
    for row in range(allowed):
        made.reject(row, "damaged")
        made.reject(row, "damaged")  # again in the next epoch: it counts once
    for row in range(allowed, ROWS):
        with pytest.raises(ReadError, match=rf"/{row}.fits.*rejected rows: {row + 1}.*max_bad"):
            made.reject(row, "damaged")
    assert list(stats.rejected) == [*range(ROWS)]


@pytest.mark.parametrize("allowed", [7, 28, 29, 57, 58])
def test_a_share_of_a_hundred_rows_is_that_many(allowed: int) -> None:
    made = bad_rows(allowed / 100, LoaderStats(), Index.from_paths(map(str, range(100))))
    for row in range(allowed):
        made.reject(row, "damaged")
    with pytest.raises(ReadError, match=f"rejected rows: {allowed + 1}"):
        made.reject(allowed, "damaged")


@pytest.mark.parametrize("max_bad", [-1, -0.1, 1.1, 2.0, True, "1", float("nan"), float("inf")])
def test_other_limits_are_refused(max_bad: float) -> None:
    with pytest.raises(ValueError, match=f"max_bad.*rows.*share.*{max_bad!r}"):
        bad_rows(max_bad, LoaderStats())
