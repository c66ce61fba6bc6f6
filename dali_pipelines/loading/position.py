"""Position of a Loader in its epochs: the rows of its next step, and the state that is saved."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from dali_pipelines.runtime.devices import Device
from dali_pipelines.runtime.ranks import FindShards, ProcessShards
from dali_pipelines.values import shuffle_of
from readers.index.rows.weights import RunningWeights
from readers.index.table import Index
from readers.sampling.blocks import BLOCK_ROWS
from readers.sampling.order import VERSION
from readers.sampling.schedule import Schedule
from readers.sampling.shard import Shard
from readers.source import NEIGHBOURS
from readers.values import is_integer

logger = logging.getLogger(__name__)

_schedule = lru_cache(maxsize=16)(Schedule)
"""Cached, because each step asks for the same Schedule several times, and a new one checks its
arguments."""


OF_STATE = "seed", "shuffle", "block_rows"
_BLOCKWISE = "blocks", "buckets"
"""Settings of the order of the rows that a state replaces."""


class Position:
    """The order of the rows of a Loader, and the next step in it.

    Devices and shards are found when the Loader starts, and do not change afterwards. They may not
    be known earlier: with Lightning's ddp, scripts make the Loader before `fit` starts the other
    ranks.

    Parameters
    ----------
    index : Index
        The rows.
    settings : mapping
        Keywords of the pipelines: batch_size, tail, epoch_steps, and those of the order of rows.
    find_shards : callable
        Finds the devices and shards of this process.

    Raises
    ------
    ValueError
        If `batch_size` and `tail` do not fit the rows, or devices or shards are invalid.
    """

    def __init__(
        self,
        index: Index,
        settings: Mapping[str, Any],
        find_shards: FindShards,
    ) -> None:
        weights = settings.get("weights")
        self._index = index
        self._weights = None if weights is None else index.running_weights(weights)
        self._batch_size, self._tail = settings["batch_size"], settings["tail"]
        self.epoch_steps: int | None = settings.get("epoch_steps")
        self._order = {name: settings[name] for name in OF_STATE if name in settings}
        shuffles = settings.get("mode") != "eval"
        self._defaults = {"seed": 0, "shuffle": shuffles, "block_rows": BLOCK_ROWS}
        self.epoch, self.position = 0, 0
        """Epoch and position, in the order, of the first sample that is not delivered yet."""
        self.steps = 0
        """With `epoch_steps`: steps since the start of epoch 0."""
        self.start = 0, 0, 0
        """With `epoch_steps`: steps, epoch and position at the start of the current epoch. They
        cannot be calculated, because earlier steps may have had another size."""
        self._find_shards = find_shards
        self._assumed: ProcessShards | None = None
        self._settled: ProcessShards | None = None
        self._schedule_of(find_shards(fewest=True))

    def __getstate__(self) -> dict[str, Any]:
        # A copy, perhaps in another process, finds them again when it starts.
        return {**vars(self), "_assumed": None, "_settled": None}

    @property
    def keywords(self) -> dict[str, Any]:
        """Keywords for pipelines that begin here."""
        begin = {**self._order, "epoch": self.epoch, "position": self.position}
        # Not every factory takes first_step.
        return begin if self.epoch_steps is None else {**begin, "first_step": self.steps}

    @property
    def seed(self) -> int:
        """Seed of the order of the rows."""
        return int(self._order["seed"])

    @property
    def shards(self) -> ProcessShards:
        """Devices and shards of the started Loader, or those that it would have if it started."""
        if self._settled is not None:
            return self._settled
        self._assumed = self._find_shards()
        return self._assumed

    @property
    def schedule(self) -> Schedule:
        """The Schedule of the first device of this process, from the next step on."""
        return self._schedule_of(self.shards)

    def _schedule_of(self, shards: ProcessShards) -> Schedule:
        return _schedule(
            num_rows=len(self._index),
            shard=Shard(shards.first_shard, shards.num_shards),
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
        """Find devices and shards at the first start; later, check that they are unchanged.

        RuntimeError if rank or number of processes changed.
        """
        before = self._settled
        if before is None:
            now = self._find_shards()
            if self._assumed is not None and self._assumed.num_shards != now.num_shards:
                logger.warning(
                    "the Loader starts with %d shards: len() and num_shards assumed %d before, as "
                    "this process had not joined the others",
                    now.num_shards,
                    self._assumed.num_shards,
                )
            self._settled = now
        # GPUs are not counted again.
        elif (now := self._find_shards(devices=before.devices)) != before:
            raise RuntimeError(
                f"this process had rank and world size ({before.rank}, {before.num_processes}) "
                f"when the Loader started, and has ({now.rank}, {now.num_processes}) now: rows "
                "would be left out or repeated. Make another Loader, or start this one after "
                "init_process_group"
            )
        # With tail "drop" and a larger step than before, a state may leave no step of its epoch.
        self.epoch, self.position = self.schedule.start

    def reset(self, epoch: int | None = None) -> bool:
        """Go to the start of an epoch, by default the current one; return whether it moved."""
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
        # The sizes of earlier steps are unknown: assume that all had the present size.
        known = epoch >= self.counted_epoch
        origin = (self.steps, self.epoch, self.position) if known else (0, 0, 0)
        position = origin[2] + (steps - origin[0]) * schedule.stride
        return steps, *max((0, 0), schedule.place(origin[1], position))

    def advance(self) -> None:
        """Move to the next step, by a single assignment, which an interrupt cannot divide."""
        position = self.position + self.schedule.stride
        if self.epoch_steps is None:
            position = min(position, len(self._index))
        moved = replace(self.schedule, position=position).start
        steps, start = self.steps + 1, self.start
        if self.epoch_steps is not None and steps % self.epoch_steps == 0:
            start = steps, *moved
        (self.epoch, self.position), self.steps, self.start = moved, steps, start

    def state(self) -> dict[str, Any]:
        """Return the state of a Loader, plain Python values only; see `Loader.state_dict`."""
        state = {
            "version": VERSION,
            **_order_of(self._order),
            "epoch": self.epoch,
            "position": self.position,
            "digest": self._index.digest,
        }
        if self._weights is not None:
            state["weights"] = self._weights.digest
        if self.epoch_steps is not None:
            state["steps"], state["start"] = self.steps, list(self.start)
        return state

    def check(self, state: Any) -> None:
        """Check every key of a state, before any is used; unknown keys are ignored.

        ValueError if a key is missing, or its value has a wrong type or is out of range, or if the
        state was saved with another Index, other weights or another version of the order.
        """
        index, weights = self._index, self._weights
        if not isinstance(state, Mapping):
            raise ValueError(
                f"a state is the dict that state_dict() returned, got {type(state).__name__}"
            )
        missing = {"version", "seed", "shuffle", "epoch", "position", "digest"} - set(state)
        if missing:
            raise ValueError(
                f"the state lacks {sorted(missing)}: pass the dict that state_dict() returned"
            )
        _check_integer(state, "seed", 2**64 - 1)
        _check_integer(state, "epoch", 2**63 - 1)  # leaves room for further epochs
        if shuffle_of("shuffle of the state", state["shuffle"]) in _BLOCKWISE:
            _check_integer({"block_rows": None, **state}, "block_rows", 2**63 - 1, 1)
        if state["digest"] != index.digest:
            raise ValueError(
                "the state was saved with another Index (digest "
                f"{str(state['digest'])[:12]}, this one has {index.digest[:12]}): load the Index "
                "file of that run; a new scan may find other files, or another order"
            )
        _check_integer(state, "position", len(index))
        if "steps" in state:
            _check_integer(state, "steps", 2**63 - 1)
            _check_start(state.get("start"), len(index))
        _check_version(state)
        _check_weights(state, weights)
        if weights is not None and state["shuffle"] is not True:
            raise ValueError(
                f"shuffle of the state is {state['shuffle']!r}, but weights draw rows at random: "
                "set it to True"
            )

    def warn_of_change(self, state: Mapping[str, Any]) -> None:
        """Warn if a state that was checked replaces a chosen order of the rows."""
        given = _order_of(state)
        for name, chosen in _order_of(self._order).items():
            if chosen not in (self._defaults[name], given.get(name, chosen)):
                message = "the state has %s %r, which replaces %r of this Loader"
                logger.warning(message, name, given[name], chosen)

    def load(self, state: Mapping[str, Any]) -> None:
        """Go to the step of a state that was checked; its order of rows replaces this one."""
        self._order = _order_of(state)
        self.epoch, self.position = int(state["epoch"]), int(state["position"])
        self.steps = int(state.get("steps", self.epoch * (self.epoch_steps or 0)))
        if self.epoch_steps is not None:
            self.start = self._loaded_start(state, self.steps - self.steps % self.epoch_steps)

    def _loaded_start(self, state: Mapping[str, Any], first: int) -> tuple[int, int, int]:
        """Return where the epoch of a state begins, after `first` steps."""
        if "steps" not in state:  # its pass becomes the epoch
            return first, self.epoch, 0
        steps, epoch, position = map(int, state["start"])
        if steps != first == self.steps:
            return first, self.epoch, self.position
        return steps, epoch, position

    def positions(self) -> Iterator[tuple[Device, list[int]]]:
        """Yield each device of this process with the positions that it takes in the next step.

        With `epoch_steps` they may be beyond the end of the pass.
        """
        shards, num_rows = self.shards, len(self._index)
        for number, device in enumerate(shards.devices):
            start = self.position + (shards.first_shard + number) * self._batch_size
            stop = start + self._batch_size
            if self._tail == "fill":  # a row after the batch may have replaced a bad one
                stop = max(stop, start + min(NEIGHBOURS, num_rows))
            if self.epoch_steps is not None:
                yield device, list(range(start, stop))
            elif self._tail != "fill":
                yield device, list(range(start, min(stop, num_rows)))
            else:
                count = min(stop - start, num_rows)
                yield device, [number % num_rows for number in range(start, start + count)]


def _order_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the order of rows, from all settings or from a state."""
    order = {"seed": int(settings["seed"]), "shuffle": shuffle_of("shuffle", settings["shuffle"])}
    if order["shuffle"] in _BLOCKWISE:
        order["block_rows"] = int(settings.get("block_rows", BLOCK_ROWS))
    return order


