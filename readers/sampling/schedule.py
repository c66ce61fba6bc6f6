"""Conversion of DALI's endless count of samples to epochs, steps and positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from readers.sampling.shard import Shard
from readers.values import check_integer

Tail = Literal["partial", "fill", "drop"]
"""Treatment of the last, incomplete step of an epoch, as in DALI's LastBatchPolicy.

``partial``
    The last batches are short or empty.
``fill``
    All batches are full: rows from the start of the epoch are repeated, with ``valid`` False.
``drop``
    The incomplete step is dropped. The Index must have enough rows for one step.
"""


@dataclass(frozen=True, slots=True)
class Slot:
    """One sample in one batch."""

    epoch: int
    """Epoch of the order; with `Schedule.epoch_steps` the pass through the rows."""
    step: int
    """Step of the epoch, counted from its start or from the position of a resumed run. With
    `Schedule.epoch_steps`, steps count from the first step of this run."""
    index: int
    """Index in the batch."""
    position: int
    """Position in the epoch; in the tail it is the number of rows or more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Samples of each shard in each step, for an endless run of epochs.

    DALI counts the samples of a Source from 0 without end. A Schedule maps this count to epoch and
    position. It has no state, so any process can compute any sample.
    """

    num_rows: int
    """Rows of the Index."""
    shard: Shard
    batch_size: int
    """Samples per shard and step."""
    tail: Tail = "partial"
    epoch: int = 0
    """First epoch."""
    position: int = 0
    """First position of that epoch; later epochs begin at 0."""
    epoch_steps: int | None = None
    """Steps of an epoch; None for one pass through the rows. With a number, all steps are full: the
    step that ends a pass is filled from the next pass. `epoch` then counts passes, and `position`
    may be beyond its pass."""
    first_step: int = 0
    """With `epoch_steps`: number of steps between the start of epoch 0 and the first step."""

    def __post_init__(self) -> None:
        if self.tail not in get_args(Tail):
            raise ValueError(f"tail must be one of {', '.join(get_args(Tail))}, got {self.tail!r}")
        check_integer("batch_size", self.batch_size, 1)
        for name in ("num_rows", "epoch", "position", "first_step"):
            check_integer(name, getattr(self, name), 0)
        if self.epoch_steps is not None:
            check_integer("epoch_steps", self.epoch_steps, 1)
            return
        check_integer("position", self.position, 0, self.num_rows)
        if self.tail == "drop" and self.stride > self.num_rows:
            raise ValueError(
                f"tail 'drop' drops all rows: a step takes {self.stride} rows ({self.batch_size} "
                f"for each of {self.shard.num_shards} shards), but the Index has {self.num_rows}: "
                "use a smaller batch_size, fewer shards or another tail"
            )

    @property
    def stride(self) -> int:
        """Positions that all shards together take in one step."""
        return self.shard.num_shards * self.batch_size

    def steps(self, epoch: int) -> int:
        """Return the number of steps of an epoch; for the first epoch only those that remain."""
        if self.epoch_steps is not None:
            first, taken = divmod(self.first_step, self.epoch_steps)
            return self.epoch_steps - (taken if epoch == first else 0)
        rows = self.num_rows - (self.position if epoch == self.epoch else 0)
        return rows // self.stride if self.tail == "drop" else -(-rows // self.stride)

    @property
    def start(self) -> tuple[int, int]:
        """Epoch and position of the first step; of the next epoch if no steps are left."""
        if self.epoch_steps is not None:
            return self.place(self.epoch, self.position)
        return (self.epoch, self.position) if self.steps(self.epoch) else (self.epoch + 1, 0)

    def locate(self, count: int) -> Slot:
        """Return the slot of a sample; `count` is DALI's ``idx_in_epoch``, which never restarts."""
        step, index = divmod(count, self.batch_size)
        if self.epoch_steps is not None:
            taken = self.shard.position(step, index, self.batch_size)
            epoch, position = self.place(self.epoch, self.position + taken)
            return Slot(epoch, step, index, position)
        epoch, base = self.epoch, self.position
        if step >= (first := self.steps(epoch)):
            epochs, step = divmod(step - first, self.steps(epoch + 1))
            epoch, base = epoch + 1 + epochs, 0
        return Slot(epoch, step, index, base + self.shard.position(step, index, self.batch_size))

    def place(self, epoch: int, position: int) -> tuple[int, int]:
        """Return epoch and position of the row at a position that may be beyond its epoch.

        With `epoch_steps` the row is of a later pass. Otherwise the same epoch starts again.
        """
        passes, position = divmod(position, self.num_rows)
        return epoch + (passes if self.epoch_steps is not None else 0), position

    def counted_epoch(self, slot: Slot) -> int:
        """Return the epoch of a slot, as the Loader counts epochs."""
        if self.epoch_steps is None:
            return slot.epoch
        return (self.first_step + slot.step) // self.epoch_steps
