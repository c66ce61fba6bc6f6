from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds
from uniformity import check_uniform

from readers import BlockOrder, BucketOrder
from readers.sampling.blocks import MIXED


def rows_of(order: BlockOrder | BucketOrder, epoch: int) -> list[int]:
    return [order.row(epoch, position) for position in range(order.num_rows)]


@given(st.integers(1, 700), st.integers(1, 60) | st.just(1000), seeds, st.integers(0, 10**6))
def test_an_epoch_is_a_permutation(num_rows: int, block: int, seed: int, epoch: int) -> None:
    order = BlockOrder(num_rows, seed, block)
    assert sorted(rows_of(order, epoch)) == list(range(num_rows))


@given(st.integers(1, 3000), st.integers(1, 60), seeds, st.integers(0, 10**6))
def test_rows_of_few_blocks_come_together(num_rows: int, block: int, seed: int, epoch: int) -> None:
    rows = rows_of(BlockOrder(num_rows, seed, block), epoch)
    size = MIXED * block
    for group in (sorted(rows[start : start + size]) for start in range(0, num_rows, size)):
        runs = 1 + sum(after != before + 1 for before, after in pairwise(group))
        # One more where a block goes from the last row on to the first, and the one left over.
        assert runs <= MIXED + 1 + 1


@given(st.integers(1, 3000), st.integers(1, 60), seeds, st.integers(0, 10**6))
def test_steps_are_of_rows_of_one_bucket(num_rows: int, block: int, seed: int, epoch: int) -> None:
    rows = rows_of(BucketOrder(num_rows, seed, block), epoch)
    assert sorted(rows) == list(range(num_rows))
    for start in range(0, num_rows, block):
        assert len({row // (MIXED * block) for row in rows[start : start + block]}) == 1


@pytest.mark.parametrize("over", ["seeds", "epochs"])
def test_every_row_of_a_bucket_is_as_likely_anywhere(over: str) -> None:
    """16 blocks of 2 rows are one bucket."""
    rows = [
        BucketOrder(32, *key).row(epoch, 5)
        for key, epoch in (
            ((n, 2), 0) if over == "seeds" else ((1, 2), n)  # a seed, or an epoch
            for n in range(40 * 32)
        )
    ]
    check_uniform(rows, 32)


def test_steps_of_any_size_follow_each_other() -> None:
    rows = rows_of(BucketOrder(16_000, 3, 10), 0)
    firsts = rows[::10]
    assert sum(abs(after - before) > 1000 for before, after in pairwise(firsts)) > 1200


def test_blocks_are_of_other_rows_and_elsewhere_in_each_epoch() -> None:
    order = BlockOrder(100_000, 4, 100)
    first, second = ({order.row(epoch, position) for position in range(1600)} for epoch in (0, 1))
    assert len(first & second) < 200
    assert len({row % 100 for row in first}) == 100


@pytest.mark.parametrize("over", ["seeds", "epochs"])
class TestUniform:
    @pytest.mark.parametrize("block_rows", [1, 2, 3, 4, 9])
    def test_every_row_is_as_likely_anywhere(self, block_rows: int, over: str) -> None:
        positions = (0, 3, 10, 36)
        met = [
            [order.row(epoch, position) for position in positions]
            for order, epoch in orders(over, block_rows, count=40 * 37)
        ]
        for rows in zip(*met, strict=True):
            check_uniform(rows, 37)

    def test_every_order_of_rows_that_are_all_mixed_is_as_likely(self, over: str) -> None:
        met = [tuple(rows_of(order, epoch)) for order, epoch in orders(over, 2, 5, count=20 * 120)]
        check_uniform(met, math.factorial(5))

    def test_distances_of_first_rows_in_large_blocks(self, over: str) -> None:
        rows = [
            (order.row(epoch, 0), order.row(epoch, MIXED * 5000))
            for order, epoch in orders(over, 5000, 10**6, count=100 * 16)
        ]
        check_uniform((first * 16 // 10**6 for first, _ in rows), 16)
        check_uniform((second * 16 // 10**6 for _, second in rows), 16)


def orders(
    over: str, block_rows: int, num_rows: int = 37, *, count: int
) -> list[tuple[BlockOrder, int]]:
    """Return `count` pairs of an order and an epoch, which differ in the seed or the epoch."""
    if over == "seeds":
        return [(BlockOrder(num_rows, seed, block_rows), 0) for seed in range(count)]
    order = BlockOrder(num_rows, 1, block_rows)
    return [(order, epoch) for epoch in range(count)]


def test_another_process_gives_the_same(fresh_python: Callable[..., bytes]) -> None:
    code = "from readers import BlockOrder\no = BlockOrder(99, 2**64 - 1, 7)\n"
    found = fresh_python(code + "print([o.row(5, p) for p in range(99)])").decode().strip()
    assert found == str(rows_of(BlockOrder(99, 2**64 - 1, 7), 5))


# These values change only with readers.sampling.order.VERSION, as those of Order.
GOLDEN: list[tuple[tuple[int, int, int], int, list[int]]] = [
    ((10, 0, 3), 0, [8, 9, 2, 0, 3]),
    ((10, 0, 3), 1, [8, 4, 1, 5, 6]),
    ((4097, 7, 256), 3, [1120, 13, 2723, 2920, 2431]),
    ((5000, 7, 1000), 3, [2592, 3821, 2391, 159, 2419]),
    ((10**9, 12345, 100), 9, [912072705, 343867294, 748998370, 265542475, 571808168]),
    (
        (10**12, 2**64 - 1, 10**6),
        2,
        [426682616556, 542735107438, 768610488719, 468548137909, 626566006179],
    ),
]


@pytest.mark.parametrize(("settings", "epoch", "rows"), GOLDEN)
def test_the_order_stays_the_same_between_versions(
    settings: tuple[int, int, int], epoch: int, rows: list[int]
) -> None:
    order = BlockOrder(*settings)
    assert [order.row(epoch, order.num_rows * n // 5) for n in range(5)] == rows


@pytest.mark.parametrize("position", [-1, 10])
def test_positions_outside(position: int) -> None:
    with pytest.raises(IndexError, match=rf"position.*\[0, 10\), got {position}"):
        BlockOrder(10).row(0, position)


@pytest.mark.parametrize(
    ("settings", "words"),
    [((0, 0, 1), "num_rows.*0"), ((1, -1, 1), "seed.*-1"), ((1, 0, 0), "block_rows.*0")],
)
def test_settings_are_checked(settings: tuple[int, int, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        BlockOrder(*settings)
