"""What tests on a GPU compare with the CPU can fail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from on_gpu.devices import check, check_most, gathered

GOOD = {row: np.linspace(row, 200, 48, dtype=np.float32).reshape(1, 6, 8) for row in range(3)}


def changed(row: int, place: tuple[int, ...], by: float) -> dict[int, Any]:
    images = {number: image.copy() for number, image in GOOD.items()}
    images[row][place] += by
    return images


def test_one_wrong_pixel() -> None:
    check(GOOD, GOOD)
    check(changed(1, (0, 5, 7), 0.01), GOOD, atol=0.02)
    for by in (1e-4, 100, np.nan):
        with pytest.raises(AssertionError, match="row 1"):
            check(changed(1, (0, 5, 7), by), GOOD, rtol=1e-8)
    check_most(changed(2, (0, 0, 0), 1), GOOD)
    for by in (4, np.nan):
        with pytest.raises(AssertionError, match="row 2"):
            check_most(changed(2, (0, 0, 0), by), GOOD)


@pytest.mark.parametrize("compare", [check, check_most])
def test_a_row_that_is_missing_or_of_another_type(compare: Any) -> None:
    with pytest.raises(AssertionError):
        compare({row: GOOD[row] for row in (0, 2)}, GOOD)
    with pytest.raises(AssertionError):
        compare(GOOD | {1: GOOD[1].astype(np.float64)}, GOOD)
    with pytest.raises(AssertionError):
        compare(*[{0: np.full((1, 2, 2), 7.0)}] * 2)  # nothing was read


def test_a_row_that_comes_twice() -> None:
    batch: Any = {"row": torch.tensor([4]), "image": torch.zeros(1, 1, 2, 2)}
    assert list(gathered([[batch]])) == [4]
    with pytest.raises(AssertionError):
        gathered([[batch], [batch]])
