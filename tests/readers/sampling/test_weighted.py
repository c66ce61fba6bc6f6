from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from torch.utils.data import WeightedRandomSampler

from readers import Draws, WeightedOrder
from readers.index.rows.weights import RunningWeights

PROBABILITY = 1e-4
"""Of a test that fails although all is well, if its seed were drawn."""


def order(weights: NDArray[np.float64], seed: int = 0) -> WeightedOrder:
    return WeightedOrder(RunningWeights(np.asarray(weights, np.float64)), seed)


def drawn(weighted: WeightedOrder, epochs: int) -> NDArray[np.int64]:
    rows = range(weighted.num_rows)
    return np.array(
        [[weighted.row(epoch, position) for position in rows] for epoch in range(epochs)]
    )


@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
def test_frequencies_are_those_of_torch(seed: int) -> None:
    weights = np.random.default_rng(5).choice([0.0, 1e-3, 0.1, 1.0, 20.0], 400)
    ours = np.bincount(drawn(order(weights, seed), 50).ravel(), minlength=400)
    generator = torch.Generator().manual_seed(seed % 2**63)
    sampler = WeightedRandomSampler(weights.tolist(), 20_000, generator=generator)
    theirs = np.bincount([*sampler], minlength=400)
    assert ours[weights == 0].sum() == theirs[weights == 0].sum() == 0
    # Rows of one weight, but of those that are drawn often each alone.
    alone, rare = weights == 20, [weights == weight for weight in (1e-3, 0.1, 1.0)]
    counts = [[*count[alone], *(count[rows].sum() for rows in rare)] for count in (ours, theirs)]
    kept = np.array(counts).T.min(axis=1) >= 5
    assert kept.sum() > 50
    assert stats.chi2_contingency(np.array(counts)[:, kept]).pvalue > PROBABILITY
    expected = np.array([*weights[alone], *(weights[rows].sum() for rows in rare)])
    expected *= 20_000 / weights.sum()
    assert stats.chisquare(counts[0], expected, sum_check=False).pvalue > PROBABILITY


def test_draws_are_independent() -> None:
    """Of the position before, and of the same position in another epoch."""
    weights = np.array([1.0, 2.0, 3.0, 4.0])
    rows = np.concatenate([drawn(order(np.tile(weights, 25), seed), 20) % 4 for seed in range(10)])
    pairs = [(rows[:, :-1].ravel(), rows[:, 1:].ravel()), (rows[:-1].ravel(), rows[1:].ravel())]
    for first, second in pairs:
        table = np.bincount(first * 4 + second, minlength=16).reshape(4, 4)
        assert stats.chi2_contingency(table).pvalue > PROBABILITY


def test_equal_weights_leave_1_in_e_rows_out() -> None:
    rows = drawn(order(np.ones(5000)), 4)
    for epoch in rows:
        missing = 5000 - len(set(epoch.tolist()))
        # Variance of the number of empty cells: n (1/e - 2/e^2).
        assert abs(missing - 5000 / np.e) < 4 * (5000 * (1 / np.e - 2 / np.e**2)) ** 0.5
    repeats = Counter(rows[0].tolist()).values()
    assert max(repeats) > 1


def test_the_draw_is_pure() -> None:
    """And stays: a state that was saved must mean the same rows in all releases."""
    weighted = order(np.arange(1.0, 101), 3)
    first = [weighted.row(2, position) for position in range(8)]
    assert first == [weighted.row(2, position) for position in reversed(range(8))][::-1]
    assert first == [47, 86, 59, 79, 91, 63, 44, 50]
    assert [order(np.arange(1.0, 101), 4).row(2, position) for position in range(8)] != first


def test_numbers_of_draws_are_apart() -> None:
    """Those of positions and those of rows, and from the draw of the row itself."""
    weighted = order(np.ones(3))
    assert weighted.draws_number(1, 0) != weighted.draws_number(2, 0)
    draws = [Draws.of(0, 0, row) for row in range(3)]
    assert Draws.of(0, 0, weighted.draws_number(1, 0)) not in draws


@pytest.mark.parametrize("position", [-1, 3])
def test_outside(position: int) -> None:
    with pytest.raises(IndexError, match=rf"position.*\[0, 3\), got {position}"):
        order(np.ones(3)).row(0, position)
