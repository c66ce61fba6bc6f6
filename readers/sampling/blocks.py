"""Orders that keep neighbouring rows of the Index together, in an epoch or in a step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from readers.sampling.draws import PHILOX
from readers.sampling.order import Order, permuted
from readers.values import check_integer

BLOCK_ROWS = 256
"""Default number of rows in a block."""
MIXED = 16
"""Number of consecutive blocks whose rows are shuffled together."""
_START, _BLOCKS, _FIRST_GROUP = 0, 1, 2
"""Third word of the Philox counters, by use."""
_STREAM = 5
"""Last word of the Philox counters; Draws and other orders use 0 to 4."""


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Settings and checks of both orders."""

    num_rows: int
    seed: int = 0
    block_rows: int = BLOCK_ROWS

    def __post_init__(self) -> None:
        Order(self.num_rows, self.seed)  # raises ValueError
        check_integer("block_rows", self.block_rows, 1)

    def row(self, epoch: int, position: int) -> int:
        """Return the row of the Index at a position of an epoch, both counted from 0.

        Raises
        ------
        IndexError
            If the position is not in ``[0, num_rows)``.
        """
        if not 0 <= position < self.num_rows:
            raise IndexError(f"position must be in [0, {self.num_rows}), got {position}")
        return self._row(epoch, position)

    def draws_number(self, position: int, row: int) -> int:
        """Return the number of a sample for Draws: its row, which occurs once per epoch."""
        return row

    def _row(self, epoch: int, position: int) -> int:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class BlockOrder(_Blocks):
    """Permutation of ``range(num_rows)`` for each epoch that uses few blocks at a time.

    The rows are cut into blocks of `block_rows` neighbours, from a different row on in each epoch.
    The blocks are shuffled. Then the rows of each `MIXED` consecutive blocks are shuffled together.
    So rows of one file, or of one part of a disk, are read in a short time. Like `readers.Order` it
    takes O(1) memory and depends only on the arguments.

    Parameters
    ----------
    num_rows : int
        Rows of the Index, at least 1.
    seed : int
        Any integer from 0 to 2**64 - 1. Each seed gives different orders.
    block_rows : int
        Rows of a block, at least 1: about the number of rows in a file, or stored together.

    Notes
    -----
    Both permutations are those of `Order`, with other counters. The last block has the remaining
    rows and comes last. Its rows differ between epochs, because the first block begins elsewhere.
    """

    def _row(self, epoch: int, position: int) -> int:
        size = MIXED * self.block_rows
        group, place = divmod(position, size)
        count = min(size, self.num_rows - group * size)
        key = self.seed, epoch
        place = permuted(place, count, *key, (_FIRST_GROUP + group, _STREAM))
        block, inside = divmod(group * size + place, self.block_rows)
        if block < (whole := self.num_rows // self.block_rows):
            block = permuted(block, whole, *key, (_BLOCKS, _STREAM))
        return (_start(*key) + block * self.block_rows + inside) % self.num_rows


@dataclass(frozen=True, slots=True)
class BucketOrder(_Blocks):
    """Permutation of ``range(num_rows)`` for each epoch with neighbouring rows in each step.

    A bucket is `MIXED` blocks of `block_rows` neighbours. The rows of each bucket are shuffled and
    cut into blocks again. Then all blocks are shuffled. If the Index is sorted by size or duration,
    the samples of a step have about the same size, but steps have all sizes in random order. Like
    `readers.Order` it takes O(1) memory and depends only on the arguments.

    Parameters
    ----------
    num_rows : int
        Rows of the Index, at least 1.
    seed : int
        Any integer from 0 to 2**64 - 1. Each seed gives different orders.
    block_rows : int
        Rows of a block, at least 1: the number of rows of one or several steps.

    Notes
    -----
    Both permutations are those of `Order`, with other counters. The last block, with the remaining
    rows of the last bucket, comes last.
    """

    def _row(self, epoch: int, position: int) -> int:
        key = self.seed, epoch
        block, inside = divmod(position, self.block_rows)
        if block < (whole := self.num_rows // self.block_rows):
            block = permuted(block, whole, *key, (_BLOCKS, _STREAM))
        size = MIXED * self.block_rows
        bucket, place = divmod(block * self.block_rows + inside, size)
        count = min(size, self.num_rows - bucket * size)
        return bucket * size + permuted(place, count, *key, (_FIRST_GROUP + bucket, _STREAM))


@lru_cache(maxsize=8)
def _start(seed: int, epoch: int) -> int:
    first, *_ = PHILOX.integers((seed, epoch), (0, 0, _START, _STREAM)).tolist()
    return int(first)
