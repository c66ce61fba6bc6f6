from __future__ import annotations

import math
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers import Index, WeightedOrder
from readers.index.rows.weights import RunningWeights


def index(weights: Any) -> Index:
    paths = [f"/é{row}" for row in range(len(weights))]
    return Index(pa.table({"path": paths, "w": weights}))


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=40).filter(any),
    st.integers(-300, 300),
    st.integers(0, 2**53 - 1),
)
def test_the_row_at_a_share(weights: list[int], exponent: int, numerator: int) -> None:
    """In whole numbers, which is exact, for weights however large or small."""
    found = RunningWeights(np.array(weights) * 2.0**exponent).row(numerator * 2.0**-53)
    wanted = numerator * sum(weights)
    before = sum(weights[:found]) << 53
    assert before <= wanted < before + (weights[found] << 53)


def test_no_row_without_weight_is_drawn() -> None:
    weights = np.random.default_rng(0).integers(0, 4, 3 * 4096 + 5).astype(np.float64)
    sums, running = np.cumsum(weights), RunningWeights(weights)
    for row in np.flatnonzero(weights)[::500]:
        share = math.floor((sums[row] - weights[row] / 2) / sums[-1] * 2**53) * 2.0**-53
        assert running.row(share) == row
    assert running.row(1 - 2.0**-53) == np.flatnonzero(weights)[-1]


@pytest.mark.parametrize("size", [1, 4096, 4097])
def test_all_weight_on_one_row(size: int) -> None:
    for row in {0, size // 2, size - 1}:
        weights = np.zeros(size)
        weights[row] = 1e-12
        running = RunningWeights(weights)
        assert {running.row(share) for share in (0.0, 0.5, 1 - 2.0**-53)} == {row}


def test_extreme_ratios() -> None:
    """1e-12 of all weight is drawn by that share; sums neither overflow nor vanish."""
    running = RunningWeights(np.array([1.0, 1e-12]))
    assert running.row(1 - 2e-12) == 0
    assert running.row(1 - 0.5e-12) == 1
    for extreme in (1.7e308, 5e-324):
        assert RunningWeights(np.full(4, extreme)).row(0.6) == 2


@pytest.mark.parametrize(
    "values",
    [[1, 0, 3], [True, False, True], [1.0, 0.0, 3.0], pa.array([1, 0, 3], pa.uint8())],
)
def test_columns_of_any_numbers(values: Any) -> None:
    running = index(values).running_weights("w")
    assert {running.row(share) for share in np.arange(0, 1, 0.01)} == {0, 2}


@pytest.mark.parametrize(
    ("weights", "error", "words"),
    [
        ([1.0, float("nan"), -1.0], ValueError, r"nan in row 1 \(/é1\).*: 2$"),
        ([1, 2, None], ValueError, r"None in row 2 \(/é2\).*: 1$"),
        ([1, -2, 3], ValueError, r"-2 in row 1 \(/é1\)"),
        ([1.0, float("inf")], ValueError, "inf in row 1"),
        ([True, None], ValueError, "None in row 1"),
        (pa.array([2**63, None], pa.uint64()), ValueError, "None in row 1"),
        ([0, 0, 0], ValueError, "0 in all 3 rows"),
        ([0.0, -0.0], ValueError, "0 in all 2 rows"),
        (["a"], TypeError, "string.*numbers"),
        (pa.array([1], pa.timestamp("s")), TypeError, r"timestamp\[s\].*numbers"),
    ],
)
def test_invalid_weights(weights: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=f"'w'.*{words}"):
        index(weights).running_weights("w")


def test_an_unknown_column() -> None:
    with pytest.raises(KeyError, match=r"'v'.*path, w"):
        index([1]).running_weights("v")


def test_the_digest_is_of_the_values(tmp_path: Path) -> None:
    weights = np.arange(1.0, 10_001)
    digest = index(weights).running_weights("w").digest
    index(weights).save(tmp_path / "index.arrow")
    assert Index.load(tmp_path / "index.arrow").running_weights("w").digest == digest
    assert index(weights.astype(np.int16)).running_weights("w").digest == digest
    weights[5000] += 1
    assert index(weights).running_weights("w").digest != digest


def test_users_share_one_file() -> None:
    weighted = index([1, 2])
    running = weighted.running_weights("w")
    assert weighted.running_weights("w") is running


def test_other_processes_draw_the_same() -> None:
    """From the same file, with little memory of their own: 8 bytes a row would be 160 MB."""
    running = RunningWeights(np.random.default_rng(0).random(20_000_000))
    order = WeightedOrder(running, 7)
    program = (
        "import pickle, sys\n"
        "def own_kb():\n"
        "    with open('/proc/self/smaps_rollup') as file:\n"
        "        sizes = dict(line.split()[:2] for line in file.read().splitlines()[1:])\n"
        "    return int(sizes['Anonymous:'])\n"
        "order = pickle.load(sys.stdin.buffer)\n"
        "order.row(0, 0)\n"
        "before = own_kb()\n"
        "print([order.row(1, position) for position in range(5000)])\n"
        "assert own_kb() - before < 20_000\n"
    )
    pickled = pickle.dumps(order)
    assert len(pickled) < 50_000
    found = subprocess.run(
        [sys.executable, "-c", program], input=pickled, capture_output=True, check=True
    )
    assert found.stdout.decode().strip() == str([order.row(1, p) for p in range(5000)])
