"""Epochs of batches for training code, over one or more pipelines."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Real
from types import TracebackType
from typing import Any, Literal, get_args

import torch
from nvidia.dali.plugin.pytorch import DALIGenericIterator

from dali_pipelines.config import PipelineConfig, check_settings, is_integer
from dali_pipelines.graph.pipeline import ReaderPipeline
from dali_pipelines.graph.source import check_index
from dali_pipelines.runtime.devices import Device, LatePlacement, Placement, share_out
from dali_pipelines.runtime.interrupts import interrupt_held
from dali_pipelines.runtime.reader_processes import ReaderProcessError
from dali_pipelines.state import check_state
from dali_pipelines.undecodable import find_undecodable
from readers.errors import ReadError
from readers.index.table import Index
from readers.messages import printable
from readers.sampling.order import VERSION
from readers.sampling.schedule import Schedule
from readers.sampling.shard import Shard
from readers.source import NEIGHBOURS
from readers.worker.read_report import ReadReport

logger = logging.getLogger(__name__)

BadSample = Literal["raise", "skip"]
Batch = dict[str, torch.Tensor]

_LISTED = 10
"""Rows left out that are named in the log."""

_CLOSED = (
    "this Loader was closed by another thread while it waited for a batch: the next loop over it "
    "starts with that batch"
)

_DAMAGED = "the compressed bytes of a tile do not add up"


@dataclass(frozen=True, slots=True)
class Rejected:
    """A row that could not be read."""

    row: int
    """Row of the Index."""
    path: str
    """Its file."""
    reason: str
    """Why it could not be read."""
    hdu: int | None = None
    """HDU that the Index names; None where it names none."""
    epoch: int = 0
    """Epoch in which it was first met."""
    step: int = 0
    """Step of that epoch."""


@dataclass(slots=True)
class LoaderStats:
    """What a Loader has done since it was made."""

    batches: int = 0
    """Steps delivered: each counts once, however many devices there are."""
    samples: int = 0
    """Valid samples delivered."""
    input_bytes: int = 0
    """Bytes read from files, those of repeated rows included."""
    output_pixels: int = 0
    """Pixels of valid samples, each channel counted."""
    read_s: float = 0.0
    """Seconds that the reader processes worked, summed over them."""
    read_cpu_s: float = 0.0
    """Of these, seconds that they computed; for the rest they waited, for files or for a core."""
    wait_s: float = 0.0
    """Seconds that the consumer waited for batches."""
    wait_readers_s: float = 0.0
    """Of these, seconds until the readers had delivered and the graph was fed."""
    wait_graph_s: float = 0.0
    """Of these, seconds until the graph was done: transfer, decode and the rest."""
    start_s: float = 0.0
    """Seconds that starting the pipelines took."""
    restarts: int = 0
    """Times that the reader processes were started again, because one had died."""
    rejected: dict[int, Rejected] = field(default_factory=dict)
    """Rows that could not be read, by row."""


class Loader:
    """Iterate an Index in epochs of batches, one pipeline on each device.

    Each ``for`` loop over the Loader is one epoch; after a ``break``, or after `load_state_dict`,
    the next loop goes on with what is left of the epoch. A batch is a list with one dict for each
    device: ``image`` (see the factory), ``row`` (int64, row of the Index), ``valid`` (bool), and
    the columns asked for. The reader processes start with the first loop, or with `start`.

    Parameters
    ----------
    factory : callable
        `fits_pipeline`, `jpeg_pipeline`, or another that takes the same keywords.
    index : Index
        What is read.
    batch_size : int
        Samples per device and step.
    num_read_processes : int
        Reader processes in all, shared out over the devices, at least 1 for each.
    devices : sequence of int or None, optional
        CUDA devices, one pipeline on each; None in it is a pipeline on the CPU. By default the GPU
        of this process if it is one of several, that of torch.cuda.set_device or LOCAL_RANK; else
        all visible GPUs, else one CPU pipeline.
    shard_id, num_shards : int, optional
        Place of this process among all processes that share an epoch. By default what
        torch.distributed says, if it is initialised when the Loader starts (Lightning, accelerate,
        mp.spawn), else what the variables of torchrun, MPI or Slurm's srun say, else 0 of 1. It may
        not change after the start.
    seed : int
        Order, windows and flips follow from it.
    shuffle : bool
        A new order in each epoch.
    tail : {"partial", "fill", "drop"}
        What becomes of the last step of an epoch, see `readers.sampling.schedule.Tail`. With
        ``fill`` look at ``valid``; otherwise it is True throughout.
    bad_sample : {"raise", "skip"}
        What to do with a row that cannot be read: raise ReadError, or leave it out and note it in
        ``stats.rejected``. With tail ``fill`` another row stands in its place, not valid. Either
        way no step is added or lost, so that all processes of a job stay in step.
    max_bad : int or float, optional
        With ``skip``: how many rows may be rejected, as a number, or below 1 as a share of the
        Index; one more raises ReadError. Each process counts its own.
    restart_readers : int
        How many times a dead reader process may be made good: the pipelines start anew at the same
        step, and nothing is lost or repeated. Then ReaderProcessError is raised.
    **config
        Further keywords of the factory: crop, window, flip, resize, mean, std, dtype, columns, ...

    Raises
    ------
    TypeError
        If there is no such setting. A factory of your own whose ``**config`` is annotated as
        ``Unpack[PipelineSettings]`` is checked for that, too; others find it when they are called.
    ValueError
        If the settings contradict each other or do not fit the data.
    """

    def __init__(
        self,
        factory: Callable[..., ReaderPipeline],
        index: Index,
        *,
        batch_size: int,
        num_read_processes: int = 4,
        devices: Sequence[Device] | None = None,
        shard_id: int | None = None,
        num_shards: int | None = None,
        seed: int = 0,
        shuffle: bool = True,
        tail: Literal["partial", "fill", "drop"] = "partial",
        bad_sample: BadSample = "raise",
        max_bad: float | None = None,
        restart_readers: int = 0,
        **config: Any,
    ) -> None:
        check_index(index)
        if bad_sample not in get_args(BadSample):
            raise ValueError(f"bad_sample must be 'raise' or 'skip', got {bad_sample!r}")
        if max_bad is not None and not (isinstance(max_bad, Real) and max_bad >= 0):
            raise ValueError(
                f"max_bad must be a number of rows, or a share below 1, got {max_bad!r}"
            )
        if not is_integer(num_read_processes, 1):
            raise ValueError(
                f"num_read_processes must be an integer, at least 1, got {num_read_processes!r}"
            )
        if not is_integer(restart_readers, 0):
            raise ValueError(f"restart_readers must be at least 0, got {restart_readers!r}")
        check_settings(factory, config, inspect.signature(Loader).parameters)
        PipelineConfig(
            batch_size=batch_size,
            num_read_processes=num_read_processes,
            seed=seed,
            shuffle=shuffle,
        )
        self._factory = factory
        self.index = index
        self._late = LatePlacement(devices, shard_id, num_shards)
        self._num_read_processes = num_read_processes
        self._bad_sample = bad_sample
        self._max_bad = max_bad
        self._restarts_left = restart_readers
        self._config = {
            **config,
            "batch_size": batch_size,
            "seed": seed,
            "shuffle": shuffle,
            "tail": tail,
            "rejected": dict(config.get("rejected", {})),
        }
        self._epoch, self._position = 0, 0
        self._make_schedule(0, 0, self._late.least)  # to check batch_size and tail
        self._pipelines: list[ReaderPipeline] = []
        self._iterators: list[Iterator[list[Batch]]] = []
        self._image_shape: torch.Size | None = None
        self._unlisted = 0  # rows left out since the last one that was named, or counted
        self.stats = LoaderStats()

    # Iteration.

    def __len__(self) -> int:
        """Count the batches of a whole epoch, the same on all devices and processes.

        What is known of the other processes counts, which before the start may be less.
        """
        return self._make_schedule(0, 0, self._placement).steps(0)

    def __iter__(self) -> Iterator[list[Batch]]:
        """Deliver what is left of the current epoch."""
        num_epochs = self._config.get("num_epochs")
        if num_epochs is not None and self._epoch >= num_epochs:
            raise RuntimeError(
                f"all num_epochs={num_epochs} epochs were delivered: make the Loader with more, or "
                "with num_epochs=None"
            )
        self._settle()
        for _ in range(self._steps_left()):
            yield self._step()

    def start(self) -> None:
        """Start the pipelines and their reader processes; a second call does nothing.

        With start_method ``fork`` this must come before anything that initialises CUDA.

        Raises
        ------
        ReaderProcessError
            If a reader process dies meanwhile, and no restart is left.
        RuntimeError
            If this process was forked from the one that started them.
        """
        for pipeline in self._pipelines:
            pipeline.check_process()
        while not self._pipelines:
            try:
                with interrupt_held():
                    self._start()
            except ReaderProcessError as error:
                self._use_restart(error)

    def _start(self) -> None:
        started = time.perf_counter()
        self._settle()
        self._pipelines = self.make_pipelines()
        try:
            for pipeline in self._pipelines:
                pipeline.start_py_workers()
            self._iterators = [
                DALIGenericIterator(
                    [pipeline], list(pipeline.output_names), size=-1, prepare_first_batch=False
                )
                for pipeline in self._pipelines
            ]
        except BaseException:
            self.close()
            raise
        self.stats.start_s += time.perf_counter() - started

    def close(self) -> None:
        """End the reader processes; the next loop starts new ones where this one stopped."""
        with interrupt_held():
            self._iterators = []
            self._note_waits()
            if self._unlisted:
                logger.warning("left out: and %d more, see stats.rejected", self._unlisted)
                self._unlisted = 0
            # Before they are ended: whoever insists on Ctrl-C in the midst of it may start anew.
            pipelines, self._pipelines = self._pipelines, []
            with ExitStack() as ending:
                for pipeline in reversed(pipelines):
                    ending.callback(pipeline.close)

    def __enter__(self) -> Loader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # State.

    def state_dict(self) -> dict[str, Any]:
        """Say where the next batch begins.

        Returns
        -------
        dict
            version (of the order), seed, shuffle, epoch, position (of the epoch's order, the first
            that is not delivered) and digest of the Index, all of them plain Python values. It does
            not depend on batch size or number of shards. All processes of a job have the same
            state, as long as they have taken as many steps.
        """
        return {
            "version": VERSION,
            "seed": int(self._config["seed"]),
            "shuffle": bool(self._config["shuffle"]),
            "epoch": self._epoch,
            "position": self._position,
            "digest": self.index.digest,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where another Loader stopped, with any batch size and number of shards.

        Parameters
        ----------
        state : dict
            As `state_dict` gave it. Its seed and shuffle replace this Loader's.

        Raises
        ------
        ValueError
            If the state was saved with another Index or by a release with another order of rows, or
            if a value in it makes no sense. Then nothing is changed.
        """
        check_state(state, self.index)
        self.close()
        self._config.update(seed=int(state["seed"]), shuffle=state["shuffle"])
        self._epoch, self._position = int(state["epoch"]), int(state["position"])

    # How it works.

    @property
    def epoch(self) -> int:
        """Epoch of the next batch, counted from 0."""
        return self._schedule.start[0]

    @property
    def step(self) -> int:
        """Step of the epoch that the next batch is, counted from 0 at this batch size."""
        return self._schedule.start[1] // self._schedule.stride

    @property
    def devices(self) -> tuple[Device, ...]:
        """Devices of this process, in the order of a batch's list."""
        return self._placement.devices

    @property
    def first_shard(self) -> int:
        """Shard of the first device of this process; those of the others follow."""
        return self._placement.first_shard

    @property
    def num_shards(self) -> int:
        """Shards over all processes; before the start, what they would be if it started now."""
        return self._placement.num_shards

    @property
    def _placement(self) -> Placement:
        return self._late.now()

    @property
    def _schedule(self) -> Schedule:
        return self._make_schedule(self._epoch, self._position, self._placement)

    @property
    def pipelines(self) -> tuple[ReaderPipeline, ...]:
        """The pipelines that run, one for each device; none before `start` and after `close`."""
        return tuple(self._pipelines)

    def _make_schedule(self, epoch: int, position: int, placement: Placement) -> Schedule:
        return Schedule(
            num_rows=len(self.index),
            shard=Shard(placement.first_shard, placement.num_shards),
            batch_size=self._config["batch_size"],
            tail=self._config["tail"],
            epoch=epoch,
            position=position,
        )

    def make_pipelines(self) -> list[ReaderPipeline]:
        """Make the pipelines that `start` would start, to look at them beforehand.

        Raises
        ------
        ValueError
            If the crop is larger than the first image, and such rows are not to be skipped.
        """
        placement = self._placement
        processes = share_out(self._num_read_processes, len(placement.devices))
        pipelines = [
            self._factory(
                self.index,
                **self._config,
                device_id=device,
                shard_id=placement.first_shard + part,
                num_shards=placement.num_shards,
                num_read_processes=processes[part],
                epoch=self._epoch,
                position=self._position,
            )
            for part, device in enumerate(placement.devices)
        ]
        if self._bad_sample == "raise" and pipelines[0].too_small is not None:
            raise ValueError(pipelines[0].too_small)
        return pipelines

    def _settle(self) -> None:
        self._late.settle()
        # With tail "drop" and a larger step than before, a state may leave no step of its epoch.
        self._epoch, self._position = self._schedule.start

    def _steps_left(self) -> int:
        return self._schedule.steps(self._epoch)

    def _step(self) -> list[Batch]:
        while (batches := self._tried_step()) is None:
            pass  # not in an except: its error would hold the old pipelines and their shared memory
        self._advance()
        self.stats.batches += 1
        return batches

    def _tried_step(self) -> list[Batch] | None:
        """Give the next step, or None where it is to be tried again, by pipelines started anew."""
        self.start()
        started = time.perf_counter()
        try:
            with interrupt_held():
                batches = [_next(iterator) for iterator in self._iterators]
            if not self._pipelines:
                raise RuntimeError(_CLOSED)
            self.stats.wait_s += time.perf_counter() - started
            self._note_waits()
            if self._config["tail"] == "fill" and self._leave_out_damaged(batches):
                # Full batches need real pixels: the step again, with other rows in their places.
                self.close()
                return None
            return [self._accept(batch) for batch in batches]
        except RuntimeError as error:
            closed = not self._pipelines
            self.close()
            if closed:
                raise RuntimeError(_CLOSED) from None
            if isinstance(error, ReaderProcessError):
                self._use_restart(error)
            else:  # DALI fails the whole batch for one stream that it cannot decode.
                self._find_undecodable(error)
            return None
        except BaseException:
            # The pipelines are past this step, or broken; the cursor is not. A later loop starts
            # them anew at this step, so that nothing is lost.
            self.close()
            raise

    def _use_restart(self, error: ReaderProcessError) -> None:
        """Count one more restart, or raise the error where none is left."""
        if self._restarts_left == 0:
            raise error.with_traceback(None) from None  # DALI's frames tell nobody anything
        self._restarts_left -= 1
        self.stats.restarts += 1
        logger.warning("%s; starting again, %d times more", error, self._restarts_left)

    def _note_waits(self) -> None:
        for pipeline in self._pipelines:
            self.stats.wait_readers_s += pipeline.feed_s
            self.stats.wait_graph_s += pipeline.graph_s
            pipeline.feed_s = pipeline.graph_s = 0.0

    def _find_undecodable(self, error: RuntimeError) -> None:
        """Find the rows of this step that make a graph fail, or raise its error again."""
        known = self._config["rejected"]
        found = False
        for device, positions in self._positions():
            make = partial(self._make_single, device)
            for row, reason in find_undecodable(make, positions):
                if row not in known:
                    self._reject(row, reason)
                    known[row] = reason
                    found = True
        if not found:
            raise error

    def _positions(self) -> Iterator[tuple[Device, list[int]]]:
        """Give the positions that each device of this process takes in this step."""
        batch_size, num_rows = self._config["batch_size"], len(self.index)
        for part, device in enumerate(self._placement.devices):
            start = self._position + (self._placement.first_shard + part) * batch_size
            if self._config["tail"] != "fill":
                yield device, list(range(start, min(start + batch_size, num_rows)))
            else:  # a row behind the batch may have taken the place of a bad one
                count = min(max(batch_size, NEIGHBOURS), num_rows)
                yield device, [position % num_rows for position in range(start, start + count)]

    def _make_single(
        self, device: Device, position: int, left_out: Mapping[int, str]
    ) -> ReaderPipeline:
        """Make a pipeline of batches of one sample, which reads in this process."""
        settings = {
            **self._config,
            "batch_size": 1,
            "tail": "partial",
            "prefetch": 1,
            "rejected": {**self._config["rejected"], **left_out},
        }
        return self._factory(
            self.index,
            **settings,
            device_id=device,
            shard_id=0,
            num_shards=1,
            num_read_processes=0,
            epoch=self._epoch,
            position=position,
        )

    def _leave_out_damaged(self, batches: list[Batch]) -> bool:
        """Reject the rows that the graph found damaged for good; tell whether there are any."""
        damaged = {
            row
            for batch in batches
            for row, report in _reported(batch)
            if report.damaged and row not in self._config["rejected"]
        }
        for row in damaged:
            self._reject(row, _DAMAGED)
            self._config["rejected"][row] = _DAMAGED
        return bool(damaged)

    def _advance(self) -> None:
        position = min(self._position + self._schedule.stride, len(self.index))
        self._epoch, self._position = replace(self._schedule, position=position).start

    def _accept(self, batch: Batch) -> Batch:
        """Note what the readers reported, apply the bad-sample policy, and trim."""
        for row, report in _reported(batch):
            if report.damaged:
                report.reject(row, _DAMAGED)
            self.stats.read_s += report.read_s
            self.stats.read_cpu_s += report.read_cpu_s
            self.stats.input_bytes += report.input_bytes
            if report.rejected_row is not None:
                self._reject(report.rejected_row, report.reason)
        batch = {name: tensor for name, tensor in batch.items() if name != "report"}
        valid = batch["valid"]
        count = int(valid.sum())
        if self._config["tail"] != "fill" and count < len(valid):
            batch = {name: _keep(tensor, valid) for name, tensor in batch.items()}
        if count:
            self._image_shape = batch["image"].shape[1:]
        elif len(batch["row"]) == 0 and self._image_shape is not None:
            # A batch without rows was made of the smallest image.
            batch["image"] = batch["image"].new_empty((0, *self._image_shape))
        self.stats.samples += count
        self.stats.output_pixels += count * batch["image"].shape[1:].numel()
        return batch

    def _reject(self, row: int, reason: str) -> None:
        path = self.index.path(row)
        if self._bad_sample == "raise":
            raise ReadError(path, reason, row=row)
        if row in self.stats.rejected:
            return
        hdu = self.index.hdu(row)
        self.stats.rejected[row] = Rejected(row, path, reason, hdu, self._epoch, self.step)
        count, most = len(self.stats.rejected), self._max_bad
        if count <= _LISTED:
            logger.warning("left out: %s (row %d): %s", printable(path), row, reason)
        else:
            self._unlisted += 1
        if most is not None and count > (most * len(self.index) if most < 1 else most):
            reason = f"{reason}; that makes {count} rejected rows, more than max_bad={most} allows"
            raise ReadError(path, reason, row=row)


def _reported(batch: Batch) -> Iterator[tuple[int, ReadReport]]:
    """Give the row of each slot with what was reported of it."""
    reports = ReadReport.unpack(batch["report"].numpy())
    return zip(batch["row"].tolist(), reports, strict=True)


def _next(iterator: Iterator[list[Batch]]) -> Batch:
    try:
        return next(iterator)[0]
    except RuntimeError as error:
        if "representable as a tensor" in str(error) or "uniform" in str(error):
            raise ValueError(
                "the images of one batch differ in size: give crop or resize, or leave images of "
                "other sizes out of the Index"
            ) from error
        raise


def _keep(tensor: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
    count = int(valid.sum())
    if bool(valid[:count].all()):
        return tensor[:count]  # the tail: a view, no copy
    return tensor[valid.nonzero()[:, 0].to(tensor.device)]
