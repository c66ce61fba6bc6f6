"""Photographs by SPDL: threads of one process, in which others decode."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from benchmarks.measure.ledger import Ledger
from benchmarks.measure.race import Batch, Run, Way
from benchmarks.ways.peers import PEERS, Case, sample_of

_SINK = 2
_AHEAD = 10
"""Batches that lie in its stages and queues when all threads rest, at most."""


def spdl_way(
    paths: Sequence[str], case: Case, peer: str, passes: int, num_threads: int, ledger: Ledger
) -> Way:
    """Make the way of SPDL's threads, in which one of `PEERS` decodes.

    SPDL's own decoder, of FFmpeg, takes more time, and gives other colours.
    """
    images = passes * len(paths)

    @contextmanager
    def start() -> Iterator[Run]:
        pipeline = _pipeline(paths, case, peer, num_threads, ledger)
        with pipeline.auto_stop():
            batches: Iterator[Batch] = iter(pipeline)

            def run(_: bool) -> Iterator[Batch]:
                return itertools.islice(batches, _AHEAD + -(-images // case.batch_size))

            yield run

    return Way(
        name=f"SPDL threads, {peer}",
        start=start,
        ahead=_AHEAD,
        needs=("spdl.pipeline", PEERS[peer].needs),
        remedy=PEERS[peer].remedy,
        ledger=ledger,
        **case.agreement(),
    )


def _pipeline(paths: Sequence[str], case: Case, peer: str, num_threads: int, ledger: Ledger) -> Any:
    """Build a pipeline that goes through all files in order, over and over."""
    from spdl.pipeline import PipelineBuilder

    logging.getLogger("spdl").setLevel(logging.WARNING)  # each pipeline reports at its end

    def read(row: int) -> tuple[int, Any]:
        return row, sample_of(row, paths[row], case, peer, ledger)

    def collate(samples: list[tuple[int, Any]]) -> Batch:
        import torch

        rows, images = zip(*samples, strict=True)
        with ledger.count("graph"):
            return rows, torch.stack(images)

    return (
        PipelineBuilder()
        .add_source(row for _ in itertools.count() for row in range(len(paths)))
        .pipe(read, concurrency=num_threads)
        .aggregate(case.batch_size)
        .pipe(collate)
        .add_sink(_SINK)
        .build(num_threads=num_threads)
    )
