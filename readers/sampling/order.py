"""Order of an epoch: a computed map from position to row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from readers.values import check_bool, check_integer

Shuffle = bool | Literal["blocks", "buckets"]
"""Whether to shuffle all rows, or in blocks, see `readers.BlockOrder` and `BucketOrder`."""

VERSION = 2
"""Version of the orders. A saved position means other rows in another version. States without a
version have version 1."""

_MASK = (1 << 64) - 1
_SORTED_ROWS = 1 << 12
"""Maximum number of rows of an order that is a table (at most 32 kB) of sorted random numbers."""
_ROUNDS = 12
"""Rounds of the network, an even number. With probability 1 / side a round leaves two rows equal in
one half, so short sides need many rounds: with sides of 4 x 2 and 12 rounds, some orders of 8 rows
were up to 3 times as likely as others. Above `_SORTED_ROWS` rows, sides are at least 64. A round
takes 0.3 us."""
_STREAM = (0, 1)
"""Last words of the Philox counter; Draws and other orders use other words."""
_BLOCK = 1 << 14
"""Positions to compute at a time. They fit into the cache of a core."""


@dataclass(frozen=True, slots=True)
class Order:
    """Permutation of ``range(num_rows)`` for each epoch, in O(1) memory.

    The order depends only on the arguments. It is the same in all processes, on all machines and
    for any number of shards.

    Parameters
    ----------
    num_rows : int
        Rows of the Index, at least 1.
    seed : int
        Any integer from 0 to 2**64 - 1. Each seed gives different orders.
    shuffle : bool
        False for ``row == position`` in all epochs.

    Notes
    -----
    Up to 4096 rows are sorted by random Philox integers, keyed by seed and epoch, so all orders are
    equally likely. More rows are permuted by a generalised Feistel network (Black & Rogaway,
    "Ciphers with Arbitrary Finite Domains", CT-RSA 2002, method 3) on Z_a x Z_b with a*b just above
    num_rows. Results out of range are permuted again (cycle walking), 1.0 steps on average. Both
    sides are even: with two odd sides all permutations would be even. The round function is the
    finaliser of SplitMix64 (Steele et al., OOPSLA 2014), keyed by Philox.

    tests/readers/sampling/test_order.py tests the uniformity over seeds and epochs: all orders of 3
    to 7 rows; the parity of orders; and for 2 to 10**12 rows the rows at the first, second and last
    position, and at neighbouring positions.
    """

    num_rows: int
    seed: int = 0
    shuffle: bool = True

    def __post_init__(self) -> None:
        check_integer("num_rows", self.num_rows, 1)
        check_integer("seed", self.seed, 0, _MASK)
        check_bool("shuffle", self.shuffle)

    def row(self, epoch: int, position: int) -> int:
        """Return the row of the Index at a position of an epoch.

        Parameters
        ----------
        epoch : int
            Epoch, counted from 0.
        position : int
            Position in ``[0, num_rows)``.

        Raises
        ------
        IndexError
            If the position is out of range.
        """
        if not 0 <= position < self.num_rows:
            raise IndexError(f"position must be in [0, {self.num_rows}), got {position}")
        return permuted(position, self.num_rows, self.seed, epoch) if self.shuffle else position

    def rows(self, epoch: int, positions: ArrayLike) -> NDArray[np.int64]:
        """Return the rows of the Index at many positions, 50 times as fast as by `row`.

        Parameters
        ----------
        epoch : int
            Epoch, counted from 0.
        positions : array_like of int
            Positions in ``[0, num_rows)``, of any shape.

        Returns
        -------
        ndarray of int64
            `row` for each position, of the same shape.

        Raises
        ------
        IndexError
            If a position is out of range.
        TypeError
            If the positions are not integers.
        """
        rows = np.array(positions).astype(np.int64, casting="same_kind")
        flat = rows.reshape(-1)
        if outside := flat[(flat < 0) | (flat >= self.num_rows)].tolist():
            raise IndexError(f"positions must be in [0, {self.num_rows}), got {outside[0]}")
        if not self.shuffle:
            return rows
        if self.num_rows <= _SORTED_ROWS:
            flat[:] = _sorted_rows(self.seed, epoch, _STREAM, self.num_rows)[flat]
            return rows
        keys = np.array(_round_keys(self.seed, epoch, _STREAM), np.uint64)
        a, b = map(np.uint64, _sides(self.num_rows))
        for start in range(0, len(flat), _BLOCK):
            block = flat[start : start + _BLOCK].view(np.uint64)
            block[:] = _permute_all(block, a, b, keys)
            while len(walking := np.flatnonzero(block >= self.num_rows)):
                block[walking] = _permute_all(block[walking], a, b, keys)
        return rows

    def draws_number(self, position: int, row: int) -> int:
        """Return the number of a sample for Draws: its row, which occurs once per epoch."""
        return row


def permuted(
    position: int, num_rows: int, seed: int, epoch: int, stream: tuple[int, int] = _STREAM
) -> int:
    """Return the row at a position in a permutation of ``range(num_rows)``, see `Order`.

    `stream`, the last two words of the counter, selects the permutation.
    """
    if num_rows <= _SORTED_ROWS:
        return int(_sorted_rows(seed, epoch, stream, num_rows)[position])
    keys, (a, b) = _round_keys(seed, epoch, stream), _sides(num_rows)
    row = _permute(position, a, b, keys)
    while row >= num_rows:
        row = _permute(row, a, b, keys)
    return row


def _sides(num_rows: int) -> tuple[int, int]:
    a = _even(math.isqrt(num_rows - 1) + 1)
    return a, _even(-(-num_rows // a))


def _even(side: int) -> int:
    return side + side % 2


def _permute(value: int, a: int, b: int, keys: tuple[int, ...]) -> int:
    high, low = divmod(value, b)
    for even, odd in zip(keys[::2], keys[1::2], strict=True):
        high = (high + _mix(low ^ even)) % a
        low = (low + _mix(high ^ odd)) % b
    return high * b + low


def _permute_all(
    values: NDArray[np.uint64], a: np.uint64, b: np.uint64, keys: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    high, low = np.divmod(values, b)
    for even, odd in keys.reshape(-1, 2):
        high = (high + mix_all(low ^ even) % a) % a  # reduced first: 64 bits would overflow
        low = (low + mix_all(high ^ odd) % b) % b
    return high * b + low


def mix_all(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Apply the finaliser of SplitMix64 to the values, see `Order`."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _mix(value: int) -> int:
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


@lru_cache(maxsize=8)
def _sorted_rows(
    seed: int, epoch: int, stream: tuple[int, int], num_rows: int
) -> NDArray[np.int64]:
    return np.argsort(_random_integers(seed, epoch, stream, num_rows), kind="stable")


@lru_cache(maxsize=8)
def _round_keys(seed: int, epoch: int, stream: tuple[int, int]) -> tuple[int, ...]:
    return tuple(_random_integers(seed, epoch, stream, _ROUNDS).tolist())


def _random_integers(
    seed: int, epoch: int, stream: tuple[int, int], count: int
) -> NDArray[np.uint64]:
    key = np.array([seed, epoch], np.uint64)  # a list with a large seed would become floats
    counter = np.array([0, 0, *stream], np.uint64)
    # The raw output is the same in all versions of NumPy.
    return np.random.Philox(key=key, counter=counter).random_raw(count)
