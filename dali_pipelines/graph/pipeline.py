"""Build a DALI pipeline around a Reader: the part that all factories share."""

from __future__ import annotations

import math
import multiprocessing
import os
import tempfile
import time
import warnings
from collections import UserDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import forkserver
from typing import Any

import numpy as np
from nvidia.dali import fn, types
from nvidia.dali.types import to_dali_type

from dali_pipelines.config import PipelineConfig
from dali_pipelines.graph.decode import Decode, Decoded
from dali_pipelines.graph.transform import check_decoded, normalises, transform
from dali_pipelines.runtime.dali_private import (
    WORKER_MODULE,
    ForkSafePipeline,
    allow_uint16_tensors,
)
from dali_pipelines.runtime.devices import check_device
from dali_pipelines.runtime.importable import check_main, check_sendable
from dali_pipelines.runtime.interrupts import interrupt_held
from dali_pipelines.runtime.malloc_pool import outputs_kept
from dali_pipelines.runtime.reader_pool import started_readers
from dali_pipelines.runtime.reader_processes import ReaderProcessError, ReaderProcesses
from readers.contract import Peek, Reader, SampleSpec
from readers.index.table import Index
from readers.messages import printable
from readers.sampling.order import Order
from readers.sampling.schedule import Schedule
from readers.sampling.shard import Shard
from readers.source import Source
from readers.window import Window
from readers.worker import setup
from readers.worker.timeout import TimeLimit, within

_LARGE_BATCH = 256 << 20
PEEKS = 16
"""Rows whose head is read before the pipeline is built, until one can be read."""


class ReaderPipeline(ForkSafePipeline):
    """A DALI Pipeline that owns its Source, knows its outputs' names, and can be closed."""

    source: Source
    output_names: tuple[str, ...]
    """Names of the outputs in order, for ``DALIGenericIterator``: image, row, valid, the columns
    asked for, and report (see `readers.worker.read_report.ReadReport`)."""
    peek: Peek | None
    """Head of the first row that can be read, with its window; None if none of a few can."""
    too_small: str | None
    """Why the crop cannot be cut out of that row, if so: it and those like it are rejected."""
    image_nbytes: int
    """Bytes of one output image, by that row; 0 if unknown."""
    frame_nbytes: int
    """Bytes of what is decoded for one image before it is resized or warped; 0 if it is not."""
    num_stages: int
    """Operators that hold a batch of images of their own: decode or warp, flip, resize, normalise,
    and what brings channels together."""
    ahead: int
    """Batches that the readers, and again the graph, keep ready."""
    num_read_processes: int
    """Reader processes."""
    feed_s: float = 0.0
    """Seconds that the consumer waited for the readers, and handed their samples to the graph."""
    graph_s: float = 0.0
    """Seconds that the consumer waited for the graph: transfer, decode and the rest."""
    _readers: ReaderProcesses | None = None

    def build(self) -> None:
        """Build the graph and start the readers."""
        with _unused_arrays_allowed(), outputs_kept():
            super().build()

    def schedule_run(self) -> None:
        """Feed one more batch and let the graph run on it, timed.

        Raises
        ------
        ReaderProcessError
            If a reader process has died.
        RuntimeError
            If another process started the readers: this one was forked from it.
        """
        self.check_process()
        started = time.perf_counter()
        try:
            super().schedule_run()
        except RuntimeError:
            if self._readers is not None and (death := self._readers.death()):
                raise ReaderProcessError(death) from None
            raise
        self.feed_s += time.perf_counter() - started

    def share_outputs(self, *args: Any, **kwargs: Any) -> Any:
        """Wait for the outputs of the oldest batch, timed."""
        self.check_process()
        started = time.perf_counter()
        outputs = super().share_outputs(*args, **kwargs)
        self.graph_s += time.perf_counter() - started
        return outputs

    def start_py_workers(self) -> None:
        """Start the reader processes; with ``fork`` this must come before CUDA is initialised.

        They are ended by `close`, when the pipeline is garbage, and at exit.

        Raises
        ------
        OSError
            If /dev/shm is full.
        ReaderProcessError
            If a reader process dies.
        RuntimeError
            If reader processes cannot import the main script.
        """
        self.check_process()
        if self.num_read_processes and self.py_start_method != "fork":
            check_main()
        self.started_in = os.getpid()
        with _unused_arrays_allowed(), setup.forks_arrive(), started_readers() as started:
            super().start_py_workers()
        self._readers = started[0] if started else self._readers

    def processes(self) -> list[multiprocessing.process.BaseProcess]:
        """Give the reader processes that were started."""
        return [] if self._readers is None else self._readers.processes

    def check_process(self) -> None:
        """Refuse another process than the one that started the readers.

        Raises
        ------
        RuntimeError
            If this process was forked from that one.
        """
        if self.started_in not in (None, os.getpid()):
            raise RuntimeError(
                f"this pipeline was started in process {self.started_in}, and its readers work for "
                f"that one only: process {os.getpid()}, which was forked from it, needs a pipeline "
                "of its own, with start_method 'fork' or 'spawn'"
            )

    def close(self) -> None:
        """End the reader processes and free the graph; the pipeline cannot be used any more."""
        with interrupt_held():
            if self._readers is not None:
                self._readers.close()
            self.shut_down()


