"""Epochs of batches for training code, over one or more pipelines."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack

from dali_pipelines.config import PipelineConfig
from dali_pipelines.frameworks.choose import FrameworkName, framework_named
from dali_pipelines.frameworks.contract import Batch as Batch
from dali_pipelines.graph.pipeline import ReaderPipeline
from dali_pipelines.graph.source import check_index
from dali_pipelines.keywords import documents
from dali_pipelines.loading.bad_samples import BadSample, BadSamplePolicy
from dali_pipelines.loading.cursor import Cursor
from dali_pipelines.loading.intake import Intake
from dali_pipelines.loading.maker import PipelineMaker
from dali_pipelines.loading.one_thread import OneThread, Steps
from dali_pipelines.loading.running import RunningPipelines
from dali_pipelines.loading.settings import pipeline_settings, row_values
from dali_pipelines.loading.state import check_state, order_of, state_of
from dali_pipelines.loading.stats import LoaderStats
from dali_pipelines.runtime.devices import Device
from dali_pipelines.serving.of_loader import preprocessor_of
from dali_pipelines.settings import LoaderSettings
from readers.index.table import Index
from readers.values import check_integer

if TYPE_CHECKING:
    from jax.sharding import NamedSharding

    from dali_pipelines.serving.preprocessor import Preprocessor


@documents(LoaderSettings, PipelineConfig)
class Loader:
    """Iterate over an Index in epochs of batches, with one pipeline on each device.

    Each ``for`` loop over the Loader is one epoch; after a ``break``, or after `load_state_dict`,
    the next loop continues with the rest of the epoch, but in mode ``eval`` it starts again. A
    batch is a list with one dict for each device: ``image`` (see the factory), ``row`` (int64, row
    of the Index), ``valid`` (bool), and the columns asked for, as arrays of the framework; text and
    the like, and with ``ragged="list"`` images, as lists. The first loop, or `start`, starts
    readers.

    A Loader is for one thread at a time: a step, or a change of its state, while another thread
    takes one is a RuntimeError there. Only `close` may come from any thread. Loops that take turns
    share what is left of the epoch.

    It can be copied and pickled at any time: a copy begins at the same step, with readers of its
    own, and its own rank.

    Parameters
    ----------
    factory : callable
        `fits_pipeline`, `jpeg_pipeline`, or another that takes the same keywords.
    index : Index
        The rows to read.
    num_read_processes : int
        Reader processes in total, divided among the devices, at least 1 for each.
    devices : sequence of int or None, optional
        CUDA devices, one pipeline on each; None for a pipeline on the CPU. By default the GPU
        of this process if it is one of several, that of torch.cuda.set_device or LOCAL_RANK; else
        all visible GPUs, else one CPU pipeline.
    shard_id, num_shards : int, optional
        Number of this process among all processes that share an epoch, and their count. By default
        from torch.distributed, if it is initialised when the Loader starts (Lightning, accelerate,
        mp.spawn), else from the variables of torchrun, MPI or Slurm's srun, else 0 of 1. They must
        not change after the start.
    bad_sample : {"raise", "skip"}
        What to do with a row that cannot be read: raise ReadError, or leave it out and note it in
        ``stats.rejected``. With tail ``fill`` another row replaces it, not valid; ReadError if none
        can be read. No step is added or lost, so that all processes of a job take the same number
        of steps.
    max_bad : int or float, optional
        With ``skip``: how many rows may be rejected; one more raises ReadError. An int is a number
        of rows, a float a share of the Index: 1 is one row, and 1.0 all of them. Each process
        counts its own.
    restart_readers : int
        How often the pipelines may be restarted after the death of a reader process. They restart
        at the same step, and nothing is lost or repeated. After that ReaderProcessError is raised.
    framework : {"torch", "jax", "numpy", "cupy", "dlpack"}
        What the arrays of a batch are for: tensors of PyTorch, arrays of JAX, NumPy or CuPy. With
        ``dlpack`` they have ``__dlpack__``, on the CPU or a GPU. Only ``torch`` imports PyTorch.
        With ``jax`` those of 64 bits, as ``row``, are NumPy's unless jax_enable_x64 is set.
    sharding : jax.sharding.NamedSharding, optional
        With ``jax``: a batch is one dict, of global arrays over the devices of this mesh, which may
        be those of all processes. It splits the first axis, into parts of `batch_size` samples.
    **config
        Other keywords of the factory: hdu, planes and hdus of `fits_pipeline`, channels of
        `jpeg_pipeline`, preset and those of `Calibration` of `aia_pipeline`, ... functools.partial
        binds keywords of your own factory; they count as if given here.

    Raises
    ------
    TypeError
        If the factory has no such setting, or functools.partial binds one of the Loader. Of your
        own factories, those whose ``**config`` is annotated as ``Unpack[PipelineSettings]`` are
        checked here, others when they are called.
    ValueError
        If settings contradict each other or do not fit the data.
    """

    def __init__(
        self,
        factory: Callable[..., ReaderPipeline],
        index: Index,
        *,
        num_read_processes: int = 4,
        devices: Sequence[Device] | None = None,
        shard_id: int | None = None,
        num_shards: int | None = None,
        bad_sample: BadSample = "raise",
        max_bad: float | None = None,
        restart_readers: int = 0,
        framework: FrameworkName = "torch",
        sharding: NamedSharding | None = None,
        **config: Unpack[LoaderSettings],
    ) -> None:
        check_index(index)
        check_integer("num_read_processes", num_read_processes, 1)
        check_integer("restart_readers", restart_readers, 0)
        own = inspect.signature(Loader.__init__).parameters
        settings = self._config = pipeline_settings(factory, config, own, len(index))
        self.starts_anew = self._config.get("mode") == "eval"
        self.index = index
        weights = settings.get("weights")
        self._weights = None if weights is None else index.running_weights(weights)
        self.stats = LoaderStats()
        kind = framework_named(framework, sharding)
        kind.check({**self._config, "bad_sample": bad_sample})
        placement = kind.placement(devices, shard_id, num_shards)
        cursor = self._cursor = Cursor(
            len(index),
            settings["batch_size"],
            settings["tail"],
            placement,
            settings.get("epoch_steps"),
        )
        policy = BadSamplePolicy(index, cursor, self.stats, bad_sample, max_bad)
        self._factory, self._framework = factory, framework
        maker = PipelineMaker(factory, index, num_read_processes, self._config, cursor)
        values = row_values(index, self._config)
        intake = Intake(policy, self._config, self.stats, kind, values)
        self._running = RunningPipelines(maker, kind, intake, cursor, self.stats, restart_readers)
        self._one_thread = OneThread(self._running.close)

    def __copy__(self) -> Loader:
        return copy.deepcopy(self)  # not one that takes the batches of this one

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch, the same on all devices and processes.

        Before the start it may be larger, if other processes of the job are not known yet.
        """
        return self._cursor.steps_of_epoch()

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches that are left of the current epoch; in mode ``eval`` all of them."""
        return Steps(self._steps(), self._one_thread)

    def _steps(self) -> Iterator[Any]:
        if self.starts_anew:  # with epoch_steps, later epochs would begin at other rows
            self.reset(0 if self._cursor.epoch_steps else None)
        num_epochs = self._config.get("num_epochs")
        if num_epochs is not None and self._cursor.counted_epoch >= num_epochs:
            raise RuntimeError(
                f"all num_epochs={num_epochs} epochs were delivered: make the Loader with more"
            )
        self._cursor.settle()
        epoch = self.epoch
        while self.epoch == epoch:  # a state may be loaded in the loop, to go back
            yield self._running.step()

    def start(self) -> None:
        """Start the pipelines and their reader processes; a second call does nothing.

        With start_method ``fork`` this must come before anything that initialises CUDA.

        Raises
        ------
        ReaderProcessError
            If a reader process dies while it starts, and no restart is left.
        RuntimeError
            If this process was forked from the one that started them.
        """
        with self._one_thread:
            self._running.start()

    def close(self) -> None:
        """End the reader processes; the next loop starts new ones where this one stopped."""
        self._running.close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def reset(self, epoch: int | None = None) -> None:
        """Let the next loop begin at the first row of an epoch, by default of the current one.

        If batches of the current epoch were taken, or another epoch is asked for, the reader
        processes end, and the next loop starts new ones.

        Parameters
        ----------
        epoch : int, optional
            Counted from 0. ``loader.epoch + 1`` leaves out the rest of the current one.

        Raises
        ------
        ValueError
            If it is not an integer, or below 0.
        """
        if epoch is not None:
            check_integer("epoch", epoch, 0)
        with self._one_thread:
            if self._cursor.reset(epoch):
                self.close()

    def state_dict(self) -> dict[str, Any]:
        """Return the state: where the next batch begins.

        Returns
        -------
        dict
            version (of the order), seed, shuffle (and block_rows), epoch, position (in the order of
            the epoch, of the first sample that is not delivered) and digest of the Index, all of
            them plain Python values. It does not depend on batch size or number of shards. All
            processes of a job have the same state after the same number of steps. With weights it
            has their digest, too. With epoch_steps it has steps (since the start of epoch 0) and
            start (steps, pass and position where its epoch begins), and epoch counts passes. And
            it has preprocess, the digest of `preprocessor`, if one can be made and saved, to find
            the file that belongs to a model. It is not compared when a state is loaded.
        """
        state = state_of(self._cursor, self.index, self._weights, self._config)
        return state if self._preprocess is None else {**state, "preprocess": self._preprocess}

    @cached_property
    def _preprocess(self) -> str | None:
        try:
            return self.preprocessor(framework="numpy", device_id=None).digest
        except Exception:  # of `preprocessor` or `save`, for which no checkpoint may fail
            return None

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where another Loader stopped, with any batch size and number of shards.

        Parameters
        ----------
        state : dict
            From `state_dict`. Its seed and shuffle replace this Loader's. If only one of the two
            Loaders has epoch_steps, the next sample is the same, and its pass becomes the epoch.

        Raises
        ------
        ValueError
            If the state was saved with another Index, other weights, or by a release with another
            order of rows, or if a value in it makes no sense. Then nothing is changed.
        """
        check_state(state, self.index, self._weights)
        with self._one_thread:
            self.close()
            self._config.pop("block_rows", None)
            self._config.update(order_of(state))
            self._cursor.load(state)

    def preprocessor(self, **changes: Any) -> Preprocessor:
        """Return the preprocessing of images as a function of the bytes of files, for inference.

        It makes the images of this Loader in mode ``eval``, on its first device. Columns, targets,
        weights and settings of reading are not part of it. Facts from the Index become settings:
        the HDU or plane that all rows name, the dtypes of `hdus`, the number of all planes.

        Parameters
        ----------
        **changes
            Keywords of `Preprocessor`, e.g. ``device_id=None``, and settings that replace those of
            this Loader. A Loader with ``random_area`` needs others, such as ``random_area=None,
            resize=None, resize_shorter=256, crop=224``.

        Raises
        ------
        ReadError
            If a type or number is not given, and none of the first rows can be read.
        ValueError
            If images depend on columns of the Index: window ``row``, or several HDUs or planes.
        """
        given = {"framework": self._framework, "device_id": self.devices[0], **changes}
        return preprocessor_of(self._factory, self.index, self._config, **given)

    @property
    def epoch(self) -> int:
        """Epoch of the next batch, counted from 0."""
        return self._cursor.counted_epoch

    @property
    def step(self) -> int:
        """Step of the next batch in its epoch, counted from 0 at this batch size."""
        return self._cursor.step

    @property
    def steps_left(self) -> int:
        """Batches that are left of the current epoch."""
        return self._cursor.steps_left()

    @property
    def devices(self) -> tuple[Device, ...]:
        """Devices of this process, in the order of a batch's list."""
        return self._cursor.placement.devices

    @property
    def first_shard(self) -> int:
        """Shard of the first device of this process; those of the others follow."""
        return self._cursor.placement.first_shard

    @property
    def num_shards(self) -> int:
        """Shards over all processes; before the start, what they would be if it started now."""
        return self._cursor.placement.num_shards

    @property
    def pipelines(self) -> tuple[ReaderPipeline, ...]:
        """The running pipelines, one for each device; none before `start` and after `close`."""
        return tuple(self._running.pipelines)

    def make_pipelines(self) -> list[ReaderPipeline]:
        """Make the pipelines that `start` would start, to examine them beforehand.

        Raises
        ------
        ValueError
            If the crop is larger than the first image, and bad samples are not skipped.
        """
        return self._running.make()
