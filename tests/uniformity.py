"""Pearson's test of uniformity: SciPy is not among the dependencies."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping


def chi_square(seen: Iterable[Hashable], cells: int) -> float:
    """Return the statistic of `seen`, which has `cells` values that ought to be equally likely."""
    counts: Mapping[Hashable, int] = Counter(seen)
    expected = sum(counts.values()) / cells
    assert expected >= 5, "too few observations for the test"
    assert len(counts) <= cells
    unseen = (cells - len(counts)) * expected
    return sum((n - expected) ** 2 for n in counts.values()) / expected + unseen


def check_uniform(seen: Iterable[Hashable], cells: int, sigma: float = 4.5) -> None:
    """Fail beyond `sigma` standard deviations, above (biased) or below (too even).

    The cube root of chi-square per degree of freedom is nearly normal (Wilson & Hilferty 1931).
    """
    freedom = cells - 1
    root = (chi_square(seen, cells) / freedom) ** (1 / 3)
    deviation = (root - (1 - 2 / (9 * freedom))) / math.sqrt(2 / (9 * freedom))
    assert abs(deviation) < sigma, f"{deviation:.1f} standard deviations from uniform"
