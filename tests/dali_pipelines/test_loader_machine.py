"""Any sequence of steps, resumes and faults: a Loader delivers what a model of its contract says.

The model knows no shards, readers or graphs. It has an order of the rows, a place in it, and the
arithmetic of contracts 1 to 4. Two machines drive the Loader beside it: one reads in this process,
the other has reader processes, and kills them.
"""

from __future__ import annotations

import io
import json
import pickle
import shutil
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from image_files import undecodable_jpeg
from numpy.typing import NDArray
from PIL import Image
from read_here import in_this_process

from dali_pipelines import (
    Index,
    Loader,
    ReaderPipeline,
    ReaderProcessError,
    ReadError,
    chunked_pipeline,
    jpeg_pipeline,
    npy_pipeline,
)
from readers import Order, WeightedOrder
from readers.sampling.blocks import BlockOrder, BucketOrder

HEIGHT, WIDTH = 6, 8
CROP = (3, 4)

# What the files hold, and how they are damaged.


def pixels_of(row: int) -> NDArray[np.uint8]:
    """Return an image that says in its channels which row it is of, and where each pixel was."""
    return np.stack(np.broadcast_arrays(row, *np.ogrid[:HEIGHT, :WIDTH]), -1).astype(np.uint8)


def npy(row: int) -> bytes:
    content = io.BytesIO()
    np.save(content, pixels_of(row))
    return content.getvalue()


def png(row: int) -> bytes:
    content = io.BytesIO()
    Image.fromarray(pixels_of(row)).save(content, "PNG")
    return content.getvalue()


def chunk(row: int) -> bytes:
    return zlib.compress(pixels_of(row)[..., 0].tobytes())


def write_store(folder: Path, row: int) -> None:
    import numcodecs
    import zarr  # takes long

    group = zarr.create_group(str(folder), zarr_format=2)
    for name, pixels in zip(VARIABLES, np.moveaxis(pixels_of(row), -1, 0), strict=True):
        chunks = pixels.shape
        group.create_array(name, data=pixels, chunks=chunks, compressors=numcodecs.Zlib())


DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "missing": lambda content: None,
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "text": lambda content: b"no image",
    "undecodable": lambda content: undecodable_jpeg(),  # where images are decoded by the graph
}


FORMATS: dict[str, tuple[Callable[[int], bytes], Callable[..., ReaderPipeline]]] = {
    "npy": (npy, partial(npy_pipeline, file_dtype="uint8", channels=3)),
    "png": (png, jpeg_pipeline),
    "zarr": (chunk, chunked_pipeline),
}
VARIABLES = ("row", "y", "x")
"""Channels of `pixels_of`, each an array of a store; the chunk of the first one is damaged."""

# The model.


@dataclass(frozen=True)
class Slot:
    """A place of a batch: which sample of the order belongs into it."""

    epoch: int
    """Of the order: the pass through the rows."""
    position: int
    counts: bool
    """Whether it is a sample of the epoch, and does not only fill its batch."""


