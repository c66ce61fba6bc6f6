"""Random numbers of one sample, the same in all processes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_USED_UP = np.zeros(4, np.uint64)


class _Philox(threading.local):
    """Generator of each thread. It is reused: making one takes ten times as long as drawing."""

    def __init__(self) -> None:
        self._generator = np.random.Philox(0)

    def integers(
        self, key: tuple[int, int], counter: tuple[int, int, int, int], count: int = 4
    ) -> NDArray[np.uint64]:
        """Return 64-bit integers for a key and a counter; the counter counts blocks of four."""
        self._generator.state = {
            "bit_generator": "Philox",
            "state": {"key": np.array(key, np.uint64), "counter": np.array(counter, np.uint64)},
            "buffer": _USED_UP,
            "buffer_pos": len(_USED_UP),
            "has_uint32": 0,
            "uinteger": 0,
        }
        return self._generator.random_raw(count)


PHILOX = _Philox()
"""Generator of random integers from a key and a counter."""

ATTEMPTS = 10
"""Number of attempts at a random region, as in torchvision and DALI."""


@dataclass(frozen=True, slots=True)
class Draws:
    """Random numbers of one row in one epoch.

    The numbers are counter-based, without state between samples. So they are the same on a CPU and
    a GPU, in a resumed run, and for any number of GPUs.
    """

    y: float
    """Fraction in [0, 1) that places a random window vertically."""
    x: float
    """Fraction in [0, 1) that places a random window horizontally."""
    horizontal: bool
    """True to flip left and right, with probability 1/2."""
    vertical: bool
    """True to flip up and down, with probability 1/2."""
    turn: float
    """Fraction in [0, 1) that selects the rotation angle of a window from its range."""
    zoom: float
    """Fraction in [0, 1) that selects the zoom of a window from its range."""
    key: tuple[int, int, int] = field(default=(0, 0, 0), compare=False)
    """Seed, epoch and row, which determine `fractions` and `graph_fractions`."""

    @classmethod
    @lru_cache(maxsize=4)  # called for the window and the flips of a row
    def of(cls, seed: int, epoch: int, row: int) -> Draws:
        """Draw the numbers of a row.

        Parameters
        ----------
        seed : int
            Seed in [0, 2**64), as for `readers.Order`.
        epoch, row : int
            Epoch and row, counted from 0. For rows drawn by weights, `row` is
            `readers.WeightedOrder.draws_number`.

        Notes
        -----
        Philox-4x64 (Salmon et al., SC 2011) with key (seed, epoch) and counter (row, 0, 0, 0). The
        raw output is the same in all versions of NumPy.
        """
        # Only four integers: a fifth would belong to the next row.
        y, x, bits, halves = PHILOX.integers((seed, epoch), (row, 0, 0, 0)).tolist()
        return cls(
            y=(y >> 11) * 2.0**-53,
            x=(x >> 11) * 2.0**-53,
            horizontal=bool(bits & 1),
            vertical=bool(bits & 2),
            turn=(halves >> 32) * 2.0**-32,
            zoom=(halves & 0xFFFFFFFF) * 2.0**-32,
            key=(seed, epoch, row),
        )

    def flips(self, probability: float) -> tuple[bool, bool]:
        """Return whether to flip left and right, and up and down, each with this probability.

        With 1/2 these are `horizontal` and `vertical`. Otherwise counters are (block, 0, row, 5).
        """
        if probability == 0.5:
            return self.horizontal, self.vertical
        across, down = ((self._more(5, 2) >> np.uint64(11)) * 2.0**-53 < probability).tolist()
        return across, down

    def fractions(self, count: int) -> NDArray[np.float64]:
        """Return numbers in [0, 1), shape (count,), for the Reader.

        The first numbers do not depend on `count`. Counters are (block, 0, row, 3).
        """
        return (self._more(3, count) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def graph_fractions(self, count: int) -> NDArray[np.float32]:
        """Return numbers in [0, 1), shape (count,), for the operators of the graph.

        They have 24 bits, so float32 is exact. Counters are (block, 0, row, 4).
        """
        return (self._more(4, count) >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)

    def _more(self, stream: int, count: int) -> NDArray[np.uint64]:
        seed, epoch, row = self.key
        return PHILOX.integers((seed, epoch), (0, 0, row, stream), count)


@dataclass(frozen=True, slots=True)
class RandomPairs:
    """`ATTEMPTS` pairs of fractions in [0, 1) of one row in one epoch, without state like `Draws`.

    Pairs are drawn during the iteration. Counters are (row, k, 0, 0) with k from 1 to 5; `Draws`
    uses k = 0.
    """

    seed: int
    epoch: int
    row: int

    def __iter__(self) -> Iterator[tuple[float, float]]:
        for block in range(1, 1 + ATTEMPTS // 2):
            words = PHILOX.integers((self.seed, self.epoch), (self.row, block, 0, 0)).tolist()
            a, b, c, d = ((word >> 11) * 2.0**-53 for word in words)
            yield a, b
            yield c, d