@contextmanager
def _unused_arrays_allowed() -> Iterator[None]:
    """Hush DALI about a Reader's few bytes that a graph has no use for: a window's place, say."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"(?s).*produces \d+ outputs, but the output")
        yield


def reader_pipeline(
    index: Index, reader: Reader, decode: Decode, config: PipelineConfig
) -> ReaderPipeline:
    """Build a pipeline that reads `index` by `reader` and decodes by `decode`.

    The factories call this; call it for a Reader of your own.

    Returns
    -------
    ReaderPipeline
        Not built yet: DALIGenericIterator, `build` or `start_py_workers` start the readers. Its
        outputs are named in its `output_names`: ``image`` (layout CHW, on the
        device), ``row`` (int64) and ``valid`` (bool) on the CPU, the columns asked for on the
        device, and ``report`` (uint8) on the CPU. It never ends: count steps by
        ``source.schedule``.

    Raises
    ------
    TypeError
        If the Reader cannot be sent to reader processes.
    ValueError
        If the settings do not fit the data: the crop is larger, say.
    """
    if config.start_method != "fork":
        check_sendable(reader)
    source = _source(index, reader, config)
    if config.dtype == "uint16":
        allow_uint16_tensors()
    peek, too_small = _peek(source)
    nbytes = peek.nbytes if peek is not None else 0
    large = nbytes * config.batch_size > _LARGE_BATCH
    prefetch = config.prefetch or (1 if large else 2)
    if config.num_read_processes and config.start_method == "forkserver":
        _start_fork_server(reader)
    pipeline = ReaderPipeline(
        batch_size=config.batch_size,
        num_threads=config.num_threads,
        device_id=config.device_id,
        prefetch_queue_depth=prefetch,
        exec_dynamic=True,
        py_num_workers=max(1, config.num_read_processes),
        py_start_method=config.start_method,
        py_callback_pickler=None if config.start_method == "fork" else setup,
    )
    with pipeline:
        specs = source.specs
        parallel: dict[str, Any] = {
            "parallel": True,
            "prefetch_queue_depth": prefetch,
            # DALI adds its own records to each chunk of shared memory, and doubles one that is too
            # small by a byte.
            "bytes_per_sample_hint": nbytes + _slack(specs),
        }
        outputs = fn.external_source(
            source,
            num_outputs=len(specs),
            batch=False,
            **(parallel if config.num_read_processes else {}),
            dtype=[to_dali_type(spec.dtype) for spec in specs],
            ndim=[spec.ndim for spec in specs],
            layout=[spec.layout for spec in specs],
        )
        nodes = dict(zip((spec.name for spec in specs), outputs, strict=True))
        gpu = config.device_id is not None
        arrays = _Arrays(nodes)
        decoded = decode(arrays, config)
        check_decoded(decoded, config, uses_flip="flip" in arrays.used)
        channels = reader.channels if decoded.channels is None else decoded.channels
        image = transform(decoded, nodes.get("flip"), channels, config)
        columns = [nodes[name].gpu() if gpu else nodes[name] for name in config.columns]
        valid, report = nodes["valid"], nodes["report"]
        if decoded.status is not None:
            # What the graph could not decode is no more valid than what was not read, and the
            # report is where the Loader looks for both.
            valid = valid & (fn.squeeze(decoded.status, axes=0) == 0)
            status = fn.reinterpret(decoded.status, dtype=types.UINT8)
            report = fn.cat(report, status, axis=0)
        others = [node.gpu() if gpu else node for node in decoded.others.values()]
        pipeline.set_outputs(image, nodes["row"], valid, *columns, *others, report)
    pipeline.source = source
    pipeline.output_names = (
        *("image", "row", "valid", *config.columns, *decoded.others),
        "report",
    )
    pipeline.ahead = prefetch
    pipeline.num_read_processes = config.num_read_processes
    pipeline.num_stages = 1 + (config.resize is not None)
    if decoded.finished:
        pipeline.num_stages += (config.dtype == "float16") + (channels > 1)
    else:
        pipeline.num_stages += bool(config.flip) + normalises(decoded, channels, config)
    pipeline.peek, pipeline.too_small = peek, too_small
    pipeline.image_nbytes = _image_nbytes(peek, channels, config)
    pipeline.frame_nbytes = _frame_nbytes(peek, channels, decoded, config)
    return pipeline


class _Arrays(UserDict[str, Any]):
    """What a decoder gets, by name; notes what it has used."""

    def __init__(self, nodes: Mapping[str, Any]) -> None:
        super().__init__(nodes)
        self.used: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.used.add(name)
        return super().__getitem__(name)


def check_index(index: Index) -> None:
    """Refuse a path, say, where an Index is expected.

    Raises
    ------
    TypeError
        If it is none.
    """
    if not isinstance(index, Index):
        what = repr(str(index)) if isinstance(index, str | os.PathLike) else "..."
        raise TypeError(f"expected an Index, such as Index.scan({what}), got {index!r}")


def _source(index: Index, reader: Reader, config: PipelineConfig) -> Source:
    check_index(index)
    check_device(config.device_id)
    parts = getattr(reader, "parts", ())
    if index.parts and not parts:
        raise ValueError(
            f"each row of the Index is a sample of {len(index.parts)} files "
            f"({', '.join(index.parts)}), and {type(reader).__name__} reads one: use aia_pipeline, "
            "a ChannelsReader, or an Index of single files"
        )
    names = ("image", "row", "valid", "report", "flip", *(spec.name for spec in reader.specs))
    if taken := set(config.columns) & set(names):
        raise ValueError(f"columns {sorted(taken)} have the name of another output: rename them")
    schedule = Schedule(
        num_rows=len(index),
        shard=Shard(config.shard_id, config.num_shards),
        batch_size=config.batch_size,
        tail=config.tail,
        epoch=config.epoch,
        position=config.position,
    )
    return Source(
        columns=index.columns(
            config.columns,
            parts=parts,
            notes=getattr(reader, "notes", ()),
        ),
        reader=reader,
        schedule=schedule,
        order=Order(len(index), config.seed, config.shuffle),
        crop=config.crop,
        window=config.window,
        flip=config.flip,
        rotate=config.rotate,
        zoom=config.zoom,
        outputs=config.columns,
        num_epochs=config.num_epochs,
        rejected=config.rejected,
        read_timeout=config.read_timeout,
    )


def _peek(source: Source) -> tuple[Peek | None, str | None]:
    """Read the head of the first row that can be read; return why the crop is larger, if it is."""
    window = None if source.crop is None else Window(height=source.crop[0], width=source.crop[1])
    # Turned by 45 degrees, a window needs most of a file.
    largest = window and replace(window, angle=min(source.rotate, 45), zoom=source.zoom[0])
    for number in range(min(PEEKS, len(source.columns))):
        row = source.columns.row(number)
        try:
            peek = within(source.read_timeout, source.reader.peek, row, largest)
        except (OSError, TimeLimit):  # found again, and told, by the reader process that meets it
            continue
        if window is not None:
            try:
                window.place(peek.height, peek.width)
            except ValueError as error:
                return peek, f"{printable(row.path)}: {error}"
        return peek, None
    return None, None


def _image_nbytes(peek: Peek | None, channels: int, config: PipelineConfig) -> int:
    size = config.resize or config.crop or (peek and (peek.height, peek.width)) or (0, 0)
    return size[0] * size[1] * channels * np.dtype(config.dtype).itemsize


def _frame_nbytes(
    peek: Peek | None, channels: int, decoded: Decoded, config: PipelineConfig
) -> int:
    if peek is None:
        return 0
    if config.resize is None:
        return peek.between_nbytes * decoded.frames
    pixels = math.prod(config.crop or (peek.height, peek.width)) * channels
    return pixels * np.dtype(decoded.dtype).itemsize


def _slack(specs: tuple[SampleSpec, ...]) -> int:
    return 4096 + 256 * len(specs)


def _start_fork_server(reader: Reader) -> None:
    """Let the fork server import what all readers need, once; no effect if it runs already.

    It does so while the graph is made: the readers that it forks then start at once.

    Raises
    ------
    OSError
        If it cannot be started.
    """
    # A ChannelsReader, and others like it, has a Reader of its own.
    modules = [type(reader).__module__, type(getattr(reader, "reader", reader)).__module__]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        # __main__ is what Python would load by itself.
        ["__main__", WORKER_MODULE, "readers.source", *modules]
    )
    try:
        forkserver.ensure_running()
    except OSError as error:
        if "AF_UNIX path too long" not in str(error):
            raise
        raise OSError(
            "the fork server cannot make its socket, as the name of the folder for temporary "
            f"files, {tempfile.gettempdir()}, is too long: set TMPDIR to a shorter one"
        ) from None