@dataclass
class Model:
    """Where a job is in its epochs, by contracts 2 and 4."""

    num_rows: int
    stride: int
    """Samples of a step, over all shards."""
    tail: str
    epoch_steps: int | None
    epoch: int = 0
    """Of the order: the pass."""
    position: int = 0
    steps: int = 0
    """With `epoch_steps`, since the start of epoch 0."""
    start: tuple[int, int] = 0, 0
    """With `epoch_steps`: steps and samples before the current epoch."""

    def steps_from(self, position: int) -> int:
        """Return how many steps are left of a pass."""
        rows = self.num_rows - position
        return rows // self.stride if self.tail == "drop" else -(-rows // self.stride)

    def settled(self, epoch: int, position: int) -> tuple[int, int]:
        """Return the pass and position of the next step for a place that may be at the end."""
        if self.epoch_steps is not None:
            passes, position = divmod(position, self.num_rows)
            return epoch + passes, position
        return (epoch, position) if self.steps_from(position) else (epoch + 1, 0)

    @property
    def place(self) -> tuple[int, int]:
        return self.settled(self.epoch, self.position)

    @property
    def samples(self) -> int:
        """Samples before the next one, over all passes."""
        return self.epoch * self.num_rows + self.position

    @property
    def counted_epoch(self) -> int:
        return self.steps // self.epoch_steps if self.epoch_steps else self.place[0]

    @property
    def step(self) -> int:
        return self.steps % self.epoch_steps if self.epoch_steps else self.place[1] // self.stride

    @property
    def length(self) -> int:
        return self.epoch_steps or self.steps_from(0)

    @property
    def steps_left(self) -> int:
        if self.epoch_steps:
            return self.epoch_steps - self.step
        return self.steps_from(self.place[1])

    def slots(self) -> list[Slot]:
        """Return the slots of the next step, shard by shard."""
        epoch, position = self.place
        found = []
        for place in range(position, position + self.stride):
            passes, inside = divmod(place, self.num_rows)
            if self.epoch_steps:
                found.append(Slot(epoch + passes, inside, counts=True))
            else:
                found.append(Slot(epoch, inside, counts=not passes))
        return found

    def advance(self) -> None:
        epoch, position = self.place
        position += self.stride
        if not self.epoch_steps:
            self.epoch, self.position = self.settled(epoch, min(position, self.num_rows))
            return
        self.epoch, self.position = self.settled(epoch, position)
        self.steps += 1
        if self.steps % self.epoch_steps == 0:
            self.start = self.steps, self.samples

    def reset(self, epoch: int | None) -> bool:
        """Go to the start of an epoch, by default of the current one; return whether that moves."""
        epoch, before = self.counted_epoch if epoch is None else epoch, (self.steps, self.samples)
        if not self.epoch_steps:
            self.epoch, self.position = epoch, 0
            return self.samples != before[1]
        steps = epoch * self.epoch_steps
        if steps != self.start[0]:  # all steps up to there count as if of the present size
            known = (self.steps, self.samples) if epoch >= self.counted_epoch else (0, 0)
            self.start = steps, max(0, known[1] + (steps - known[0]) * self.stride)
        self.steps = steps
        self.epoch, self.position = divmod(self.start[1], self.num_rows)
        return (self.steps, self.samples) != before

    def load(self, state: dict[str, Any]) -> None:
        self.epoch, self.position = state["epoch"], state["position"]
        if not self.epoch_steps:
            return
        if "steps" not in state:  # the pass becomes the epoch
            self.steps = self.epoch * self.epoch_steps
            self.start = self.steps, self.epoch * self.num_rows
            return
        self.steps = state["steps"]
        steps, epoch, position = state["start"]
        self.start = steps, epoch * self.num_rows + position
        if steps != self.steps and self.steps % self.epoch_steps == 0:
            self.start = self.steps, self.samples


# The machines.


@dataclass
class Loop:
    """A ``for`` loop over the Loaders of all processes, taken step by step."""

    steps: list[Iterator[Any]]
    epoch: int | None = None
    """Where it began, None before its first step."""
    over: bool = False


