"""Convert DALI's endless count of samples to epochs, steps and positions."""

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
    """Epoch of the order; with `Schedule.epoch_steps`, the pass through the rows."""
    step: int
    """Step since the start of the epoch, or since the position where the run was resumed; with
    `Schedule.epoch_steps` always since the start of epoch 0."""
    index: int
    """Index in the batch."""
    position: int
    """Position in the epoch; in the tail it is at or past the number of rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Samples of each shard in each step, for an endless run of epochs.

    DALI counts a Source's samples from 0 without end; this maps the count to epoch and position. It
    has no state, so any process can compute any sample.
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
    """Steps of an epoch, of any number of rows; None for one pass through the rows. All steps are
    full: the step that ends a pass is filled from the next pass. `epoch` and `position` then count
    passes, and `position` may be beyond its pass."""
    first_step: int = 0
    """Steps before the first one since the start of epoch 0, with `epoch_steps`."""

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
            msg = (
                f"tail 'drop' leaves nothing: a step takes {self.stride} rows ({self.batch_size} "
                f"for each of {self.shard.num_shards} shards), but the Index has {self.num_rows}: "
                "use a smaller batch_size, fewer shards or another tail"
            )
            raise ValueError(msg)

    @property
    def stride(self) -> int:
        """Positions that all shards together take in one step."""
        return self.shard.num_shards * self.batch_size

    def steps(self, epoch: int) -> int:
        """Return the number of steps of an epoch; for the first epoch, the remaining ones."""
        if self.epoch_steps is not None:
            first, taken = divmod(self.first_step, self.epoch_steps)
            return self.epoch_steps - (taken if epoch == first else 0)
        rows = self.num_rows - (self.position if epoch == self.epoch else 0)
        return rows // self.stride if self.tail == "drop" else -(-rows // self.stride)

    @property
    def start(self) -> tuple[int, int]:
        """Epoch and position of the first step, in the next epoch if this one has no steps left."""
        if self.epoch_steps is not None:
            return self.place(self.epoch, self.position)
        return (self.epoch, self.position) if self.steps(self.epoch) else (self.epoch + 1, 0)

    def locate(self, count: int) -> Slot:
        """Return the slot of a ``SampleInfo.idx_in_epoch`` of DALI, counted from the start."""
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
        """Return the epoch and position of a row for a position that may be beyond its epoch.

        With `epoch_steps` this is in another pass; otherwise it starts again in the same epoch.
        """
        passes, position = divmod(position, self.num_rows)
        return epoch + (passes if self.epoch_steps is not None else 0), position

    def counted_epoch(self, slot: Slot) -> int:
        """Return the epoch of a slot as counted by a Loader."""
        if self.epoch_steps is None:
            return slot.epoch
        return (self.first_step + slot.step) // self.epoch_steps
