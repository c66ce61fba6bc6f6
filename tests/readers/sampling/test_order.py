from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from strategies import seeds
from uniformity import check_uniform

from readers import Order
from readers.sampling.order import VERSION


@given(st.integers(1, 60) | st.integers(4000, 10**5), seeds, st.integers(0, 10**6))
def test_an_epoch_is_a_permutation(num_rows: int, seed: int, epoch: int) -> None:
    rows = Order(num_rows, seed).rows(epoch, range(num_rows))
    assert sorted(rows.tolist()) == list(range(num_rows))


@given(st.integers(1, 2**63 - 1), seeds, st.integers(0, 10**6), st.booleans(), st.data())
def test_many_rows_at_once(
    num_rows: int, seed: int, epoch: int, shuffle: bool, data: st.DataObject
) -> None:
    order = Order(num_rows, seed, shuffle)
    shapes = hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=7)
    kind = data.draw(st.sampled_from([np.int64, np.uint64]))
    positions = data.draw(hnp.arrays(kind, shapes, elements=st.integers(0, num_rows - 1)))
    before = positions.copy()
    rows = order.rows(epoch, positions)
    assert rows.dtype == np.int64
    assert rows.shape == positions.shape
    assert rows.reshape(-1).tolist() == [
        order.row(epoch, p) for p in positions.reshape(-1).tolist()
    ]
    np.testing.assert_array_equal(positions, before)


def test_more_rows_at_once_than_are_worked_on_at_one_time() -> None:
    order = Order(100_003, 5)  # of which a few are walked back into the range
    rows = order.rows(2, range(100_003))
    assert sorted(rows.tolist()) == list(range(100_003))
    places = range(0, 100_003, 997)
    assert rows[list(places)].tolist() == [order.row(2, position) for position in places]


@given(st.integers(50, 1000), seeds, st.integers(0, 10**6))
def test_epochs_and_seeds_differ(num_rows: int, seed: int, epoch: int) -> None:
    first = rows_of(Order(num_rows, seed), epoch)
    assert first != rows_of(Order(num_rows, seed), epoch + 1)
    assert first != rows_of(Order(num_rows, seed ^ 1), epoch)
    assert first != rows_of(Order(num_rows, seed ^ 1 << 63), epoch)


@pytest.mark.parametrize("epoch", [0, 3])
def test_without_shuffling_row_is_position(epoch: int) -> None:
    order = Order(10, 7, shuffle=False)
    assert rows_of(order, epoch) == list(range(10))
    with pytest.raises(IndexError):
        order.row(epoch, 10)


def test_another_process_gives_the_same(fresh_python: Callable[..., bytes]) -> None:
    code = "from readers import Order\nprint([Order(99, 2**64 - 1).row(5, p) for p in range(99)])"
    assert fresh_python(code).decode().strip() == str(rows_of(Order(99, 2**64 - 1), 5))


# These values change only with readers.sampling.order.VERSION: states that were saved before are
# refused.
GOLDEN = [
    (1, 0, 0, [0]),
    (2, 1, 0, [0, 1]),
    (10, 0, 0, [8, 7, 4, 2, 6, 5, 9, 0, 1, 3]),
    (10, 0, 1, [0, 1, 5, 4, 6, 9, 2, 8, 3, 7]),
    (10, 1, 0, [4, 0, 5, 6, 2, 7, 8, 3, 9, 1]),
    (4096, 7, 3, [3131, 3040, 2857, 4041, 504]),
    (4097, 7, 3, [82, 2192, 1334, 2446, 1860]),
    (5000, 7, 3, [4309, 2608, 2423, 538, 154]),
    (10**9, 12345, 9, [508470868, 351676982, 403010636, 297246024, 327198534]),
    (10**12, 2**64 - 1, 2, [152725274907, 517274093184, 234581231274, 509813324257, 250363494199]),
    (2**40, 2**63 - 1, 0, [163481475658, 79948759653, 807346938949, 941834215101, 420994783266]),
]


def test_version_of_the_golden_orders() -> None:
    assert VERSION == 2


