from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds
from uniformity import check_uniform

from readers import Draws, Order

numbers = st.integers(0, 2**63 - 1)


@given(seeds, numbers, numbers)
def test_pure_and_in_range(seed: int, epoch: int, row: int) -> None:
    draws = Draws.of(seed, epoch, row)
    assert draws == Draws.of(seed, epoch, row)
    assert 0 <= draws.y < 1
    assert 0 <= draws.x < 1
    assert {draws.horizontal, draws.vertical} <= {True, False}
    assert 0 <= draws.turn < 1
    assert 0 <= draws.zoom < 1


@given(seeds, numbers, numbers)
def test_all_arguments_count(seed: int, epoch: int, row: int) -> None:
    others = [(seed ^ 1, epoch, row), (seed, epoch ^ 1, row), (seed, epoch, row ^ 1)]
    others += [(seed ^ 1 << 63, epoch, row), (seed, epoch ^ 1 << 62, row)]
    here = Draws.of(seed, epoch, row)
    assert all(Draws.of(*other).y != here.y for other in others)


# These values may never change: a run that was saved by one version goes on in the next.
# fmt: off
GOLDEN: list[tuple[tuple[int, int, int], Any]] = [
    ((0, 0, 0), (0.011546754286331562, 0.24154919656271812, True, False,
                 0.5644146215636283, 0.18685465212911367)),
    ((0, 0, 1), (0.5023796042735054, 0.27760557688455356, True, True,
                 0.9860662461724132, 0.40485142078250647)),
    ((0, 1, 0), (0.8133540609793564, 0.7513314251083365, True, False,
                 0.4831239797640592, 0.9157508462667465)),
    ((1, 0, 0), (0.3035680343067586, 0.8487087496857769, False, True,
                 0.031106436857953668, 0.4141313214786351)),
    ((7, 3, 10**9), (0.038860645198978694, 0.933742555605761, True, True,
                     0.721344445599243, 0.8706797165796161)),
]
# fmt: on
GOLDEN_FRACTIONS = [
    0.5690960045252662,
    0.9290758925699316,
    0.06477233496693535,
    0.6351454500482038,
    0.8709810764285081,
]
GOLDEN_GRAPH = [14655162, 8469258, 14254838, 12193216, 14030484]


@pytest.mark.parametrize(("arguments", "draws"), GOLDEN)
def test_the_draws_stay_the_same_between_versions(
    arguments: tuple[int, int, int], draws: Any
) -> None:
    assert Draws.of(*arguments) == Draws(*draws)


@given(seeds, numbers, numbers)
def test_the_words_are_those_of_a_new_generator(seed: int, epoch: int, row: int) -> None:
    key = np.array([seed, epoch], np.uint64)
    expected = np.random.Philox(key=key, counter=[row, 0, 0, 0]).random_raw(4).tolist()
    draws = Draws.of(seed, epoch, row)
    assert [int(draws.y * 2**53), int(draws.x * 2**53)] == [word >> 11 for word in expected[:2]]
    assert [draws.horizontal, draws.vertical] == [bool(expected[2] & bit) for bit in (1, 2)]
    halves = int(draws.turn * 2**32), int(draws.zoom * 2**32)
    assert halves == divmod(expected[3], 2**32)


def test_more_numbers_stay_the_same_between_versions() -> None:
    draws = Draws.of(7, 3, 2)
    assert draws.fractions(5).tolist() == GOLDEN_FRACTIONS
    assert [int(number * 2**24) for number in draws.graph_fractions(5)] == GOLDEN_GRAPH


@given(seeds, numbers, numbers, st.integers(0, 9))
def test_more_numbers_are_those_of_a_new_generator(
    seed: int, epoch: int, row: int, count: int
) -> None:
    draws, key = Draws.of(seed, epoch, row), np.array([seed, epoch], np.uint64)
    for stream, numbers, bits in (
        (3, draws.fractions(count), 53),
        (4, draws.graph_fractions(count), 24),
    ):
        words = np.random.Philox(key=key, counter=[0, 0, row, stream]).random_raw(count)
        assert [int(float(number) * 2**bits) for number in numbers] == [
            word >> (64 - bits) for word in words.tolist()
        ]


def test_nothing_else_counts(fresh_python: Callable[..., bytes]) -> None:
    """Neither the draws before nor NumPy's global state, in this process or another."""
    code = (
        "import numpy, random; numpy.random.seed(1); random.seed(1)\n"
        "from readers import Draws\n"
        "Draws.of(9, 9, 9); print(Draws.of(7, 3, 2))"
    )
    assert fresh_python(code).decode().strip() == str(Draws.of(7, 3, 2))


@pytest.mark.parametrize("over", ["rows", "epochs", "seeds"])
def test_uniform(over: str) -> None:
    draw: dict[str, Callable[[int], Draws]] = {
        "rows": lambda n: Draws.of(1, 0, n),
        "epochs": lambda n: Draws.of(1, n, 0),
        "seeds": lambda n: Draws.of(n, 0, 0),
    }
    drawn = [draw[over](n) for n in range(8000)]
    check_uniform((int(draws.y * 64) for draws in drawn), 64)
    check_uniform((int(draws.x * 64) for draws in drawn), 64)
    # All four together, then each with what follows it: all independent.
    cells = [
        (int(draws.y * 4), int(draws.x * 4), draws.horizontal, draws.vertical) for draws in drawn
    ]
    check_uniform(cells, 64)
    check_uniform(((a[0], b[0], a[2], b[2]) for a, b in pairwise(cells)), 64)
    turns = [(int(draws.turn * 8), int(draws.zoom * 8)) for draws in drawn]
    check_uniform(turns, 64)
    check_uniform(((a[1], int(b.y * 8)) for a, b in zip(turns, drawn[1:], strict=False)), 64)


def test_half_of_the_rows_are_flipped() -> None:
    drawn = [Draws.of(5, 2, row) for row in range(10_000)]
    assert 4800 < sum(draws.horizontal for draws in drawn) < 5200
    assert 4800 < sum(draws.vertical for draws in drawn) < 5200
    assert 2300 < sum(draws.horizontal and draws.vertical for draws in drawn) < 2700


@pytest.mark.parametrize("probability", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_flips_of_any_probability(probability: float) -> None:
    drawn = [Draws.of(5, 2, row) for row in range(10_000)]
    flips = np.array([draws.flips(probability) for draws in drawn])
    assert np.abs(flips.mean(axis=0) - probability).max() < 0.02
    assert abs(flips.all(axis=1).mean() - probability**2) < 0.02
    assert flips.tolist() == [list(Draws.of(5, 2, row).flips(probability)) for row in range(10_000)]
    if probability == 0.5:
        assert flips.tolist() == [[draws.horizontal, draws.vertical] for draws in drawn]


def test_draws_do_not_follow_the_order() -> None:
    """Both are Philox with the key (seed, epoch): a row's draws must not depend on its position."""
    order = Order(64, 3)
    at_start = (Draws.of(3, epoch, order.row(epoch, 0)) for epoch in range(8000))
    check_uniform(((int(draws.y * 8), int(draws.x * 8)) for draws in at_start), 64)
