"""DALI pipeline that reads with a Reader, for all factories."""

from __future__ import annotations

import functools
import operator
import os
import time
import warnings
from collections import UserDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.process import BaseProcess
from typing import Any

from nvidia.dali import fn, types

from dali_pipelines.config import PipelineConfig
from dali_pipelines.graph.decode import DecodeAll, Decoded, DecodedImages, with_layout
from dali_pipelines.graph.footprint import Footprint
from dali_pipelines.graph.gpu.cupy_operator import free_unused
from dali_pipelines.graph.ragged import listed_or_padded
from dali_pipelines.graph.source import (
    check_index,
    make_source,
    peek_first,
    sample_nodes,
    targets_nbytes,
    turned_pixels,
)
from dali_pipelines.graph.transform import check_decoded, transform
from dali_pipelines.graph.user_operators.chance import Chance
from dali_pipelines.runtime.dali_private import ForkSafePipeline, allow_unsigned_tensors
from dali_pipelines.runtime.malloc_pool import outputs_kept
from dali_pipelines.runtime.pinned import Cuda
from dali_pipelines.runtime.processes.fork_server import start_fork_server
from dali_pipelines.runtime.processes.importable import check_main, check_sendable
from dali_pipelines.runtime.processes.reader_pool import ReaderPool
from dali_pipelines.runtime.tensor_lists import ReadHere, TensorLists
from readers.contract import Peek, Reader
from readers.index.table import Index
from readers.sampling.placement import PLACEMENT_SPECS
from readers.source import COLUMN, TARGET, Source

_LARGE_BATCH = 256 << 20
"""Bytes of a batch in shared memory above which only one is kept ready by default."""


class ReaderPipeline(ForkSafePipeline):
    """DALI pipeline with a Source, names of its outputs, and `close`."""

    source: Source
    output_names: tuple[str, ...]
    """Names of the outputs in order, for ``DALIGenericIterator``: image, row, valid, the requested
    columns and targets, and report (see `dali_pipelines.ReadReport`)."""
    listed: frozenset[str] = frozenset()
    """Outputs that Loaders deliver as lists of arrays, with ``ragged="list"``."""
    uneven: str | None = None
    """Name of an output whose arrays in the last batch differ in shape, if not in `listed`."""
    peek: Peek | None
    """Sizes of the first readable row and its window; None if none of the first rows can be
    read."""
    too_small: str | None
    """Message if the crop does not fit the first readable row, otherwise None. Rows of the same
    size are rejected."""
    footprint: Footprint
    """Memory that the graph needs per sample, estimated from the first readable row."""
    ahead: int
    """Batches that the readers keep ready; the graph keeps as many again."""
    num_read_processes: int
    """Number of reader processes."""
    feed_s: float = 0.0
    """Seconds that the consumer waited for the readers and fed their samples to the graph."""
    graph_s: float = 0.0
    """Seconds that the consumer waited for the graph: transfer, decoding and the rest."""
    start_method: str
    """How the reader processes are started."""
    _pool: ReaderPool | None = None
    _is_built: bool = False

    def reads(self, source: Source) -> Callable[[], TensorLists]:
        """Return a function that reads the next batch, by reader processes or in this process."""
        if not self.num_read_processes:
            return ReadHere(source)
        self._pool = ReaderPool(
            source,
            self.num_read_processes,
            self.start_method,
            self.ahead,
            cuda=None if self.device_id is None else Cuda(self.device_id),
        )
        return self._pool

    def build(self) -> None:
        """Build the graph and start the readers; DALI also calls this in each run."""
        if not self._is_built:
            with _unused_arrays_allowed(), outputs_kept():
                super().build()
            self._is_built = True

    def schedule_run(self) -> None:
        """Feed one more batch to the graph and run it; ReaderProcessError if a reader has died."""
        self.check_process()
        started = time.perf_counter()
        super().schedule_run()
        self.feed_s += time.perf_counter() - started

    def outputs(self, cuda_stream: Any = None) -> Any:
        """Wait for the outputs of the oldest batch, on any stream; `run` calls this.

        The memory of its samples is then reused.
        """
        del cuda_stream
        self.check_process()
        outputs = super().outputs()
        if self._pool is not None:
            self._pool.note_outputs()
        return outputs

    def share_outputs(self, cuda_stream: Any = None) -> Any:
        """Wait for the outputs of the oldest batch, on any stream; count the time in `graph_s`."""
        del cuda_stream
        self.check_process()
        started = time.perf_counter()
        outputs = super().share_outputs()
        if self._pool is not None:
            self._pool.note_outputs()
        self.graph_s += time.perf_counter() - started
        allow_unsigned_tensors()  # late: the iterator is imported by now
        named = zip(self.output_names, outputs, strict=True)
        uneven = (name for name, output in named if not output.is_dense_tensor())
        self.uneven = next((name for name in uneven if name not in self.listed), None)
        return outputs

    def start_py_workers(self) -> None:
        """Start the reader processes; with ``fork``, before CUDA is initialised.

        They end at `close`, when the pipeline is garbage-collected, or at exit.

        Raises
        ------
        OSError
            If a limit on the address space of this process is too low for the readers' data.
        ReaderProcessError
            If a reader process dies.
        RuntimeError
            If reader processes cannot import the main script, or if this process is daemonic.
        """
        self.check_process()
        if self._pool is not None and self.start_method != "fork":
            check_main()
        self.started_in = os.getpid()
        with _unused_arrays_allowed():
            super().start_py_workers()
        if self._pool is not None:
            self._pool.start()

    def processes(self) -> list[BaseProcess]:
        """Return the reader processes."""
        readers = None if self._pool is None else self._pool.readers
        return [] if readers is None else readers.processes

    def check_process(self) -> None:
        """Raise RuntimeError if this process was forked from the one that started the readers."""
        if self.started_in not in (None, os.getpid()):
            raise RuntimeError(
                f"process {self.started_in} started this pipeline, and its readers only work for "
                f"that process: in process {os.getpid()}, which was forked from it, make a new "
                "pipeline with start_method 'fork' or 'spawn'"
            )

    def close(self) -> None:
        """End the reader processes and free the graph; the pipeline cannot be used afterwards."""
        try:
            if self._pool is not None:
                self._pool.close()
        finally:  # even after Ctrl-C
            self.shut_down()
            free_unused(self)
            if self._pool is not None:
                self._pool.unpin()


