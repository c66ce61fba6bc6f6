"""Ways to feed DALI with whole FITS frames.

The first four are those of dali_examples, by its names: frames are decoded by astropy and given to
an `external_source` that is not parallel.

serial source       the process that drives the pipeline decodes
process per shard   a process for each shard, in which its pipeline is driven and decodes
pool of readers     a pool of processes decodes a batch, and sends it to the pipeline
both                a process for each shard, each with readers of its own

Beside them: a pool of threads, DALI's parallel `external_source` decoding in the readers, DALI's
own reader of FITS, PyTorch's DataLoader, and this toolkit, whose readers send what is compressed
and whose graph decodes.
"""

# Child processes import this file: what is heavy is imported in the functions.
from __future__ import annotations

import itertools
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.data import Files, Settings, find_files
from benchmarks.measure.ledger import Ledger, new_ledger
from benchmarks.measure.race import Batch, Run, Table, Way, race
from benchmarks.report.tables import Sheet
from benchmarks.sheets.ancestors import epoch_sheet
from benchmarks.sheets.starting import starting_tables
from benchmarks.ways.loaders import devices, expected_pixels, files_way, loader_way
from benchmarks.ways.peers import MEAN, STD, Case, decoded
from benchmarks.ways.shards import Start, in_processes
from readers.worker.parent_watch import die_with

if TYPE_CHECKING:
    from numpy.typing import NDArray

CASE = Case(kind="fits", batch_size=4, flip="")
_FRAMES = 16
_AHEAD = 5
"""Batches: those of the readers' and the graph's queues, and one in the works."""

Read = Callable[[Sequence[str]], list[Any]]
"""Decodes the files of a batch."""


@dataclass(frozen=True, kw_only=True)
class Feed:
    """What one pipeline is fed with, over and over."""

    paths: tuple[str, ...]
    rows: tuple[int, ...]
    device_id: int | None
    num_threads: int
    ledger: Ledger
    """Counts what is read and decoded."""

    def batches(self) -> list[tuple[int, ...]]:
        """Return the rows of each batch."""
        size = CASE.batch_size
        return [self.rows[first : first + size] for first in range(0, len(self.rows), size)]


def strategies_suite(settings: Settings) -> Iterator[Table | Sheet]:
    """Time all of them; then the Loader by start method and by prefetch."""
    files = find_files(settings, "fits", 2 * CASE.batch_size if settings.quick else _FRAMES)
    with new_ledger() as ledger:
        ways = strategies(files, settings, ledger)
        table = Table(
            title="Strategies to feed DALI with whole frames",
            baseline="serial source",
            results=race(ways, expected_pixels(files.paths, CASE), settings.rounds),
            data=files.described,
            note=f"{settings.num_read_processes} decoding processes, batches of "
            f"{CASE.batch_size}, float32 output.",
        )
        yield table
        yield epoch_sheet(table, len(files.paths))
        yield from starting_tables(files, settings, ledger)