def _check_integer(state: Mapping[str, Any], name: str, most: int, least: int = 0) -> None:
    value = state[name]
    if not is_integer(value, least) or int(value) > most:
        raise ValueError(
            f"{name} of the state must be an integer in [{least}, {most}], got {value!r}"
        )


def _check_start(start: Any, num_rows: int) -> None:
    most = (2**63 - 1, 2**63 - 1, num_rows)
    is_triple = isinstance(start, list | tuple) and len(start) == 3
    if not is_triple or not all(
        is_integer(value, 0) and int(value) <= limit
        for value, limit in zip(start, most, strict=True)
    ):
        raise ValueError(
            "start of the state must be three integers, the steps, pass and position where its "
            f"epoch begins, got {start!r}"
        )


def _check_version(state: Mapping[str, Any]) -> None:
    version = state["version"]
    if version == VERSION:
        return
    if not is_integer(version, VERSION):
        age, remedy = "an older", "continue with the release that saved it"
    else:
        age, remedy = "a newer", "install the release that saved it"
    raise ValueError(
        f"the state was saved by {age} release with another order of rows (version "
        f"{version!r}, here {VERSION}), so its position means other rows: {remedy}, or "
        f"{_again(state)}"
    )


def _check_weights(state: Mapping[str, Any], weights: RunningWeights | None) -> None:
    saved, found = state.get("weights"), None if weights is None else weights.digest
    if saved != found:
        raise ValueError(
            f"the state was saved with {_described(saved)}, and this Loader has "
            f"{_described(found)}, so its position means other rows: pass the same weights, or "
            f"{_again(state)}"
        )


def _described(digest: Any) -> str:
    return "no weights" if digest is None else f"weights of digest {str(digest)[:12]}"


def _again(state: Mapping[str, Any]) -> str:
    return (
        "start its epoch again with load_state_dict({**loader.state_dict(), 'epoch': "
        f"{state['epoch']}}})"
    )
