"""How throughput goes with reader processes, batch size and augmentation, beside the DataLoader."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

from benchmarks.data import Files, Settings, find_files
from benchmarks.measure.race import Result, Table, Way, race
from benchmarks.report.tables import Sheet
from benchmarks.sheets.ancestors import speedup_sheets
from benchmarks.sheets.bottlenecks import bottleneck_sheet
from benchmarks.sheets.index import index_sheet
from benchmarks.sheets.model import model_sheets
from benchmarks.ways.loaders import expected_pixels, files_way, loader_way
from benchmarks.ways.peers import Case

_WHOLE = Case(kind="fits", batch_size=2, flip="")
_MOST_PROCESSES = 16
_PEER = "DataLoader, astropy"
_BATCHES = (1, 2, 4, 8)
_FRAMES = {"none": _WHOLE, "flips": replace(_WHOLE, flip="hv")}
_WINDOWS = {
    "1024x1024": replace(_WHOLE, crop=(1024, 1024)),
    "1024x1024, flips": replace(_WHOLE, crop=(1024, 1024), flip="hv"),
    "512x512, flips": replace(_WHOLE, crop=(512, 512), flip="hv"),
    "256x256, flips": replace(_WHOLE, crop=(256, 256), flip="hv"),
}


def scaling_suite(settings: Settings) -> Iterator[Table | Sheet]:
    """Vary one setting at a time, then two.

    Then the cost model, the advice on bottlenecks, and many rows.
    """
    files = find_files(settings, "fits", 4 if settings.quick else 16)
    workers = settings.num_read_processes
    most = 2 if settings.quick else min(_MOST_PROCESSES, 2 * len(os.sched_getaffinity(0)))
    processes = [2**power for power in range(most.bit_length())]
    batches = _BATCHES[1:3] if settings.quick else _BATCHES
    windows = list(_WINDOWS.items())[2:3] if settings.quick else list(_WINDOWS.items())
    for title, axis, places in (
        (
            "By processes, whole frames",
            "reader processes, or workers",
            {str(count): (_WHOLE, count) for count in processes},
        ),
        (
            "By batch size, whole frames",
            "images in a batch",
            {str(size): (replace(_WHOLE, batch_size=size), workers) for size in batches},
        ),
        (
            "By augmentation of whole frames",
            "augmentation",
            {name: (case, workers) for name, case in _FRAMES.items()},
        ),
        (
            "By augmentation of random windows",
            "windows",
            {name: (case, workers) for name, case in windows},
        ),
    ):
        yield _table(title, axis, places, files, settings)
    yield from speedup_sheets(files, settings)
    yield from model_sheets(settings)
    yield bottleneck_sheet(settings)
    yield index_sheet(settings)


def _table(
    title: str, axis: str, places: dict[str, tuple[Case, int]], files: Files, settings: Settings
) -> Table:
    passes = 2
    results: list[Result] = []
    for place, (case, workers) in places.items():
        ways: list[Way] = [
            loader_way(
                f"Loader, {place}",
                files.index,
                case,
                passes,
                point=("Loader", place),
                num_read_processes=workers,
                num_threads=settings.num_threads,
            ),
            files_way(
                files.paths,
                case,
                "astropy",
                passes,
                num_workers=workers,
                name=f"DataLoader, {place}",
                point=(_PEER, place),
            ),
        ]
        results += race(ways, expected_pixels(files.paths, case), settings.rounds)
    return Table(
        title=title,
        axis=axis,
        baseline=_PEER,
        results=tuple(results),
        data=files.described,
    )
