"""Frames in a store of objects whose answers take 20 ms more, against astropy over s3fs.

The store and the proxy that delays it run on this machine, and take their share of its cores.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import numpy as np

from benchmarks.data import Settings
from benchmarks.measure.race import Batch, Result, Run, Table, Way, race
from benchmarks.report.tables import Sheet
from benchmarks.sheets.requests import requests_sheet
from benchmarks.ways.apart import ServerApart
from benchmarks.ways.archive import Archive, make_archives, our_loaders, positions
from benchmarks.ways.cutouts import Cutouts
from benchmarks.ways.loaders import data_loader_way, loader_of
from benchmarks.ways.peers import SEED
from benchmarks.ways.remote import S3Frames
from dali_pipelines import fits_pipeline

_DELAY_S = 0.02
_EDGE, _SIZE = 4096, 512
_BLOCKS = {"default blocks": None, "blocks of 1 MB": 1 << 20}
_KEPT_OPEN = ", objects kept open"
_MOST = 32
"""Images a round of the others."""


def remote_suite(settings: Settings) -> Iterator[Table | Sheet]:
    """Time windows and whole frames, and count what is asked of the store."""
    frames, each = (4, 16) if settings.quick else (16, 8)
    with (
        tempfile.TemporaryDirectory(prefix="dali-pipelines-") as folder,
        ServerApart(Path(folder, "server"), _DELAY_S) as server,
    ):
        windows, whole = make_archives(
            Path(folder), server, frames=frames, each=each, edge=_EDGE, size=_SIZE
        )
        for title, archive in (
            (f"Random windows of {_SIZE}x{_SIZE} of remote frames", windows),
            ("Whole remote frames", whole),
        ):
            yield from tables(title, archive, server, Path(folder, title), settings)


def tables(
    title: str, archive: Archive, server: ServerApart, folder: Path, settings: Settings
) -> Iterator[Table | Sheet]:
    """Time all of them, and count; the caches are made in `folder`."""
    local, size = positions(archive.rows.local), archive.size or archive.edge
    peers = peer_ways(archive, server, settings)
    ways = [*our_ways(archive, server, folder / "timed", settings), *peers]
    with closing(Cutouts(local, (1,), size, "astropy section, files kept open")) as right:
        pixels = functools.cache(lambda row, _: right.expected(row))
        results = race(ways, pixels, settings.rounds, server.pids)
    names = [way.name for way in peers if not way.name.endswith(_KEPT_OPEN)]
    best = max((result for result in results if result.name in names), key=_rate)
    yield Table(
        title=title,
        baseline=best.name,
        results=results,
        data=f"{len(local)} images of {archive.described}",
        note=f"{settings.num_read_processes} processes each; batches of {archive.batch_size}. "
        f"Answers are delayed by {1e3 * _DELAY_S:.0f} ms. The CPU time of the store is not "
        "counted. If objects are kept open, s3fs keeps the bytes that it has read in memory: with "
        "default blocks, whole objects.",
    )
    yield requests_sheet(title, archive, server, settings, folder / "counted", peers)


def _rate(result: Result) -> float:
    return statistics.median(result.rates())


def our_ways(archive: Archive, server: ServerApart, cache: Path, settings: Settings) -> list[Way]:
    """Return the ways of all Loaders."""
    ways, agreement = [], {"atol": 1e-4}
    for ours in our_loaders(archive, server, settings, cache):
        passes = 2 if settings.quick else 3
        way = loader_of(
            ours.name, fits_pipeline, ours.index, passes, agreement=agreement, **ours.settings
        )
        if ours.name.endswith("first epoch"):
            batches = len(ours.index) // archive.batch_size
            if batches <= way.ahead:
                continue
            emptied = functools.partial(_emptied, way.start, Path(ours.settings["cache"]), batches)
            way = dataclasses.replace(way, start=emptied)
        ways.append(way)
    return ways


@contextmanager
def _emptied(
    start: Callable[[], AbstractContextManager[Run]], cache: Path, batches: int
) -> Iterator[Run]:
    """Start a Loader whose cache is emptied before each round, which is one epoch."""

    def empty_and_run(run: Run, pixels: bool) -> Iterator[Batch]:
        for file in cache.glob("??/*"):  # folders are made once in the life of a cache
            file.unlink()
        return itertools.islice(run(pixels), batches)

    with start() as run:
        yield functools.partial(empty_and_run, run)


def peer_ways(archive: Archive, server: ServerApart, settings: Settings) -> list[Way]:
    """Return the ways of DataLoaders over astropy and s3fs; rows come in a random order."""
    at = positions(archive.rows.remote)
    order = np.random.default_rng(SEED).permutation(len(at))[:_MOST].tolist()
    return [
        data_loader_way(
            f"DataLoader, astropy and s3fs, {blocks}{_KEPT_OPEN * stay_open}",
            S3Frames(at, archive.size, server.endpoint, nbytes, stay_open),
            order,
            batch_size=min(archive.batch_size, len(order) // settings.num_read_processes),
            num_workers=settings.num_read_processes,
            needs=("s3fs",),
        )
        for stay_open in ((False, True) if archive.size else (False,))
        for blocks, nbytes in _BLOCKS.items()
    ]