def strategies(files: Files, settings: Settings, ledger: Ledger) -> list[Way]:
    """Return all of them."""
    passes = 1 if settings.quick else 3
    workers, threads = settings.num_read_processes, settings.num_threads
    rows = tuple(range(len(files.paths))) * passes

    def feeds(num_shards: int) -> list[Feed]:
        return [
            Feed(
                paths=tuple(files.paths),
                rows=rows[shard::num_shards],
                device_id=device,
                num_threads=max(1, threads // num_shards),
                ledger=ledger,
            )
            for shard, device in enumerate(devices(num_shards))
        ]

    def way(name: str, start: Any, ahead: int = 0) -> Way:
        return Way(name=name, start=start, ahead=ahead, ledger=ledger, **CASE.agreement())

    def elsewhere(name: str, starts: list[Start], ahead: int = 0) -> Way:
        """Make a way of what is done in a process of its own for each shard."""
        return way(name, partial(in_processes, starts), ahead)

    (alone,) = feeds(1)
    few = _processes(max(1, workers // 2))
    return [
        loader_way(
            "Loader",
            files.index,
            CASE,
            passes,
            num_read_processes=workers,
            num_threads=threads,
            ledger=ledger,
        ),
        way("serial source", partial(_here, alone, None)),
        elsewhere("process per shard", [partial(_here, feed, None) for feed in feeds(workers)]),
        way("pool of readers", partial(_here, alone, _processes(workers))),
        elsewhere("both", [partial(_here, feed, few) for feed in feeds(2)]),
        way("pool of threads", partial(_here, alone, _threads(workers))),
        way("parallel source", partial(_parallel, alone, workers), ahead=_AHEAD),
        *(
            [elsewhere("DALI's reader of FITS", [partial(_own_reader, alone)], ahead=_AHEAD)]
            if _as_int16(files)
            else []
        ),
        *(
            files_way(files.paths, CASE, peer, passes, num_workers=workers, ledger=ledger)
            for peer in ("astropy", "fitsio", "torchfits")
        ),
    ]


def decode(ledger: Ledger, path: str) -> NDArray[Any]:
    """Decode a frame as all ways but ours do, shape (height, width, 1), float32."""
    return decoded(path, CASE, "astropy", None, ledger)


def _processes(count: int) -> Callable[[], Executor]:
    spawn = multiprocessing.get_context("spawn")
    return partial(ProcessPoolExecutor, count, spawn, die_with, (os.getpid(),))


def _threads(count: int) -> Callable[[], Executor]:
    return partial(ThreadPoolExecutor, count)


@contextmanager
def _here(feed: Feed, executor: Callable[[], Executor] | None) -> Iterator[Run]:
    """Drive the pipeline in this process."""
    with ExitStack() as stack:
        pool = None if executor is None else stack.enter_context(executor())
        mapped = map if pool is None else pool.map
        pipeline = _pipeline(feed, lambda paths: list(mapped(partial(decode, feed.ledger), paths)))
        yield lambda _: _outputs(pipeline, feed)


def _pipeline(feed: Feed, read: Read) -> Any:
    """Build a pipeline over a source that ends with the rows of the feed."""
    from nvidia.dali import Pipeline, fn

    def source() -> Iterator[list[Any]]:
        for rows in feed.batches():
            yield read([feed.paths[row] for row in rows])

    pipeline = Pipeline(
        batch_size=CASE.batch_size,
        num_threads=feed.num_threads,
        device_id=feed.device_id,
        exec_dynamic=True,
    )
    with pipeline:
        frames = fn.external_source(source=source, batch=True, layout="HWC", cycle="raise")
        pipeline.set_outputs(_normalised(frames, feed))
    pipeline.build()
    return pipeline


def _normalised(frames: Any, feed: Feed) -> Any:
    from nvidia.dali import fn, types

    frames = frames if feed.device_id is None else frames.gpu()
    return fn.crop_mirror_normalize(
        frames, dtype=types.FLOAT, output_layout="CHW", mean=[MEAN], std=[STD]
    )


def _outputs(pipeline: Any, feed: Feed) -> Iterator[Batch]:
    """Yield the outputs until the source is at its end, then begin it again."""
    for rows in feed.batches():
        (images,) = pipeline.run()
        yield rows, _tensor(images)
    try:
        pipeline.run()
    except StopIteration:
        pipeline.reset()


def _tensor(images: Any) -> Any:
    """Return a batch as PyTorch's tensor, without a copy, as DALIGenericIterator does."""
    from torch.utils.dlpack import from_dlpack

    return from_dlpack(images.as_tensor())


@contextmanager
def _parallel(feed: Feed, num_readers: int) -> Iterator[Run]:
    """Let DALI's own reader processes decode; the source never ends."""
    from nvidia.dali import Pipeline, fn

    pipeline = Pipeline(
        batch_size=CASE.batch_size,
        num_threads=feed.num_threads,
        device_id=feed.device_id,
        exec_dynamic=True,
        prefetch_queue_depth=2,
        py_num_workers=num_readers,
        py_start_method="spawn",
    )
    with pipeline:
        frames = fn.external_source(
            source=Decoding(feed),
            batch=False,
            parallel=True,
            layout="HWC",
            bytes_per_sample_hint=decode(feed.ledger, feed.paths[0]).nbytes
            + 4096,  # DALI's own records
        )
        pipeline.set_outputs(_normalised(frames, feed))
    pipeline.build()
    yield _endless(pipeline, feed)


def _endless(pipeline: Any, feed: Feed) -> Run:
    """Yield the batches of a pipeline that goes through all files in order, over and over."""
    samples = itertools.count()

    def run(_: bool) -> Iterator[Batch]:
        for _batch in range(_AHEAD + len(feed.batches())):
            (images,) = pipeline.run()
            rows = [next(samples) % len(feed.paths) for _slot in range(CASE.batch_size)]
            yield rows, _tensor(images)

    return run


@contextmanager
def _own_reader(feed: Feed) -> Iterator[Run]:
    """Let DALI's own reader decode; on the CPU cfitsio does it, in one thread."""
    if feed.device_id is None:
        # It pins its buffers, which fails where there is no driver. Read when DALI is loaded, so
        # this is for a process of its own.
        os.environ["DALI_RESTRICT_PINNED_MEM"] = "1"
    from nvidia.dali import Pipeline, fn, types

    pipeline = Pipeline(
        batch_size=CASE.batch_size,
        num_threads=feed.num_threads,
        device_id=feed.device_id,
        exec_dynamic=True,
    )
    with pipeline:
        frames = fn.experimental.readers.fits(
            device="cpu" if feed.device_id is None else "gpu",
            files=list(feed.paths),
            hdu_indices=[2],  # counted from 1
            dtypes=[types.INT16],
        )
        frames = fn.expand_dims(frames, axes=2)
        pipeline.set_outputs(_normalised(fn.reinterpret(frames, layout="HWC"), feed))
    pipeline.build()
    yield _endless(pipeline, feed)


def _as_int16(files: Files) -> bool:
    """Return whether the frames are what DALI's own reader takes them for, and reads right."""
    from readers import FitsReader, Row

    header = FitsReader(hdu=1).header(Row(0, files.paths[0], 1), ("ZBITPIX", "BZERO"))
    return header.get("ZBITPIX") == 16 and header.get("BZERO", 0) == 0


class Decoding:
    """The callable that DALI's reader processes call for each sample."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed

    def __call__(self, info: Any) -> NDArray[Any]:
        """Decode a sample."""
        paths = self.feed.paths
        return decode(self.feed.ledger, paths[info.idx_in_epoch % len(paths)])
