"""An order in which rows that are near each other in the Index stay so: shuffled in blocks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from readers.sampling.draws import PHILOX
from readers.sampling.order import Order, permuted
from readers.values import check_integer

BLOCK_ROWS = 256
"""Rows of a block by default."""
MIXED = 16
"""Blocks whose rows are shuffled with each other."""
_START, _BLOCKS, _FIRST_GROUP = 0, 1, 2
"""Third word of the counters below."""
_STREAM = 5
"""Last word of the counter of Philox; Draws and the other orders have 0 to 4."""


@dataclass(frozen=True, slots=True)
class BlockOrder:
    """A permutation of ``range(num_rows)`` for each epoch that visits few places at a time.

    The rows are cut into blocks of `block_rows` neighbours, from another row on in each epoch. The
    blocks are shuffled, and then the rows of each `MIXED` blocks that follow each other. So a
    reader meets the rows of one file, or of one part of a disk, close together. Like
    `readers.sampling.order.Order` it takes O(1) memory and depends on nothing but the arguments.

    Parameters
    ----------
    num_rows : int
        Rows of the Index, at least 1.
    seed : int
        Any integer from 0 to 2**64 - 1. Each seed gives other orders.
    block_rows : int
        Rows of a block, at least 1: about as many as a file has, or as are stored near each other.

    Notes
    -----
    Both permutations are those of `Order`, with counters of their own. The block that is left over,
    of fewer rows, comes last; which rows it has follows from the row where the epoch's first block
    begins.
    """

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
            raise IndexError(f"position must lie in [0, {self.num_rows}), got {position}")
        size = MIXED * self.block_rows
        group, place = divmod(position, size)
        count = min(size, self.num_rows - group * size)
        key = self.seed, epoch
        place = permuted(place, count, *key, (_FIRST_GROUP + group, _STREAM))
        block, inside = divmod(group * size + place, self.block_rows)
        if block < (whole := self.num_rows // self.block_rows):
            block = permuted(block, whole, *key, (_BLOCKS, _STREAM))
        return (_start(*key) + block * self.block_rows + inside) % self.num_rows

    def draws_number(self, position: int, row: int) -> int:
        """Return the number of a sample for Draws: its row, which an epoch has once."""
        return row


@lru_cache(maxsize=8)
def _start(seed: int, epoch: int) -> int:
    first, *_ = PHILOX.integers((seed, epoch), (0, 0, _START, _STREAM)).tolist()
    return int(first)