@pytest.mark.parametrize(("num_rows", "seed", "epoch", "rows"), GOLDEN)
def test_the_order_stays_the_same_between_versions(
    num_rows: int, seed: int, epoch: int, rows: list[int]
) -> None:
    all_of_them = len(rows) == num_rows
    positions = range(num_rows) if all_of_them else (0, 1, 2, num_rows // 2, num_rows - 1)
    assert [Order(num_rows, seed).row(epoch, position) for position in positions] == rows


def orders(over: str, num_rows: int, count: int) -> list[tuple[Order, int]]:
    """Return `count` pairs of an Order and an epoch, which differ in the seed or the epoch."""
    if over == "seeds":
        return [(Order(num_rows, seed), 0) for seed in range(count)]
    return [(Order(num_rows, 1), epoch) for epoch in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize("over", ["seeds", "epochs"])
class TestUniform:
    @pytest.mark.parametrize("num_rows", [2, 3, 4, 5, 10, 52])
    def test_pairs_of_rows_of_a_short_index(self, num_rows: int, over: str) -> None:
        cells = num_rows * (num_rows - 1)
        pairs = [
            (order.row(epoch, 0), order.row(epoch, 1))
            for order, epoch in orders(over, num_rows, max(2000, 5 * cells))
        ]
        if num_rows > 2:
            check_uniform(pairs, cells)
        check_uniform((first for first, _ in pairs), num_rows)
        check_uniform((second for _, second in pairs), num_rows)

    @pytest.mark.parametrize("num_rows", [1000, 4097, 4356, 10**6, 10**12])
    def test_first_last_and_neighbouring_rows_of_a_long_index(
        self, num_rows: int, over: str
    ) -> None:
        places = [0, 1, num_rows - 1]
        rows = np.array(
            [
                [order.row(epoch, place) for place in places]
                for order, epoch in orders(over, num_rows, 10 * 256)
            ]
        )
        cells = rows * 16 // num_rows
        for column in cells.T:
            check_uniform(column.tolist(), 16)
        pairs = 16 * cells[:, 0] + cells[:, 1]
        check_uniform(pairs.tolist(), 256)
        distances = (rows[:, 1] - rows[:, 0]) % num_rows * 16 // num_rows
        check_uniform(distances.tolist(), 16)

    @pytest.mark.parametrize("num_rows", [3, 4, 5, 6, 7])
    def test_every_order_of_few_rows_is_as_likely(self, num_rows: int, over: str) -> None:
        cells = math.factorial(num_rows)
        met = whole_epochs(over, num_rows, min(20 * cells, 6 * math.factorial(7)))
        check_uniform((met @ num_rows ** np.arange(num_rows)).tolist(), cells)

    def test_odd_and_even_orders_of_few_rows_are_as_likely(self, over: str) -> None:
        for num_rows in range(2, 61):
            met = whole_epochs(over, num_rows, 100)
            later, earlier = np.tril_indices(num_rows, -1)
            inversions = (met[:, earlier] > met[:, later]).sum(axis=1)
            check_uniform((inversions % 2).tolist(), 2)

    @pytest.mark.parametrize("num_rows", [4096, 4097, 4225, 4356, 4489, 5184])
    def test_odd_and_even_orders_of_many_rows_are_as_likely(self, num_rows: int, over: str) -> None:
        met = whole_epochs(over, num_rows, 100)
        check_uniform(((num_rows - cycles(rows)) % 2 for rows in met.tolist()), 2)


def whole_epochs(over: str, num_rows: int, count: int) -> NDArray[Any]:
    """Return the rows of whole epochs, shape (count, num_rows)."""
    every = np.arange(num_rows)
    return np.array([order.rows(epoch, every) for order, epoch in orders(over, num_rows, count)])


def cycles(rows: NDArray[Any]) -> int:
    count, unseen = 0, bytearray([1]) * len(rows)
    while (row := unseen.find(1)) >= 0:
        count += 1
        while unseen[row]:
            unseen[row] = 0
            row = rows[row]
    return count


@pytest.mark.parametrize("num_rows", [10**9, 2**40])
def test_many_rows_take_no_memory(num_rows: int) -> None:
    order = Order(num_rows, 3)
    order.row(0, 0)
    tracemalloc.start()
    for position in range(0, num_rows, num_rows // 1000):
        order.row(0, position)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50_000


@pytest.mark.parametrize("num_rows", [10**9, 10**12, 2**40])
def test_many_rows_are_distinct_and_spread(num_rows: int) -> None:
    order = Order(num_rows, 3)
    rows = order.rows(0, range(100_000)).tolist()
    assert len(set(rows)) == len(rows)
    assert min(rows) >= 0
    assert max(rows) < num_rows
    check_uniform((row * 64 // num_rows for row in rows), 64)
    check_uniform((row % 64 for row in rows), 64)


@pytest.mark.parametrize("seed", [2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1])
def test_large_seeds_are_told_apart(seed: int) -> None:
    assert rows_of(Order(100, seed), 1) != rows_of(Order(100, seed - 1), 1)


ERRORS: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: Order(0), ValueError, "num_rows.*0"),
    (lambda: Order(-3), ValueError, "num_rows.*-3"),
    (lambda: Order(3, -1), ValueError, "seed.*-1"),
    (lambda: Order(3, 2**64), ValueError, "seed.*18446744073709551"),
    (lambda: Order(3).row(0, 3), IndexError, r"position.*\[0, 3\), got 3"),
    (lambda: Order(3).row(0, -1), IndexError, r"position.*\[0, 3\), got -1"),
    (lambda: Order(3).row(-1, 0), OverflowError, "."),
    (lambda: Order(3).rows(0, [0, 3]), IndexError, r"positions.*\[0, 3\), got 3"),
    (lambda: Order(3).rows(0, -1), IndexError, r"positions.*\[0, 3\), got -1"),
    (lambda: Order(3).rows(0, [0.5]), TypeError, "Cannot cast"),
]


@pytest.mark.parametrize(("make", "error", "words"), ERRORS)
def test_errors(make: Callable[[], object], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make()


def rows_of(order: Order, epoch: int) -> list[int]:
    return [order.row(epoch, position) for position in range(order.num_rows)]
