"""Photographs by SPDL: threads of one process that decode by FFmpeg."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from benchmarks.measure.ledger import Ledger
from benchmarks.measure.race import Batch, Run, Way
from benchmarks.ways.peers import MEAN, STD, Case

_SINK = 2
_AHEAD = 10
"""Batches that lie in its stages and queues when all threads rest: 9.25 were counted."""


def spdl_way(
    paths: Sequence[str], case: Case, passes: int, num_threads: int, ledger: Ledger
) -> Way:
    """Make the way of SPDL's own pipeline; the window is the centre's."""
    images = passes * len(paths)

    @contextmanager
    def start() -> Iterator[Run]:
        pipeline = _pipeline(paths, case, num_threads, ledger)
        with pipeline.auto_stop():
            batches: Iterator[Batch] = iter(pipeline)

            def run(_: bool) -> Iterator[Batch]:
                return itertools.islice(batches, _AHEAD + -(-images // case.batch_size))

            yield run

    return Way(
        name="SPDL",
        start=start,
        ahead=_AHEAD,
        needs=("spdl.pipeline", "spdl.io:CPUBuffer"),
        remedy="it needs FFmpeg's libraries (Debian: apt-get install ffmpeg)",
        ledger=ledger,
        atol=None,  # of other colours: it is stated how far
    )


def _pipeline(paths: Sequence[str], case: Case, num_threads: int, ledger: Ledger) -> Any:
    """Build a pipeline that goes through all files in order, over and over."""
    import spdl.io
    from spdl.pipeline import PipelineBuilder

    logging.getLogger("spdl").setLevel(logging.WARNING)  # each pipeline reports at its end
    assert case.crop is not None
    cut = spdl.io.get_video_filter_desc(crop_height=case.crop[0], crop_width=case.crop[1])

    def decode(row: int) -> tuple[int, Any]:
        with ledger.count("decode"):
            with ledger.opened(paths[row]) as source:
                packets = spdl.io.demux_image(source if isinstance(source, str) else source.read())
            return row, spdl.io.decode_packets(packets, filter_desc=cut)

    def collate(decoded: list[tuple[int, Any]]) -> Batch:
        rows, frames = zip(*decoded, strict=True)
        with ledger.count("graph"):
            images = spdl.io.to_torch(spdl.io.convert_frames(list(frames)))
            return rows, images.permute(0, 3, 1, 2).float().sub_(MEAN).div_(STD)

    return (
        PipelineBuilder()
        .add_source(row for _ in itertools.count() for row in range(len(paths)))
        .pipe(decode, concurrency=num_threads)
        .aggregate(case.batch_size)
        .pipe(collate)
        .add_sink(_SINK)
        .build(num_threads=num_threads)
    )