@dataclass
class Process:
    """A Loader of the job, and what its statistics should say."""

    loader: Loader
    rejected: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Epoch and step in which each bad row was met."""
    batches: int = 0
    samples: int = 0
    was_hit: bool = False
    """Whether readers that run were killed."""


CONFIGS = st.fixed_dictionaries(
    {
        "processes": st.sampled_from([1, 1, 1, 2]),
        "shards": st.sampled_from([1, 1, 2, 3]),
        "batch_size": st.integers(1, 7),
        "tail": st.sampled_from(["partial", "fill", "drop"]),
        "epoch_steps": st.none() | st.integers(1, 5),
        "mode": st.sampled_from(["train", "train", "train", "eval"]),
        "bad_sample": st.sampled_from(["skip", "skip", "raise"]),
        "max_bad": st.none() | st.integers(0, 3) | st.sampled_from([0.0, 0.2, 0.5, 1.0]),
        "num_epochs": st.none() | st.integers(1, 3),
        "shuffle": st.sampled_from([True, True, False, "blocks", "buckets"]),
        "framework": st.sampled_from(["numpy", "torch"]),
        "prefetch": st.integers(1, 2),
        "block_rows": st.integers(1, 4),
        "num_read_processes": st.integers(1, 4),
        "restart_readers": st.sampled_from([0, 1, 9]),
    }
)


LOOPS = "new", "new", "last", "before"
STEPS = st.integers(0, 9)
"""To take after something was done: what is done may show only then."""


class LoaderMachine(RuleBasedStateMachine):
    """Drives the Loaders of a job, one for each process, in step with the model."""

    reads_here = True
    only_kind: str | None = None
    """Kind of files, in place of those that are drawn."""
    most_processes = 2

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.processes: list[Process] = []
        self.loops: list[Loop] = []
        self.states: list[dict[str, Any]] = []
        self.damage: dict[int, str] = {}
        self.damaged_once: set[int] = set()
        self.drawn: dict[tuple[int, int, int], tuple[float, ...]] = {}
        """Corners of the window that was shown for seed, pass and number of a sample."""

    # Making Loaders.

    @initialize(
        num_rows=st.integers(1, 16),
        kind=st.sampled_from(["npy", "npy", "png"]),
        weights=st.none() | st.lists(st.integers(0, 3), min_size=16, max_size=16),
        damage=st.just({}) | st.dictionaries(st.integers(0, 15), st.sampled_from([*DAMAGES])),
        config=CONFIGS,
        seed=st.integers(0, 3),
        steps=STEPS,
    )
    def begin(
        self,
        num_rows: int,
        kind: str,
        weights: list[int] | None,
        damage: dict[int, str],
        config: dict[str, Any],
        seed: int,
        steps: int,
    ) -> None:
        kind = self.only_kind or kind
        self.num_rows, self.kind, self.seed = num_rows, kind, seed
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        for row in range(num_rows):
            if kind == "zarr":
                write_store(self.shown(row), row)
            self.path(row).write_bytes(FORMATS[kind][0](row))
        if kind == "zarr":
            roots = map(self.shown, range(num_rows))
            index = Index.from_zarr(roots, variables=VARIABLES, dim=None)
        else:
            index = Index.scan(self.folder)
        index = index.with_column("label", np.arange(num_rows) * 10)
        self.index = index.with_column("name", [f"star {row}" for row in range(num_rows)])
        self.weights = None
        if weights is not None and any(weights[:num_rows]):
            self.weights = "weight"
            self.index = self.index.with_column("weight", weights[:num_rows])
        if self.impossible(config):
            config = {**config, "tail": "partial"}
        self.make(config)
        for row, how in damage.items():
            self.damage_file(row % num_rows, how)
        self.take("new", steps)

    def path(self, row: int) -> Path:
        """Return the file that has the number of a row in its pixels."""
        return self.shown(row) / "row" / "0.0" if self.kind == "zarr" else self.shown(row)

    def shown(self, row: int) -> Path:
        """Return the path of a row in the Index."""
        return self.folder / f"{row:02}.{self.kind}"

    def num_processes(self, config: dict[str, Any]) -> int:
        return min(config["processes"], self.most_processes)

    def impossible(self, config: dict[str, Any]) -> bool:
        stride = self.num_processes(config) * config["shards"] * config["batch_size"]
        drops = config["tail"] == "drop" and not config["epoch_steps"]
        return bool(drops and stride > self.num_rows)

    def make(self, config: dict[str, Any]) -> None:
        """Make the Loaders of a job."""
        count, shards = self.num_processes(config), config["shards"]
        options = {name: config[name] for name in config if name not in ("processes", "shards")}
        if self.weights:
            options["shuffle"] = True
        if options["shuffle"] not in ("blocks", "buckets"):
            del options["block_rows"]
        if options["bad_sample"] == "raise" or self.kind == "png":
            options["max_bad"] = None  # the graph's bad rows may be met early
        factory = FORMATS[self.kind][1]
        if self.reads_here:
            factory = partial(in_this_process, factory)
        loaders = [
            Loader(
                factory,
                self.index,
                devices=[None] * shards,
                shard_id=number,
                num_shards=count,
                seed=self.seed,
                weights=self.weights,
                columns=("label", "name"),
                crop=CROP,
                window="random",
                flip="hv",
                num_threads=1,
                **options,
            )
            for number in range(count)
        ]
        self.close_all()
        self.config, self.processes, self.loops = config, [*map(Process, loaders)], []
        self.max_bad, self.shuffle = options["max_bad"], options["shuffle"]
        self.block_rows = options.get("block_rows")
        stride = count * shards * config["batch_size"]
        self.model = Model(self.num_rows, stride, config["tail"], config["epoch_steps"])

    def close_all(self) -> None:
        for process in self.processes:
            readers = [one for each in process.loader.pipelines for one in each.processes()]
            process.loader.close()
            process.was_hit = False
            assert process.loader.pipelines == ()
            assert not any(reader.is_alive() for reader in readers)

    def teardown(self) -> None:
        self.close_all()

    # What one may do with a Loader.

    @rule(config=CONFIGS, seed=st.integers(0, 3), steps=STEPS)
    def resume_with_other_settings(self, config: dict[str, Any], seed: int, steps: int) -> None:
        """The new Loaders take the seed and order of the state."""
        if self.impossible(config):
            with pytest.raises(ValueError, match=r"'drop'.*smaller batch_size"):
                self.make(config)
            return
        state, before = self.saved(), self.seed
        self.seed = seed
        self.make(config)
        self.seed = before
        self.load(state)
        self.take("new", steps)

    @rule()
    def save(self) -> None:
        self.states.append(self.saved())

    @precondition(lambda self: self.states)
    @rule(number=st.integers(0, 9), loop=st.sampled_from(LOOPS), steps=STEPS)
    def go_back(self, number: int, loop: str, steps: int) -> None:
        """To an earlier state."""
        self.load(self.states[number % len(self.states)])
        self.take(loop, steps)

    @precondition(lambda self: self.model.epoch_steps)
    @rule(steps=STEPS)
    def leave_out_the_rest_of_the_epoch(self, steps: int) -> None:
        """As the guide does; the next sample stays the same."""
        (loader, *_) = (process.loader for process in self.processes)
        self.load({**self.saved(), "steps": (loader.epoch + 1) * len(loader)})
        self.take("new", steps)

    @rule(
        where=st.sampled_from(["this", "next", "first", "any"]),
        epoch=st.integers(0, 5),
        loop=st.sampled_from(LOOPS),
        steps=STEPS,
    )
    def reset(self, where: str, epoch: int, loop: str, steps: int) -> None:
        now = self.model.counted_epoch
        target = {"this": None, "next": now + 1, "first": 0, "any": epoch}[where]
        pipelines = [process.loader.pipelines for process in self.processes]
        for process in self.processes:
            process.loader.reset(target)
        # Readers go on where they are in the right place.
        expected = [()] * len(pipelines) if self.model.reset(target) else pipelines
        assert [process.loader.pipelines for process in self.processes] == expected
        self.take(loop, steps)

    @rule(loop=st.sampled_from(LOOPS), steps=STEPS)
    def take(self, loop: str, steps: int) -> None:
        """A new loop, after one that ended or was left, or one of two that take turns."""
        if loop == "new" or not self.loops:
            self.loops = [*self.loops[-1:], Loop([iter(one.loader) for one in self.processes])]
        taken = self.loops[0 if loop == "before" else -1]
        while steps and self.take_step(taken):
            steps -= 1

    @rule()
    def finish_the_epoch(self) -> None:
        self.take("new", self.model.length + 1)

    @rule()
    def start(self) -> None:
        for process in self.processes:
            process.loader.start()
            assert len(process.loader.pipelines) == self.config["shards"]

    @rule()
    def close(self) -> None:
        self.close_all()

    @rule(steps=STEPS)
    def copy(self, steps: int) -> None:
        """A copy begins at the same step."""
        copies = pickle.loads(pickle.dumps([process.loader for process in self.processes]))
        self.close_all()
        for process, loader in zip(self.processes, copies, strict=True):
            process.loader = loader
        self.loops = []
        self.take("new", steps)

    @rule(
        row=st.integers(0, 15),
        damage=st.sampled_from([None, *DAMAGES]),
        loop=st.sampled_from(LOOPS),
        steps=STEPS,
    )
    def change_a_file(self, row: int, damage: str | None, loop: str, steps: int) -> None:
        """Nothing is read ahead meanwhile. What the graph failed on is not tried again."""
        row %= self.num_rows
        if self.damage.get(row) != "undecodable":
            self.close_all()
            self.damage_file(row, damage)
        self.take(loop, steps)

    def damage_file(self, row: int, damage: str | None) -> None:
        if (damage == "undecodable" and self.kind != "png") or (
            damage == "missing" and self.kind == "zarr"  # chunks that are missing have fill values
        ):
            damage = "text"
        content = FORMATS[self.kind][0](row)
        self.path(row).unlink(missing_ok=True)
        self.damage.pop(row, None)
        if damage is not None:
            self.damage[row] = damage
            self.damaged_once.add(row)
        found = content if damage is None else DAMAGES[damage](content)
        if found is not None:
            self.path(row).write_bytes(found)

    # What should come of it.

    def row(self, slot: Slot) -> int:
        return self.order.row(slot.epoch, slot.position)

    @property
    def order(self) -> Order | BlockOrder | BucketOrder | WeightedOrder:
        if self.weights:
            return WeightedOrder(self.index.running_weights(self.weights), self.seed)
        if self.shuffle == "blocks":
            return BlockOrder(self.num_rows, self.seed, self.block_rows or 0)
        if self.shuffle == "buckets":
            return BucketOrder(self.num_rows, self.seed, self.block_rows or 0)
        return Order(self.num_rows, self.seed, bool(self.shuffle))

    def saved(self) -> dict[str, Any]:
        """Return the state of the job, as a file would hold it; all processes have the same."""
        found = [process.loader.state_dict() for process in self.processes]
        assert all(state == found[0] for state in found)
        state: dict[str, Any] = json.loads(json.dumps(found[0]))
        order = state["seed"], state["shuffle"], state.get("block_rows")
        assert order == (self.seed, self.shuffle, self.block_rows)
        model = self.model
        assert model.settled(state["epoch"], state["position"]) == model.place
        if model.epoch_steps:
            steps, epoch, position = state["start"]
            assert state["steps"] == model.steps
            assert (steps, epoch * self.num_rows + position) == model.start
        return state

    def load(self, state: dict[str, Any]) -> None:
        for process in self.processes:
            process.loader.load_state_dict(state)
            process.was_hit = False
            assert process.loader.pipelines == ()
        self.seed, self.shuffle = state["seed"], state["shuffle"]
        self.block_rows = state.get("block_rows")
        self.model.load(state)

    def take_step(self, loop: Loop) -> bool:
        """Take a step of a loop in all processes, or see that it is over; return whether it is."""
        if loop.over:
            self.check_that_it_is_over(loop)
            return False
        before = self.saved()
        moves = False
        if loop.epoch is None:
            if self.config["mode"] == "eval":
                moves = self.model.reset(0 if self.model.epoch_steps else None)
            limit = self.config["num_epochs"]
            if limit is not None and self.model.counted_epoch >= limit:
                loop.over = True
                for steps in loop.steps:
                    with pytest.raises(RuntimeError, match=f"num_epochs={limit} .*more"):
                        next(steps)
                return False
            loop.epoch = self.model.counted_epoch
            self.model.epoch, self.model.position = self.model.place
        if loop.epoch != self.model.counted_epoch:
            loop.over = True
            self.check_that_it_is_over(loop)
            return False
        failed = []
        for number, (process, steps) in enumerate(zip(self.processes, loop.steps, strict=True)):
            pipelines = process.loader.pipelines
            failed.append(not self.deliver(number, process, steps))
            if pipelines and not (failed[-1] or moves or process.was_hit or self.graph_fails_on()):
                assert process.loader.pipelines == pipelines, "readers were started again"
        if any(failed):
            self.loops = []
            if len(self.processes) > 1:  # the job ends, and begins again where it was
                self.load(before)
            return False
        self.model.advance()
        return True

    def check_that_it_is_over(self, loop: Loop) -> None:
        assert [next(steps, None) for steps in loop.steps] == [None] * len(loop.steps)

    def deliver(self, number: int, process: Process, steps: Iterator[Any]) -> bool:
        """Take the step of a process, and compare it; False if it is an error, as it should be."""
        share = self.config["shards"] * self.config["batch_size"]
        slots = self.model.slots()[number * share : (number + 1) * share]
        bad = self.to_be_raised(process, slots)
        loader = process.loader
        found: Any = None
        try:
            found = next(steps)
        except (ReadError, ReaderProcessError) as error:
            found = error
            assert loader.pipelines == (), "readers stayed after an error"
        if isinstance(found, ReaderProcessError):
            assert process.was_hit, found
            assert loader.stats.restarts == self.config["restart_readers"]
            process.was_hit = False
            return False
        if isinstance(found, ReadError):
            filling = {self.row(slot) for slot in slots} & self.graph_fails_on()
            assert found.row in (bad or filling), f"no error was due: {found}"
            assert str(found).startswith(f"{self.shown(found.row)} (row {found.row}): ")
            self.check_rejected(process)
            return False
        assert not bad, f"rows {bad} cannot be read, and nothing was raised"
        size = self.config["batch_size"]
        assert len(found) == self.config["shards"]
        for first, batch in zip(range(0, share, size), found, strict=True):
            process.samples += self.check_batch(batch, slots[first : first + size])
        process.batches += 1
        self.check_rejected(process)
        return True

    def graph_fails_on(self) -> set[int]:
        return {row for row, damage in self.damage.items() if damage == "undecodable"}

    def to_be_raised(self, process: Process, slots: list[Slot]) -> set[int]:
        """Note the rows that this step rejects; return those that are to be raised, if it is."""
        bad = [self.row(slot) for slot in slots if slot.counts and self.row(slot) in self.damage]
        if self.config["bad_sample"] == "raise":
            return set(bad if self.graph_fails_on() else bad[:1])
        most = self.max_bad
        limit = self.num_rows if most is None else most
        if isinstance(most, float):
            limit = most * self.num_rows
        for first in range(0, len(slots), self.config["batch_size"]):
            batch = slots[first : first + self.config["batch_size"]]
            for row in [self.row(slot) for slot in batch if slot.counts]:
                if row not in self.damage or row in process.rejected:
                    continue
                process.rejected[row] = self.model.counted_epoch, self.model.step
                if len(process.rejected) > limit:
                    return {row}
            fills = self.config["tail"] == "fill"
            if fills and len(self.damage) == self.num_rows:
                return set(range(self.num_rows))
        return set()

    def check_rejected(self, process: Process) -> None:
        """The statistics name the bad rows that were met."""
        rejected = process.loader.stats.rejected
        if self.config["bad_sample"] == "raise":
            assert not rejected
            return
        for row, found in rejected.items():
            assert (found.row, Path(found.path).name) == (row, self.shown(row).name)
            assert found.reason
        if not self.graph_fails_on():
            found_at = {row: (one.epoch, one.step) for row, one in rejected.items()}
            assert found_at == process.rejected
            return
        # To find them, rows of later steps may be tried, too.
        assert process.rejected.keys() <= rejected.keys() <= self.damaged_once
        process.rejected |= {row: (one.epoch, one.step) for row, one in rejected.items()}

    def check_batch(self, batch: dict[str, Any], slots: list[Slot]) -> int:
        """Compare a batch with its slots; return the number of valid samples."""
        expected: list[tuple[Slot, int | None, bool]] = []  # row, None for any good one, and valid
        for slot in slots:
            row = self.row(slot)
            good = row not in self.damage
            if self.config["tail"] == "fill":
                expected.append((slot, row if good else None, slot.counts and good))
            elif slot.counts and good:
                expected.append((slot, row, True))
        found = [row for _, row, _ in expected]
        rows = np.asarray(batch["row"]).tolist()
        assert len(rows) == len(found)
        assert rows == [one if row is None else row for row, one in zip(found, rows, strict=True)]
        assert not set(rows) & set(self.damage)
        valid = np.asarray(batch["valid"]).tolist()
        assert valid == [counts for _, _, counts in expected]
        assert np.asarray(batch["label"]).tolist() == [10 * row for row in rows]
        assert batch["name"] == [f"star {row}" for row in rows]
        assert len(batch["image"]) == len(rows)
        for (slot, _, _), row, image in zip(expected, rows, batch["image"], strict=True):
            self.check_image(np.asarray(image), row, slot)
        return sum(valid)

    def check_image(self, image: NDArray[Any], row: int, slot: Slot) -> None:
        """It is a window of its row, and that window follows from seed, pass and row alone."""
        assert image.shape == (3, *CROP)
        (top, left), (bottom, right) = image[1:, 0, 0], image[1:, -1, -1]
        ys, xs = np.linspace(top, bottom, CROP[0]), np.linspace(left, right, CROP[1])
        expected = np.stack(np.broadcast_arrays(row, ys[:, None], xs))
        np.testing.assert_array_equal(image, expected)
        assert abs(bottom - top) == CROP[0] - 1
        assert abs(right - left) == CROP[1] - 1
        corners = tuple(map(float, (top, left, bottom, right)))
        if self.config["mode"] == "eval":
            y, x = (HEIGHT - CROP[0]) // 2, (WIDTH - CROP[1]) // 2
            assert corners == (y, x, y + CROP[0] - 1, x + CROP[1] - 1)
            return
        key = self.seed, slot.epoch, slot.position if self.weights else row
        assert self.drawn.setdefault(key, corners) == corners

    @invariant()
    def each_loader_is_where_the_model_is(self) -> None:
        model, shards = self.model, self.config["shards"]
        for number, process in enumerate(self.processes):
            loader = process.loader
            assert (loader.epoch, loader.step) == (model.counted_epoch, model.step)
            assert (len(loader), loader.steps_left) == (model.length, model.steps_left)
            assert (loader.first_shard, loader.num_shards) == (
                number * shards,
                len(self.processes) * shards,
            )
            assert loader.stats.batches == process.batches
            assert loader.stats.samples == process.samples
        self.saved()

    @invariant()
    def an_epoch_of_the_order_has_each_row_once(self) -> None:
        if self.weights:
            return
        rows = [self.order.row(self.model.epoch, place) for place in range(self.num_rows)]
        assert sorted(rows) == list(range(self.num_rows))


class MachineOfStores(LoaderMachine):
    """Rows are stores of Zarr, whose chunks are damaged."""

    only_kind = "zarr"


class MachineWithReaders(LoaderMachine):
    """With reader processes, which are killed now and then."""

    reads_here = False
    most_processes = 1

    def make(self, config: dict[str, Any]) -> None:
        super().make(config)
        self.kills = 0

    @precondition(lambda self: any(process.loader.pipelines for process in self.processes))
    @rule(device=st.integers(0, 2), reader=st.integers(0, 3))
    def kill(self, device: int, reader: int) -> None:
        (process,) = self.processes
        pipelines = process.loader.pipelines
        readers = pipelines[device % len(pipelines)].processes()
        victim = readers[reader % len(readers)]
        victim.kill()
        wait([victim.sentinel])
        process.was_hit = True
        self.kills += 1

    @invariant()
    def each_restart_is_for_a_death(self) -> None:
        (process,) = self.processes
        assert process.loader.stats.restarts <= min(self.kills, self.config["restart_readers"])


def run(machine: type[LoaderMachine], folder: Path, part: int, steps: int) -> None:
    """Run sequences of some steps, one for so many examples of the profile."""
    examples = settings().max_examples // part
    run_state_machine_as_test(
        lambda: machine(folder / "files"),  # type: ignore[arg-type]
        settings=settings(max_examples=examples, stateful_step_count=steps),
    )


@pytest.mark.timeout(600)
def test_any_sequence_is_as_the_model_says(tmp_path: Path) -> None:
    run(LoaderMachine, tmp_path, part=1, steps=15)


@pytest.mark.timeout(600)
def test_any_sequence_of_stores(tmp_path: Path) -> None:
    run(MachineOfStores, tmp_path, part=4, steps=15)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_any_sequence_with_readers_that_die(tmp_path: Path) -> None:
    run(MachineWithReaders, tmp_path, part=4, steps=15)