@contextmanager
def _unused_arrays_allowed() -> Iterator[None]:
    """Silence DALI's warning about arrays of a Reader that the graph does not use."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"(?s).*produces \d+ outputs, but the output")
        yield


def reader_pipeline(
    index: Index, reader: Reader, decode: DecodeAll, config: PipelineConfig
) -> ReaderPipeline:
    """Make a pipeline that reads `index` with `reader` and decodes with `decode`.

    The factories call this; call it with a Reader of your own.

    Returns
    -------
    ReaderPipeline
        Not built yet: DALIGenericIterator, `build` or `start_py_workers` start the readers. Its
        `output_names` are ``image``, or another name from the decoder (layout CHW, on the device),
        ``row`` (int64) and ``valid`` (bool) on the CPU, the columns and targets of the settings on
        the device, and ``report`` (uint8) on the CPU. The pipeline never ends; ``source.schedule``
        has the number of steps.

    Raises
    ------
    TypeError
        If an argument has a wrong type, or the Reader cannot be sent to reader processes.
    ValueError
        If the settings do not fit the data, e.g. a column has the name of another output.
    """
    check_index(index)
    if isinstance(reader, type):
        raise TypeError(f"expected a Reader, such as {reader.__name__}(), got the class itself")
    if not isinstance(config, PipelineConfig):
        raise TypeError(f"expected a PipelineConfig(batch_size=...), got {config!r}")
    if config.dtype == "bfloat16":  # DALI lacks bfloat16: a Framework rounds the batches
        config = replace(config, dtype="float32")
    if config.start_method != "fork":
        check_sendable(reader, *config.targets.values())
    source = make_source(index, reader, config)
    peek, too_small = peek_first(source)
    if peek is not None:
        source.usual_size = peek.height, peek.width
    if config.transform is not None:  # it may fail on empty images
        source.empty_size = source.usual_size
    of_targets = targets_nbytes(source, peek)
    if peek is not None:
        peek = replace(peek, nbytes=peek.nbytes + of_targets)
    if config.num_read_processes and config.start_method == "forkserver":
        start_fork_server(reader, peek.modules if peek is not None else ())
    nbytes = peek.nbytes if peek is not None else 0
    pipeline = _empty_pipeline(config, nbytes)
    with pipeline:
        nodes = sample_nodes(source, pipeline.reads(source))
        arrays = _Arrays(nodes)
        decoded = decode(arrays, config)
        if isinstance(decoded, Decoded):
            decoded = with_layout(decoded, reader)
        images = check_decoded(decoded, config, uses_flip="flip" in arrays.used)
        channels = images.first.channels or reader.channels
        chance = Chance(nodes.get("draws"))
        image = transform(images, nodes, channels, config, chance)
        targets = [spec.name for spec in source.targets.specs]
        named = _outputs(image, nodes, images, config, targets)
        named, pipeline.listed = listed_or_padded(named, images, source.targets, config.ragged)
        if images.first.is_flat:
            named[0] = (named[0][0], fn.squeeze(named[0][1], axes=[1]))
        _check_names([name for name, _ in named], targets=targets, columns=config.columns)
        pipeline.output_names, outputs = zip(*named, strict=True)
        pipeline.set_outputs(*outputs)
    if source.num_draws is not None:
        source.num_draws = chance.num_draws
    pipeline.source, pipeline.peek, pipeline.too_small = source, peek, too_small
    turned = turned_pixels(source, peek) if "affine" in nodes else 0
    pipeline.footprint = Footprint.of(
        peek, channels, images, config, turned=turned, targets_nbytes=of_targets
    )
    return pipeline


def _empty_pipeline(config: PipelineConfig, nbytes: int) -> ReaderPipeline:
    """Make the pipeline without a graph, for samples of about `nbytes` bytes."""
    ahead = config.prefetch or (1 if nbytes * config.batch_size > _LARGE_BATCH else 2)
    pipeline = ReaderPipeline(
        batch_size=config.batch_size,
        num_threads=config.num_threads,
        device_id=config.device_id,
        prefetch_queue_depth=ahead,
        exec_dynamic=True,
    )
    pipeline.ahead = ahead
    pipeline.num_read_processes = config.num_read_processes
    pipeline.start_method = config.start_method
    return pipeline


def _outputs(
    image: Any,
    nodes: Mapping[str, Any],
    decoded: DecodedImages,
    config: PipelineConfig,
    targets: Sequence[str] = (),
) -> list[tuple[str, Any]]:
    """Return the names and DataNodes of the pipeline's outputs."""
    placed = [(name, nodes[PLACEMENT_SPECS[name].name]) for name in config.outputs]
    columns = [(name, nodes[COLUMN + name]) for name in config.columns]
    columns += [(name, nodes[TARGET + name]) for name in targets]
    others = columns + placed + list(decoded.others.items())
    if config.device_id is not None:
        others = [(name, node.gpu()) for name, node in others]
    valid, report = nodes["valid"], nodes["report"]
    if statuses := decoded.statuses:
        on_gpu = statuses[0].device == "gpu"
        if on_gpu:
            valid, report = valid.gpu(), report.gpu()
        # An image that cannot be decoded is as invalid as one that cannot be read. The Loader finds
        # both in the report.
        status = functools.reduce(operator.add, statuses)
        valid = valid & (fn.squeeze(status, axes=0) == 0)
        each = [fn.reinterpret(status, dtype=types.UINT8) for status in statuses]
        report = fn.cat(report, *each, axis=0)
        if on_gpu:
            # No CPU operator may use them: it would wait for the GPU, and delay the next batch.
            valid, report = valid.cpu(), report.cpu()
    row = ("row", nodes["row"])
    return [(decoded.first.name, image), row, ("valid", valid), *others, ("report", report)]


def _check_names(names: Sequence[str], **asked: Collection[str]) -> None:
    """Raise ValueError if two outputs have one name; users can rename those in `asked`."""
    twice = {name for name in names if names.count(name) > 1}
    for what, own in asked.items():
        if taken := sorted(twice.intersection(own)):
            raise ValueError(f"{what} {taken} have the name of another output: rename them")


class _Arrays(UserDict[str, Any]):
    """DataNodes for a decoder, by name. It records the names that the decoder uses."""

    def __init__(self, nodes: Mapping[str, Any]) -> None:
        super().__init__(nodes)
        self.used: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.used.add(name)
        return super().__getitem__(name)
