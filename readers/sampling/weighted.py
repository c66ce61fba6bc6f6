"""Order that draws rows with replacement, in proportion to weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from readers.sampling.draws import PHILOX
from readers.values import check_integer

_DRAWN = 1 << 63


class Weights(Protocol):
    """Weights for `WeightedOrder`, see `readers.index.rows.weights.RunningWeights`."""

    def __len__(self) -> int:
        """Return the number of rows."""
        ...

    def row(self, share: float) -> int:
        """Return the row at a fraction, in [0, 1), of the sum of all weights."""
        ...


@dataclass(frozen=True, slots=True)
class WeightedOrder:
    """Row for each position of each epoch, drawn independently in proportion to weights.

    An epoch has one position per row of the Index. A row can be at several positions or at none.
    Like `readers.Order` it depends only on the arguments.

    Notes
    -----
    The random numbers are Philox-4x64 with key (seed, epoch) and counter (position, 0, 0, 2). Draws
    and Order use other last words.
    """

    weights: Weights
    seed: int = 0

    @property
    def num_rows(self) -> int:
        """Rows of the Index, and positions of an epoch."""
        return len(self.weights)

    def __post_init__(self) -> None:
        check_integer("seed", self.seed, 0, 2**64 - 1)

    def row(self, epoch: int, position: int) -> int:
        """Return the row of the Index at a position of an epoch, both counted from 0.

        Raises
        ------
        IndexError
            If the position is not in ``[0, num_rows)``.
        ReadError
            If the weights cannot be read.
        """
        if not 0 <= position < self.num_rows:
            raise IndexError(f"position must be in [0, {self.num_rows}), got {position}")
        first, *_ = PHILOX.integers((self.seed, epoch), (position, 0, 0, 2)).tolist()
        return self.weights.row((first >> 11) * 2.0**-53)

    def draws_number(self, position: int, row: int) -> int:
        """Return the number of a sample for Draws, which differs for repeated rows."""
        return _DRAWN | position
