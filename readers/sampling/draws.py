"""The random numbers of one sample, the same wherever it is read."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

_USED_UP = np.zeros(4, np.uint64)


class _Philox(threading.local):
    """A generator for each thread, used again: to make one takes ten times as long as to draw."""

    def __init__(self) -> None:
        self._generator = np.random.Philox(0)

    def words(self, key: tuple[int, int], counter: tuple[int, int, int, int]) -> list[int]:
        """Return the four 64-bit words for a key and a counter."""
        self._generator.state = {
            "bit_generator": "Philox",
            "state": {"key": np.array(key, np.uint64), "counter": np.array(counter, np.uint64)},
            "buffer": _USED_UP,
            "buffer_pos": len(_USED_UP),
            "has_uint32": 0,
            "uinteger": 0,
        }
        return self._generator.random_raw(4).tolist()


_OWN = _Philox()


@dataclass(frozen=True, slots=True)
class Draws:
    """What chance decides for one row in one epoch.

    Counter-based: nothing is carried from sample to sample, so CPU and GPU, a resumed run, and a
    run on another number of GPUs draw the same.
    """

    y: float
    """Fraction in [0, 1) that places a random window vertically."""
    x: float
    """Fraction in [0, 1) that places a random window horizontally."""
    horizontal: bool
    """Flip left and right, with probability 1/2."""
    vertical: bool
    """Flip up and down, with probability 1/2."""
    turn: float
    """Fraction in [0, 1) that places the angle of a turned window in its range."""
    zoom: float
    """Fraction in [0, 1) that places the zoom of a window in its range."""

    @classmethod
    @lru_cache(maxsize=4)  # a window and its flips ask for the same
    def of(cls, seed: int, epoch: int, row: int) -> Draws:
        """Draw for a row.

        Parameters
        ----------
        seed : int
            In [0, 2**64), as for `readers.sampling.order.Order`.
        epoch, row : int
            Counted from 0.

        Notes
        -----
        Philox-4x64 (Salmon et al., SC 2011) with key (seed, epoch) and counter (row, 0, 0, 0). The
        raw output is used, which NumPy keeps stable from version to version.
        """
        # Four words and no more: a fifth would be the first of the next row.
        y, x, bits, halves = _OWN.words((seed, epoch), (row, 0, 0, 0))
        return cls(
            y=(y >> 11) * 2.0**-53,
            x=(x >> 11) * 2.0**-53,
            horizontal=bool(bits & 1),
            vertical=bool(bits & 2),
            turn=(halves >> 32) * 2.0**-32,
            zoom=(halves & 0xFFFFFFFF) * 2.0**-32,
        )
