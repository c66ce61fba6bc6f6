"""The Source of a pipeline: make it, look at its first row, add its arrays to the graph."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np
from nvidia.dali import fn
from nvidia.dali.types import to_dali_type

from dali_pipelines.config import PipelineConfig
from dali_pipelines.runtime.tensor_lists import TensorLists
from readers.contract import Peek, Reader, Row
from readers.index.columns import Columns
from readers.index.paths import begins_with_urls, holds_urls
from readers.index.table import Index
from readers.messages import printable
from readers.places.cache.disk import DiskCache
from readers.places.failures import is_unreachable, nobody_answered
from readers.places.opener import Places
from readers.sampling.blocks import BLOCK_ROWS, BlockOrder, BucketOrder
from readers.sampling.geometry import Geometry
from readers.sampling.order import Order
from readers.sampling.schedule import Schedule
from readers.sampling.shard import Shard
from readers.sampling.weighted import WeightedOrder
from readers.source import Source
from readers.targets.several import Targets
from readers.worker.timeout import TimeLimit, within

_CORNERS = np.integer, np.floating
"""Types of the columns y and x: integers place windows at pixels, floats between pixels."""
_MOST_UNANSWERED = 3
"""Number of unanswered rows after which the server is assumed to be down."""
_PEEKS = 16
"""Maximum number of rows to try, to find a readable one, before the pipeline is built."""

_REMOTE_THREADS = 16
"""Remote samples that a reader process reads concurrently by default."""

Result = TypeVar("Result")


def check_index(index: Index) -> None:
    """Raise TypeError if `index` is not an Index but, for example, a path."""
    if not isinstance(index, Index):
        what = repr(str(index)) if isinstance(index, str | os.PathLike) else "..."
        raise TypeError(f"expected an Index, such as Index.scan({what}), got {index!r}")


def make_source(index: Index, reader: Reader, config: PipelineConfig) -> Source:
    """Make the Source that reads an Index with a Reader; ValueError if the two do not fit."""
    parts = getattr(reader, "parts", ())
    if index.parts and not parts:
        raise ValueError(
            f"each row of the Index is a sample of {len(index.parts)} files "
            f"({', '.join(index.parts)}), but {type(reader).__name__} reads one: use a "
            "ChannelsReader, or one of the factories, without hdus"
        )
    _check_window_size(index, config)
    targets = Targets(config.targets, getattr(reader, "frames", None)).fitted(index.table)
    corners = _corner_columns(index, config) if config.window == "row" else ()
    columns = index.columns(
        dict.fromkeys((*config.columns, *corners)),
        parts=parts,
        notes=getattr(reader, "notes", ()),
        targets=targets.columns,
        of_frames=targets.frame_columns,
    )
    columns = columns.with_places(places_of(config))
    schedule = Schedule(
        num_rows=len(index),
        shard=Shard(config.shard_id, config.num_shards),
        batch_size=config.batch_size,
        tail=config.tail,
        epoch=config.epoch,
        position=config.position,
        epoch_steps=config.epoch_steps,
        first_step=config.first_step,
    )
    return Source(
        columns=columns,
        reader=reader,
        schedule=schedule,
        order=_order(index, config),
        sent_columns=config.columns,
        num_epochs=config.num_epochs,
        rejected=config.rejected,
        targets=targets,
        chance=config.mode == "train",
        subpixel=bool(corners) and columns.dtype("y").kind == "f",
        num_draws=0 if config.has_own_operators and config.mode == "train" else None,
        read_timeout=config.read_timeout,
        read_threads=_read_threads(index, config),
        ragged=config.ragged is not None,
        **{one.name: getattr(config, one.name) for one in fields(Geometry)},
    )


def places_of(config: PipelineConfig) -> Places:
    """Return the Places that open files, with the settings for remote objects."""
    cache = None
    if config.cache is not None and config.cache_bytes is not None:
        cache = DiskCache(config.cache, config.cache_bytes)
    return Places(config.storage, cache)


def _read_threads(index: Index, config: PipelineConfig) -> int:
    if config.start_method == "fork" and config.num_read_processes and holds_urls(index.table):
        raise ValueError(
            "start_method 'fork' does not work with URLs, because the client of remote storage "
            "fails in forked processes: use 'forkserver', the default"
        )
    if config.num_read_processes == 0:
        return 1
    return config.read_threads or (_REMOTE_THREADS if begins_with_urls(index.table) else 1)


def _check_window_size(index: Index, config: PipelineConfig) -> None:
    """Raise ValueError if rows are windows, and the settings ask for other windows."""
    if index.window_size is None or (config.window, config.crop) == ("row", index.window_size):
        return
    height, width = index.window_size
    rows = f"the rows of the Index are windows of {height}x{width} (height x width)"
    if config.window != "row":
        raise ValueError(
            f"{rows} at columns 'y' and 'x', and do not go with window {config.window!r}: set "
            f"window='row' and crop=({height}, {width}), the defaults for this Index, or use an "
            "Index of whole images, without these columns"
        )
    crop = "x".join(map(str, config.crop or ()))
    raise ValueError(
        f"{rows}, and crop {crop} would be off-centre: set crop=({height}, {width}), or make an "
        "Index of windows of that size"
    )


def _corner_columns(index: Index, config: PipelineConfig) -> tuple[str, str]:
    for name in ("y", "x"):
        if name not in index.table.column_names:
            raise ValueError(
                f"window 'row' needs columns 'y' and 'x', the first row and column of each window, "
                f"but the Index has no {name!r}: add them with Index.with_column, make a grid with "
                "Index.each_window, or cutouts with dali-pipelines index --cutouts"
            )
    dtypes = [index.columns((name,)).dtype(name) for name in ("y", "x")]
    if not any(all(np.issubdtype(one, kind) for one in dtypes) for kind in _CORNERS):
        raise ValueError(
            "columns 'y' and 'x' must both hold integers, or both floats, for window 'row', got "
            f"{dtypes[0]} and {dtypes[1]}"
        )
    keeps = config.dtype not in ("float32", "float16", "uint8")
    if dtypes[0].kind == "f" and keeps and config.interpolation != "nearest":
        raise ValueError(
            f"dtype {config.dtype!r} keeps the stored values, but columns 'y' and 'x' are floats, "
            "so windows are resampled: round them to integers, set dtype to float32 or uint8, or "
            "interpolation to nearest"
        )
    return "y", "x"


def _order(
    index: Index, config: PipelineConfig
) -> Order | BlockOrder | BucketOrder | WeightedOrder:
    if config.weights is not None:
        return WeightedOrder(index.running_weights(config.weights), config.seed)
    if config.shuffle == "blocks":
        return BlockOrder(len(index), config.seed, config.block_rows or BLOCK_ROWS)
    if config.shuffle == "buckets":
        return BucketOrder(len(index), config.seed, config.block_rows or BLOCK_ROWS)
    return Order(len(index), config.seed, config.shuffle)


def peek_first(source: Source) -> tuple[Peek | None, str | None]:
    """Return the sizes of the first readable row, and the reason if the crop does not fit it.

    The sizes are None if none of the first few rows can be read; the readers report the errors.
    ReadError if remote storage cannot be reached, or does not answer for several rows.
    """
    largest = source.largest_window()
    try:
        row, peek = first_readable(
            source.columns, lambda row: source.reader.peek(row, largest), source.read_timeout
        )
    except (OSError, TimeLimit) as error:
        if nobody_answered(error):  # each of the other rows would wait as long
            raise
        return None, None
    try:
        source.check_size(peek.height, peek.width)
    except ValueError as error:
        return peek, f"{printable(row.name)}: {error}"
    return peek, None


def targets_nbytes(source: Source, peek: Peek | None) -> int:
    """Return the bytes of the targets of an image of these sizes; 0 if they are unknown."""
    if peek is None or not source.targets:
        return 0
    size = peek.height, peek.width
    try:
        placement = source.placement(source.largest_window(), size, (False, False))
    except ValueError:  # `peek_first` returns the reason
        return 0
    return source.targets.nbytes(placement.shape)


def turned_pixels(source: Source, peek: Peek | None) -> int:
    """Return the largest number of pixels that a turned window needs; 0 if it is unknown."""
    window = source.largest_window()
    if window is None or peek is None:
        return 0
    try:
        needed = window.within(peek.height, peek.width)
    except ValueError:  # `peek_first` returns the reason
        return 0
    return needed.height * needed.width


def first_readable(
    columns: Columns, look: Callable[[Row], Result], read_timeout: float | None
) -> tuple[Row, Result]:
    """Return the first row that `look` can read, and its result; raise if the first few fail.

    If remote storage cannot be reached, or does not answer for several rows, that error is raised.
    """
    errors: list[Exception] = []
    unanswered = 0
    for number in range(min(_PEEKS, len(columns))):
        row = columns.row(number)
        try:
            return row, within(read_timeout, look, row)
        except (OSError, TimeLimit) as error:
            unanswered += nobody_answered(error)
            if is_unreachable(error) or unanswered == _MOST_UNANSWERED:
                raise
            errors.append(error)
    raise errors[0]


def look_at_first(index: Index, look: Callable[[Row], Result], config: PipelineConfig) -> Result:
    """Return the result of `look` for the first readable row of an Index, or raise its error."""
    columns = index.columns().with_places(places_of(config))
    return first_readable(columns, look, config.read_timeout)[1]


def sample_nodes(source: Source, read: Callable[[], TensorLists]) -> dict[str, Any]:
    """Return the DataNodes of the Source's arrays by name; `read` returns the next batch."""
    specs = source.specs
    outputs = fn.external_source(
        read,
        num_outputs=len(specs),
        batch=True,
        no_copy=True,
        dtype=[to_dali_type(spec.dtype) for spec in specs],
        ndim=[spec.ndim or 0 for spec in specs],
    )
    return dict(zip((spec.name for spec in specs), outputs, strict=True))
