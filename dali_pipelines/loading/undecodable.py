"""Find the rows on which a graph fails: DALI loses the whole batch, and names no row."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing

from dali_pipelines.graph.pipeline import ReaderPipeline
from readers.errors import ReadError

_READABLE = "it can be read, but the graph (decoder or transform) fails on it"

MakePipeline = Callable[[int, Mapping[int, str]], ReaderPipeline]
"""(position of the epoch to begin with, rows to leave out and why) -> pipeline of batches of one
sample, which reads in this process and does not read ahead."""


def find_undecodable(make: MakePipeline, positions: Iterable[int]) -> Iterator[tuple[int, str]]:
    """Run samples through a graph one by one, and yield the rows on which it fails, and why.

    If the graph fails without the row as well (e.g. the device is lost), the row is not the cause.
    The reason comes from the Reader, if it cannot decode the row either; else from the graph.
    """
    pipeline, following = None, -1
    for position in positions:
        if pipeline is None or position != following:
            pipeline = make(position, {})
            pipeline.build()
        following = position + 1
        try:
            pipeline.run()
        except RuntimeError as error:
            source = pipeline.source
            slot = source.schedule.locate(position - source.schedule.position)
            row = source.order.row(slot.epoch, slot.position)
            pipeline.close()
            pipeline = None
            if _runs(make(position, {row: ""})):
                try:
                    source.reader.verify(source.columns.row(row))
                    yield row, f"{_READABLE}: {_cause(error)}"
                except ReadError as bad:
                    yield row, bad.reason
    if pipeline is not None:
        pipeline.close()


def _runs(pipeline: ReaderPipeline) -> bool:
    with closing(pipeline):
        try:
            pipeline.build()
            pipeline.run()
        except RuntimeError:
            return False
    return True


def _cause(error: RuntimeError) -> str:
    """Return the line of DALI's message that says what is wrong."""
    text = " ".join(str(error).split())
    found = re.search(r"encountered: (.*?)[ :]*(C\+\+ context|Current pipeline|$)", text)
    return found[1] if found else text
