"""Epochs of batches for training code, over one or more pipelines."""

from __future__ import annotations

import copy
import inspect
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property, partial, wraps
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, Unpack

import numpy as np

from dali_pipelines.config import PipelineConfig
from dali_pipelines.frameworks.choose import FrameworkName, framework_named, image_format
from dali_pipelines.frameworks.contract import Batch as Batch
from dali_pipelines.graph.pipeline import ReaderPipeline
from dali_pipelines.graph.source import check_index
from dali_pipelines.keywords import documents, title, without_keywords
from dali_pipelines.loading.batches import pixels_of, reports_of, valid_only
from dali_pipelines.loading.one_thread import OneThread, Steps
from dali_pipelines.loading.position import OF_STATE, Position
from dali_pipelines.loading.recovery import BadRows, BadSample, find_undecodable
from dali_pipelines.loading.settings import pipeline_settings, row_values
from dali_pipelines.loading.stats import LoaderStats
from dali_pipelines.loading.step import Step
from dali_pipelines.memory import warn_of_memory
from dali_pipelines.runtime.devices import (
    Device,
    DeviceLike,
    check_visible,
    devices_of,
    share_out,
)
from dali_pipelines.runtime.interrupts import NoInterruptLost
from dali_pipelines.runtime.processes.reader_processes import ReaderProcessError
from dali_pipelines.runtime.ranks import find_local_rank
from dali_pipelines.serving.of_loader import preprocessor_of
from dali_pipelines.settings import LoaderSettings
from readers.index.table import Index
from readers.values import check_integer

if TYPE_CHECKING:
    from jax.sharding import NamedSharding

    from dali_pipelines.serving.preprocessor import Preprocessor

logger = logging.getLogger(__name__)
Arguments = ParamSpec("Arguments")

_CLOSED = (
    "this Loader was closed by another thread while it waited for a batch: the next loop over it "
    "starts with that batch"
)


