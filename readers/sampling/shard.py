"""Distribution of positions over shards."""

from __future__ import annotations

from dataclasses import dataclass

from readers.values import check_integer, is_integer


@dataclass(frozen=True, slots=True)
class Shard:
    """One of several equal parts of each step, `shard_id` of `num_shards` as in DALI.

    Positions of an epoch are distributed batch by batch. So all shards have the same number of
    steps, and position p is in step ``p // (num_shards * batch_size)``. For 3 shards, batch_size 2
    and 14 positions::

                  step 0       step 1       step 2
        shard 0    0  1         6  7        12 13
        shard 1    2  3         8  9         -  -
        shard 2    4  5        10 11         -  -

    The slots marked ``-`` are the tail, see `readers.Tail`.
    """

    shard_id: int = 0
    num_shards: int = 1

    def __post_init__(self) -> None:
        check_integer("num_shards", self.num_shards, 1)
        if not is_integer(self.shard_id) or not 0 <= self.shard_id < self.num_shards:
            raise ValueError(
                f"shard_id must be in [0, num_shards={self.num_shards}), got {self.shard_id!r}"
            )

    def position(self, step: int, slot: int, batch_size: int) -> int:
        """Return the position of a slot of this shard's batch.

        Parameters
        ----------
        step : int
            Step of the epoch, counted from 0.
        slot : int
            Index in the batch, in ``[0, batch_size)``.
        batch_size : int
            Samples per shard and step.

        Examples
        --------
        >>> [Shard(1, 3).position(step, slot, 2) for step in (0, 1) for slot in (0, 1)]
        [2, 3, 8, 9]
        """
        return (step * self.num_shards + self.shard_id) * batch_size + slot
