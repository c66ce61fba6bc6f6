"""Position of a Loader in its epochs, and the rows of its next step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from dali_pipelines.runtime.devices import Device, LatePlacement, Placement
from readers.sampling.schedule import Schedule, Tail
from readers.sampling.shard import Shard
from readers.source import NEIGHBOURS

_schedule = lru_cache(maxsize=16)(Schedule)
"""Each step asks for the same one several times, and it checks its arguments."""


class Cursor:
    """The next step of a Loader. ValueError if `batch_size` and `tail` do not fit the rows."""

    def __init__(
        self,
        num_rows: int,
        batch_size: int,
        tail: Tail,
        late: LatePlacement,
        epoch_steps: int | None = None,
    ) -> None:
        self._num_rows, self._batch_size, self._tail = num_rows, batch_size, tail
        self._late = late
        self.epoch_steps = epoch_steps
        self.epoch, self.position = 0, 0
        """Of the first sample that is not delivered yet, in the order."""
        self.steps = 0
        """With `epoch_steps`: steps since the start of epoch 0."""
        self.start = 0, 0, 0
        """Steps, epoch and position where the current epoch begins, with `epoch_steps`: other step
        sizes may have come before."""
        self._schedule_of(late.least)

    @property
    def placement(self) -> Placement:
        """Devices and shards, as decided or as they would be decided now."""
        return self._late.now()

    @property
    def schedule(self) -> Schedule:
        """The Schedule of the first device of this process, from the next step on."""
        return self._schedule_of(self.placement)

    def _schedule_of(self, placement: Placement) -> Schedule:
        return _schedule(
            num_rows=self._num_rows,
            shard=Shard(placement.first_shard, placement.num_shards),
            batch_size=self._batch_size,
            tail=self._tail,
            epoch=self.epoch,
            position=self.position,
            epoch_steps=self.epoch_steps,
            first_step=self.steps,
        )

    @property
    def counted_epoch(self) -> int:
        """Epoch of the next step, as the Loader counts it."""
        if self.epoch_steps is not None:
            return self.steps // self.epoch_steps
        return self.schedule.start[0]

    @property
    def step(self) -> int:
        """Step of the epoch, counted from 0 at this batch size."""
        if self.epoch_steps is not None:
            return self.steps % self.epoch_steps
        schedule = self.schedule
        return schedule.start[1] // schedule.stride

    def steps_of_epoch(self) -> int:
        """Return the number of steps of a whole epoch."""
        return replace(self.schedule, epoch=0, position=0, first_step=0).steps(0)

    def steps_left(self) -> int:
        """Return the number of steps that are left of the current epoch."""
        return self.schedule.steps(self.counted_epoch)

    def settle(self) -> None:
        """Decide devices and shards for good, or check that they are still right."""
        self._late.settle()
        # With tail "drop" and a larger step than before, a state may leave no step of its epoch.
        self.epoch, self.position = self.schedule.start

    def reset(self, epoch: int | None = None) -> bool:
        """Go to the start of an epoch, by default of the current one; return whether that moves."""
        epoch = self.counted_epoch if epoch is None else epoch
        target = self.steps, epoch, 0
        if self.epoch_steps is not None:
            self.start = target = self._start_of(epoch, self.epoch_steps)
        moves = target != (self.steps, self.epoch, self.position)
        self.steps, self.epoch, self.position = target
        return moves

    def _start_of(self, epoch: int, epoch_steps: int) -> tuple[int, int, int]:
        """Return steps, epoch and position where an epoch of `epoch_steps` begins."""
        steps, schedule = epoch * epoch_steps, self.schedule
        if steps == self.start[0]:
            return self.start
        # The sizes of earlier steps are unknown: as if all had been of the present size.
        known = epoch >= self.counted_epoch
        origin = (self.steps, self.epoch, self.position) if known else (0, 0, 0)
        position = origin[2] + (steps - origin[0]) * schedule.stride
        return steps, *max((0, 0), schedule.place(origin[1], position))

    def advance(self) -> None:
        """Move to the next step."""
        position = self.position + self.schedule.stride
        self.position = position if self.epoch_steps else min(position, self._num_rows)
        self.epoch, self.position = self.schedule.start
        self.steps += 1
        if self.epoch_steps is not None and self.steps % self.epoch_steps == 0:
            self.start = self.steps, self.epoch, self.position

    def load(self, state: Mapping[str, Any]) -> None:
        """Go to the step of a state, see `dali_pipelines.loading.state`."""
        self.epoch, self.position = int(state["epoch"]), int(state["position"])
        self.steps = int(state.get("steps", self.epoch * (self.epoch_steps or 0)))
        if self.epoch_steps is not None:
            self.start = self._loaded_start(state, self.steps - self.steps % self.epoch_steps)

    def _loaded_start(self, state: Mapping[str, Any], first: int) -> tuple[int, int, int]:
        """Return where the epoch of a state begins, after `first` steps; (0, 0, 0) if unknown."""
        if "steps" not in state:  # its pass becomes the epoch
            return first, self.epoch, 0
        steps, epoch, position = map(int, state.get("start", (0, 0, 0)))
        if steps != first == self.steps:
            return first, self.epoch, self.position
        return steps, epoch, position

    def positions(self) -> Iterator[tuple[Device, list[int]]]:
        """Yield each device of this process with the positions that it takes in the next step.

        With `epoch_steps` they may lie beyond the pass.
        """
        placement = self.placement
        for number, device in enumerate(placement.devices):
            start = self.position + (placement.first_shard + number) * self._batch_size
            stop = start + self._batch_size
            if self._tail == "fill":  # a row after the batch may have replaced a bad one
                stop = max(stop, start + min(NEIGHBOURS, self._num_rows))
            if self.epoch_steps is not None:
                yield device, list(range(start, stop))
            elif self._tail != "fill":
                yield device, list(range(start, min(stop, self._num_rows)))
            else:
                count = min(stop - start, self._num_rows)
                yield device, [number % self._num_rows for number in range(start, start + count)]