def _takes_no_pipeline(init: Callable[Arguments, None]) -> Callable[Arguments, None]:
    """Decorate `Loader.__init__` with a clear error if a pipeline is passed as the factory."""

    @wraps(init)
    def checked(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        if isinstance(kwargs.get("factory", args[1] if len(args) > 1 else None), ReaderPipeline):
            raise TypeError(
                "factory must be a function, but got the pipeline that it returns: pass the "
                "function and its keywords to the Loader, such as Loader(jpeg_pipeline, index, "
                "batch_size=16), not Loader(jpeg_pipeline(index, batch_size=16))"
            )
        init(*args, **kwargs)

    return checked


@documents(LoaderSettings, PipelineConfig)
class Loader:
    """Iterate over an Index in epochs of batches, with one pipeline on each device.

    Each ``for`` loop over the Loader is one epoch. After a ``break``, or after `load_state_dict`,
    the next loop continues with the rest of the epoch; in mode ``eval`` it starts again. Each step
    is a `Step`, a list with a dict for each device; with one device ``step["image"]`` is
    ``step[0]["image"]``. A dict has ``image`` (see the factory), ``row`` (int64, row of the Index),
    ``valid`` (bool) and the `columns`, as arrays of the framework. Columns of text, and images with
    ``ragged="list"``, are lists. The first loop, or `start`, starts readers.

    Only one thread at a time may take steps and change the state; a second thread gets a
    RuntimeError. Only `close` may be called from any thread. Two loops that alternate share the
    rest of the epoch.

    A Loader can be copied and pickled at any time. The copy begins at the same step, with its own
    readers and its own rank.

    Parameters
    ----------
    factory : callable
        `fits_pipeline`, `jpeg_pipeline`, or another function that takes the same keywords.
    index : Index
        The rows to read. If they are windows (`Index.cutouts`, `Index.each_window`), the Index has
        the defaults of `window`, `crop` and `outside`.
    num_read_processes : int
        Reader processes of this process, divided among its devices, at least 1 for each. In a job,
        the number for each rank.
    devices : device or sequence of devices, optional
        One pipeline runs on each: ``"cpu"``, ``"cuda"``, ``"cuda:1"``, torch.device, or the number
        of a GPU; in a sequence also None for the CPU. By default all visible GPUs, or the CPU if
        there is none. In a job of several processes each process takes only its own GPU, from
        torch.cuda.set_device or LOCAL_RANK.
    shard_id, num_shards : int, optional
        Number of this process, and count of all processes that share an epoch. By default from
        torch.distributed, if it is initialised when the Loader starts (Lightning, accelerate,
        mp.spawn), else from the variables of torchrun, MPI or Slurm's srun, else 0 of 1. They must
        not change after the start.
    bad_sample : {"raise", "skip"}
        Treatment of rows that cannot be read: raise ReadError, or skip the row and record it in
        ``stats.rejected``. With tail ``fill`` another row takes its place, marked as not valid;
        ReadError is raised if no row can be read. The number of steps stays the same, on all
        processes of a job.
    max_bad : int or float, optional
        With ``skip``: maximum number of rejected rows in this process; ReadError is raised for one
        more. An int is a number of rows, a float a share of the Index: 1 is one row, 1.0 all rows.
    restart_readers : int
        Maximum number of restarts of the pipelines after a reader process has died. They restart at
        the same step, and no sample is lost or repeated. The next death raises ReaderProcessError.
    framework : {"torch", "jax", "numpy", "cupy", "dlpack"}
        Type of the arrays of a batch: tensors of PyTorch, or arrays of JAX, NumPy or CuPy. With
        ``dlpack`` the arrays have ``__dlpack__``, on the CPU or a GPU. Only ``torch`` imports
        PyTorch. With ``jax``, arrays of 64 bits such as ``row`` are NumPy arrays unless
        jax_enable_x64 is set.
    sharding : jax.sharding.NamedSharding, optional
        With ``jax``: a batch is one dict of global arrays over the devices of this mesh, which may
        belong to several processes. The first axis is split into parts of `batch_size` samples.
    **config
        Other keywords of the factory: hdu, planes and hdus of `fits_pipeline`, channels of
        `jpeg_pipeline`, preset and fields of `Calibration` of `aia_pipeline`, and so on. Bind
        keywords of your own factory by functools.partial; they count as if passed here.

    Raises
    ------
    TypeError
        If the factory lacks a setting, or functools.partial binds a setting of the Loader. A
        factory of your own is checked here if its ``**config`` is annotated as
        ``Unpack[PipelineSettings]``, otherwise when it is called.
    ValueError
        If settings contradict each other or do not fit the data.
    """

    @_takes_no_pipeline
    def __init__(
        self,
        factory: Callable[..., ReaderPipeline],
        index: Index,
        *,
        num_read_processes: int = 4,
        devices: DeviceLike | Sequence[DeviceLike] = None,
        shard_id: int | None = None,
        num_shards: int | None = None,
        bad_sample: BadSample = "raise",
        max_bad: float | None = None,
        restart_readers: int = 0,
        framework: FrameworkName = "torch",
        sharding: NamedSharding | None = None,
        **config: Unpack[LoaderSettings],
    ) -> None:
        if not callable(factory):
            raise TypeError(f"factory must be a function such as jpeg_pipeline, got {factory!r}")
        check_index(index)
        check_integer("num_read_processes", num_read_processes, 1)
        check_integer("restart_readers", restart_readers, 0)
        own = inspect.signature(Loader.__init__).parameters.keys() - {"self"}
        settings = pipeline_settings(factory, config, own, index)
        self.starts_anew = settings.get("mode") == "eval"
        self.index, self.stats = index, LoaderStats()
        self._framework = framework_named(framework, sharding)
        self._framework.check({**settings, "bad_sample": bad_sample})
        self._format = image_format(framework, self._framework, settings)
        own_devices = None if devices is None else devices_of(devices)
        find_shards = self._framework.shards(own_devices, shard_id, num_shards)
        self._position = Position(index, settings, find_shards)
        self._bad_rows = BadRows(index, settings, self._position, self.stats, bad_sample, max_bad)
        self._values = row_values(index, settings)
        # Without its bound keywords: `settings` has them, or None in their place.
        self._factory, self._framework_name = without_keywords(factory), framework
        self._num_read_processes, self._restarts_left = num_read_processes, restart_readers
        changing = {*OF_STATE, "rejected"}  # kept in `Position.keywords` and `BadRows.left_out`
        self._settings = {name: one for name, one in settings.items() if name not in changing}
        self._shapes: dict[str, tuple[int, ...]] = {}  # of one sample, by the name of the array
        self._set_idle()

    def _set_idle(self) -> None:
        self._pipelines: list[ReaderPipeline] = []
        self._iterators: list[Iterator[Batch]] = []
        self._one_thread = OneThread(self.close)

    def __getstate__(self) -> dict[str, Any]:
        own = ("_pipelines", "_iterators", "_one_thread")  # a copy starts its own
        return {name: value for name, value in vars(self).items() if name not in own}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)
        self._set_idle()

    def __repr__(self) -> str:
        factory = title(self._factory)
        where = f"epoch {self.epoch}, step {self.step}"
        return f"<Loader of {factory}: {len(self.index)} rows, next is {where} of {len(self)}>"

    def __copy__(self) -> Loader:
        return copy.deepcopy(self)  # a shallow copy would share the position

    def __len__(self) -> int:
        """Return the number of steps of a whole epoch, the same on all devices and processes.

        Before the start it may be too large, as other processes of the job may still be unknown.
        """
        return self._position.steps_of_epoch()

    def __getitem__(self, _: object) -> NoReturn:
        """Raise TypeError: a DataLoader around this Loader would call it for single samples."""
        raise TypeError(
            "a Loader has no single samples, only batches: do not pass it to a DataLoader, but "
            "iterate over it, for batch in loader"
        )

    # ---- Steps ---------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        """Yield the remaining batches of the current epoch; in mode ``eval`` all batches."""
        return Steps(self._steps(), self._one_thread)

    def _steps(self) -> Iterator[Any]:
        if self.starts_anew:
            # With epoch_steps, only epoch 0 begins at the first row.
            self.reset(0 if self._position.epoch_steps else None)
        num_epochs = self._settings.get("num_epochs")
        if num_epochs is not None and self.epoch >= num_epochs:
            raise RuntimeError(
                f"all num_epochs={num_epochs} epochs are over: make a Loader with more epochs"
            )
        self._position.settle()
        epoch = self.epoch
        while self.epoch == epoch:  # not a count of steps: the loop may load a state
            yield self._next_step()

    def _next_step(self) -> Any:
        """Return the batches of the next step as the framework delivers them, and move on.

        The position moves last. After an error or Ctrl-C the pipelines may be ahead of it, so they
        are closed, and a later loop starts new pipelines at this step.
        """
        self._start()
        try:
            with NoInterruptLost():
                while (batches := self._try_step()) is None:
                    # Retry outside the except block: a live traceback keeps the old pipelines'
                    # shared memory.
                    self._start()
                batches = [self._framework.formatted(batch, self._format) for batch in batches]
                delivered = self._framework.deliver(batches)
                for batch in batches:
                    self.stats.samples += int(np.asarray(batch["valid"]).sum())
                    self.stats.output_pixels += pixels_of(batch)
                self.stats.batches += 1
            place = self.epoch, self.step, self._position.seed
            self._position.advance()
        except BaseException:
            self.close()
            raise
        return Step(delivered, *place) if isinstance(delivered, list) else delivered

    def _try_step(self) -> list[Batch] | None:
        """Return the batches of the next step, or None if new pipelines must retry it."""
        started = time.perf_counter()
        try:
            batches = [next(iterator) for iterator in self._iterators]
            if not self._pipelines:
                raise RuntimeError(_CLOSED)
            self.stats.wait_s += time.perf_counter() - started
            self._note_waits(self._pipelines)
            # If batches must be full, read the step again, with other rows for the damaged ones.
            if self._fills and self._bad_rows.leave_out_damaged(batches):
                self.close()
                return None
            return [self._accepted(batch) for batch in batches]
        except Exception as error:
            closed = not self._pipelines
            self.close()
            if closed:  # any error of DALI is a consequence
                raise RuntimeError(_CLOSED) from None
            if not isinstance(error, RuntimeError):
                raise
            if isinstance(error, ReaderProcessError):
                self._use_restart(error)
            else:  # a file that DALI cannot decode makes the whole batch fail
                self._leave_out_undecodable(error)
            return None

    def _accepted(self, batch: Batch) -> Batch:
        """Return a batch without rejected rows, and with the columns of its rows."""
        self.stats.add(reports_of(batch).sum())
        self._bad_rows.reject_reported(batch)
        batch = {name: array for name, array in batch.items() if name != "report"}
        valid = np.asarray(batch["valid"])
        if not self._fills and not valid.all():
            batch = valid_only(batch, valid, self._framework)
        if valid.any():
            arrays = ((name, array) for name, array in batch.items() if not isinstance(array, list))
            self._shapes = {name: array.shape[1:] for name, array in arrays}
        elif len(batch["row"]) == 0:
            # An empty batch is made from tiny images: give its arrays the shape of the others.
            for name, shape in self._shapes.items():
                batch[name] = batch[name].reshape((0, *shape))
        return batch | self._values.of(batch["row"].tolist())

    @property
    def _fills(self) -> bool:
        return self._settings["tail"] == "fill"

    def _use_restart(self, error: ReaderProcessError) -> None:
        """Count one more restart, or raise the error if none is left."""
        if self._restarts_left == 0:
            # The traceback only shows DALI, and keeps the shared memory of the old pipelines.
            error.__context__ = None
            raise error.with_traceback(None) from None
        self._restarts_left -= 1
        self.stats.restarts += 1
        logger.warning("%s; restarting, %d restarts left", error, self._restarts_left)

    def _leave_out_undecodable(self, error: RuntimeError) -> None:
        """Reject the rows of this step that make the graph fail; raise the error if none does."""
        found = [
            self._bad_rows.leave_out(row, reason)
            for device, positions in self._position.positions()
            for row, reason in find_undecodable(partial(self._single, device), positions)
        ]
        if not any(found):
            raise error

    def _single(self, device: Device, position: int, left_out: Mapping[int, str]) -> ReaderPipeline:
        """Make a pipeline with batches of one sample that reads in this process."""
        endless = {"num_epochs": None} if "num_epochs" in self._settings else {}
        return self._make(
            device,
            **endless,
            position=position,
            shard_id=0,
            num_shards=1,
            num_read_processes=0,
            batch_size=1,
            tail="partial",
            prefetch=1,
            rejected={**self._bad_rows.left_out, **left_out},
        )

    # ---- Pipelines -----------------------------------------------------------------------------

    def start(self) -> None:
        """Start the pipelines and their reader processes, unless they run already.

        With start_method ``fork``, call this before CUDA is initialised.

        Raises
        ------
        ReaderProcessError
            If a reader process dies while it starts, and no restart is left.
        RuntimeError
            If another process, from which this one was forked, started them.
        """
        with self._one_thread:
            self._start()

    def _start(self) -> None:
        for pipeline in self._pipelines:
            pipeline.check_process()
        while not self._pipelines:
            try:
                self._start_pipelines()
            except ReaderProcessError as error:
                self._use_restart(error)

    def _start_pipelines(self) -> None:
        """Start new pipelines at the next step; close them if one cannot be started."""
        started = time.perf_counter()
        self._position.settle()
        pipelines = self._pipelines
        try:
            with NoInterruptLost():
                self._pipelines = pipelines = self.make_pipelines()
                warn_of_memory(pipelines, find_local_rank()[1] or 1)
                for pipeline in pipelines:
                    pipeline.start_py_workers()
                self._iterators = [self._framework.iterate(one) for one in pipelines]
            if self._pipelines is not pipelines:
                raise RuntimeError(_CLOSED)
        except BaseException as error:
            # If another thread has closed the Loader, readers may have started after that.
            closed = self._pipelines is not pipelines
            self._pipelines = pipelines
            self.close()
            if closed and isinstance(error, Exception):
                raise RuntimeError(_CLOSED) from None
            raise
        self.stats.start_s += time.perf_counter() - started

    def make_pipelines(self) -> list[ReaderPipeline]:
        """Make the pipelines that `start` would start, to inspect them.

        Raises
        ------
        ValueError
            If the crop is larger than the first image, and bad samples are not skipped.
        """
        shards = self._position.shards
        check_visible(shards.devices)
        shares = share_out(self._num_read_processes, len(shards.devices))
        pipelines = [
            self._make(
                device,
                shard_id=shards.first_shard + number,
                num_shards=shards.num_shards,
                num_read_processes=shares[number],
                rejected=self._bad_rows.left_out,
            )
            for number, device in enumerate(shards.devices)
        ]
        if taken := sorted(set(self._values.names) & set(pipelines[0].output_names)):
            raise ValueError(f"columns {taken} have the name of another output: rename them")
        if self._bad_rows.raises and pipelines[0].too_small is not None:
            raise ValueError(pipelines[0].too_small)
        return pipelines

    def _make(self, device: Device, **settings: Any) -> ReaderPipeline:
        keywords = {**self._settings, **self._position.keywords, **settings}
        pipeline = self._factory(self.index, device_id=device, **keywords)
        if not isinstance(pipeline, ReaderPipeline):
            raise TypeError(
                "a factory must return the ReaderPipeline that reader_pipeline makes, got "
                f"{type(pipeline).__name__}"
            )
        return pipeline

    def close(self) -> None:
        """End the reader processes. The next loop starts new ones, at the next step."""
        # Forget the pipelines first, so that the Loader can start again even after another Ctrl-C.
        pipelines, self._pipelines, self._iterators = self._pipelines, [], []
        self._note_waits(pipelines)
        self._bad_rows.log_rest()
        with NoInterruptLost(), ExitStack() as ending:
            for pipeline in reversed(pipelines):
                ending.callback(pipeline.close)

    def _note_waits(self, pipelines: Sequence[ReaderPipeline]) -> None:
        """Add the time that this process has waited since the last call."""
        for pipeline in pipelines:
            self.stats.wait_readers_s += pipeline.feed_s
            self.stats.wait_graph_s += pipeline.graph_s
            pipeline.feed_s = pipeline.graph_s = 0.0

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # ---- Position ------------------------------------------------------------------------------

    def reset(self, epoch: int | None = None) -> None:
        """Let the next loop begin at the start of an epoch, by default of the current epoch.

        The reader processes end, unless they are at that position. The next loop starts new ones.

        Parameters
        ----------
        epoch : int, optional
            Counted from 0. ``loader.epoch + 1`` skips the rest of the current epoch.

        Raises
        ------
        ValueError
            If it is not an integer, or below 0.
        """
        if epoch is not None:
            check_integer("epoch", epoch, 0)
        with self._one_thread:
            if self._position.reset(epoch):
                self.close()

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the next batch.

        Returns
        -------
        dict
            Plain Python values: version (of the order), seed, shuffle (and block_rows), epoch,
            position (of the first sample that is not delivered, in the order of the epoch) and
            digest of the Index; with weights also their digest. The state does not depend on the
            batch size or the number of shards. All processes of a job have the same state after the
            same number of steps. With epoch_steps, epoch counts passes, and there are also steps
            (since the start of epoch 0) and start (steps, pass and position at the start of the
            epoch). preprocess, if a preprocessor can be saved, is its digest, to find the file that
            belongs to a model. It is not compared when a state is loaded.
        """
        state = self._position.state()
        return state if self._preprocess is None else {**state, "preprocess": self._preprocess}

    @cached_property
    def _preprocess(self) -> str | None:
        try:
            name = self._framework_name if self._format.dtype == "bfloat16" else "numpy"
            return self.preprocessor(framework=name, device_id=None).digest
        except Exception:  # no checkpoint may fail because of `preprocessor` or `save`
            return None

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the state of another Loader, with any batch size and number of shards.

        Parameters
        ----------
        state : dict
            From `state_dict`. Its seed and shuffle replace those of this Loader. If only one of the
            two Loaders has epoch_steps, the next sample is the same, and its pass becomes the
            epoch.

        Raises
        ------
        ValueError
            If the state was saved with another Index, with other weights, or by a release with
            another order of rows, or if it has an invalid value. Nothing is changed in this case.
        """
        self._position.check(state)
        self._position.warn_of_change(state)
        with self._one_thread:
            self.close()
            self._position.load(state)

    def preprocessor(self, **changes: Any) -> Preprocessor:
        """Return the preprocessing of this Loader for inference, as a function of files' bytes.

        It makes the images of this Loader in mode ``eval``, on its first device. Columns, targets,
        weights and settings of reading are not part of it. Facts of the Index become settings: the
        HDU or plane of all rows, the dtypes of `hdus`, the number of all planes.

        Parameters
        ----------
        **changes
            Keywords of `Preprocessor`, e.g. ``device_id=None``, and settings that replace those of
            this Loader. They must replace ``random_area``, for example by ``random_area=None,
            resize=None, resize_shorter=256, crop=224``.

        Raises
        ------
        ReadError
            If none of the first rows can be read to find the dtypes or the number of planes.
        ValueError
            If images depend on columns of the Index: window ``row``, or several HDUs or planes.
        """
        given = {"framework": self._framework_name, "device_id": self.devices[0], **changes}
        return preprocessor_of(self._factory, self.index, self._settings, **given)

    @property
    def epoch(self) -> int:
        """Epoch of the next batch, counted from 0."""
        return self._position.counted_epoch

    @property
    def step(self) -> int:
        """Step of the next batch in its epoch, counted from 0 at this batch size."""
        return self._position.step

    @property
    def steps_left(self) -> int:
        """Number of steps that remain in the current epoch."""
        return self._position.steps_left()

    @property
    def devices(self) -> tuple[Device, ...]:
        """Devices of this process, in the order of the dicts of a step."""
        return self._position.shards.devices

    @property
    def first_shard(self) -> int:
        """Shard of the first device of this process; the other devices have the next shards."""
        return self._position.shards.first_shard

    @property
    def num_shards(self) -> int:
        """Number of shards over all processes. Before the start it may still change."""
        return self._position.shards.num_shards

    @property
    def pipelines(self) -> tuple[ReaderPipeline, ...]:
        """Running pipelines, one for each device; empty before `start` and after `close`."""
        return tuple(self._pipelines)
