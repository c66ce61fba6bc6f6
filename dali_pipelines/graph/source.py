"""Make the Source of a pipeline, and peek at its first row."""

from __future__ import annotations

import os
from dataclasses import replace

from dali_pipelines.config import PipelineConfig
from dali_pipelines.runtime.devices import check_device
from readers.contract import Peek, Reader
from readers.index.table import Index
from readers.messages import printable
from readers.sampling.order import Order
from readers.sampling.schedule import Schedule
from readers.sampling.shard import Shard
from readers.source import Source
from readers.window import Window
from readers.worker.timeout import TimeLimit, within

PEEKS = 16
"""Rows whose header is read before the pipeline is built, until one can be read."""


def check_index(index: Index) -> None:
    """Check that this is an Index, not e.g. a path.

    Raises
    ------
    TypeError
        If it is not.
    """
    if not isinstance(index, Index):
        what = repr(str(index)) if isinstance(index, str | os.PathLike) else "..."
        raise TypeError(f"expected an Index, such as Index.scan({what}), got {index!r}")


def make_source(index: Index, reader: Reader, config: PipelineConfig) -> Source:
    """Make the Source that reads an Index with a Reader.

    Raises
    ------
    TypeError
        If `index` is not an Index.
    ValueError
        If the rows of the Index, its columns or the device do not fit the Reader and settings.
    """
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


def peek_first(source: Source) -> tuple[Peek | None, str | None]:
    """Find the sizes of the first row that can be read.

    Returns
    -------
    peek : Peek or None
        None if none of the first `PEEKS` rows can be read.
    too_small : str or None
        Why the crop does not fit into that row; None if it does.
    """
    window = None if source.crop is None else Window(height=source.crop[0], width=source.crop[1])
    # At 45 degrees a window needs the largest part of a file.
    largest = window and replace(window, angle=min(source.rotate, 45), zoom=source.zoom[0])
    for number in range(min(PEEKS, len(source.columns))):
        row = source.columns.row(number)
        try:
            peek = within(source.read_timeout, source.reader.peek, row, largest)
        except (OSError, TimeLimit):  # the reader process that reads this row reports it
            continue
        if window is not None:
            try:
                window.place(peek.height, peek.width)
            except ValueError as error:
                return peek, f"{printable(row.path)}: {error}"
        return peek, None
    return None, None
