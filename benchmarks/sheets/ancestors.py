"""Speedups in the form of this project's ancestors: dali_examples, and loaders in NumPy.

dali_examples gives seconds for one epoch and the speedup over its serial source. The others give
the speedup of worker processes over a serial loader, by workers, batch size and augmentation.
"""

# Worker processes import this file: what is heavy is imported in the functions.
from __future__ import annotations

import contextlib
import os
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from benchmarks.data import Files, Settings
from benchmarks.measure.race import Batch, Table, Way, race
from benchmarks.report.tables import Sheet, number
from benchmarks.ways.loaders import expected_pixels, files_way, loader_way
from benchmarks.ways.peers import MEAN, SEED, STD, Case, decoded

_PUBLISHED = {
    "serial source": ("81", "1.0"),
    "process per shard": ("26", "3.0"),
    "pool of readers": ("36", "2.2"),
    "both": ("16", "5.0"),
}
"""Seconds and speedup that dali_examples states for its ways."""

_MOST_WORKERS = 16
_PLAIN = Case(kind="fits", batch_size=1, flip="", normalise=False)
AUGMENTATIONS = {
    "none": _PLAIN,
    "crop to 1024x1024": replace(_PLAIN, crop=(1024, 1024)),
    "flips": replace(_PLAIN, flip="hv"),
    "crop to 1024x1024, flips, normalisation": replace(
        _PLAIN, crop=(1024, 1024), flip="hv", normalise=True
    ),
}
_SERIAL = "serial NumPy"
_PASSES = 1
"""Over the files, in each round."""


def epoch_sheet(table: Table, images: int) -> Sheet:
    """Show the ways of dali_examples, and ours, by the seconds of an epoch of so many images."""
    by_name = {result.name: result for result in table.results}
    lines = []
    for name in (*_PUBLISHED, "Loader"):
        result = by_name[name]
        seconds = images / statistics.median(result.rates())
        theirs = _PUBLISHED.get(name, ("", ""))
        lines.append((name, number(seconds), f"{table.speedup(result):.2f}", *theirs))
    return Sheet(
        title="The four strategies of dali_examples, and the Loader",
        header=("strategy", "epoch, s", "speedup", "dali_examples: epoch, s", "speedup"),
        lines=tuple(lines),
        data=f"here an epoch is {images} images; {table.data}",
        note=f"Speedups are relative to: {table.baseline}. The last two columns were not measured "
        "here: they are the figures of dali_examples for its own images, on other hardware (V100, "
        "4 of them for 'process per shard' and 'both'; 16 processes, batches of 16).",
    )


def speedup_sheets(files: Files, settings: Settings) -> Iterator[Sheet]:
    """Time the Loader and the DataLoader against a serial loader, one Sheet per augmentation."""
    names = list(AUGMENTATIONS)
    most = 2 if settings.quick else min(_MOST_WORKERS, 2 * len(os.sched_getaffinity(0)))
    workers = [2**power for power in range(most.bit_length())]
    batch_sizes = (1, 4) if settings.quick else (1, 2, 4)
    for name in names[::3] if settings.quick else names:
        yield _sheet(name, workers, batch_sizes, files, settings)


def _sheet(
    name: str,
    workers: Sequence[int],
    batch_sizes: Sequence[int],
    files: Files,
    settings: Settings,
) -> Sheet:
    case = AUGMENTATIONS[name]
    expected = expected_pixels(files.paths, case)
    cases = [replace(case, batch_size=size) for size in batch_sizes]
    header: tuple[str, ...] = ()
    lines = []
    for count in workers:
        ways = matrix_ways(files, cases, count, settings)
        serial, *others = race(ways, expected, settings.rounds)
        table = Table(title="", baseline=_SERIAL, results=(serial, *others), data="")
        rate = number(statistics.median(serial.rates()))
        lines.append((str(count), rate, *(f"{table.speedup(one):.2f}" for one in others)))
        header = ("workers", f"{_SERIAL}, images/s", *(one.name for one in others))
    return Sheet(
        title=f"Speedup over a serial loader, augmentation: {name}",
        header=header,
        lines=tuple(lines),
        data=files.described,
        note=f"Speedups are relative to {_SERIAL}, timed with each line: astropy and NumPy in "
        f"one process. {settings.num_threads} DALI threads; the DataLoader reads with astropy.",
    )


def matrix_ways(files: Files, cases: Sequence[Case], workers: int, settings: Settings) -> list[Way]:
    """Return the serial way, then both loaders for each case, which differ in batch size."""
    return [
        serial_way(files.paths, cases[0], _PASSES),
        *(
            loader_way(
                f"Loader, batch {case.batch_size}",
                files.index,
                case,
                _PASSES,
                num_read_processes=workers,
                num_threads=settings.num_threads,
            )
            for case in cases
        ),
        *(
            files_way(
                files.paths,
                case,
                "astropy",
                _PASSES,
                num_workers=workers,
                name=f"DataLoader, batch {case.batch_size}",
            )
            for case in cases
        ),
    ]


def serial_way(paths: Sequence[str], case: Case, passes: int) -> Way:
    """Make the way of one process that reads, augments and hands over image by image."""
    run = partial(_serially, paths, case, passes)
    return Way(name=_SERIAL, start=lambda: contextlib.nullcontext(run), **case.agreement())


def _serially(paths: Sequence[str], case: Case, passes: int, _: bool) -> Iterator[Batch]:
    import numpy as np

    from readers.sampling.draws import Draws

    for _pass in range(passes):
        for row, path in enumerate(paths):
            draws = Draws.of(SEED, 0, row)
            image = case.flipped(decoded(path, case, "astropy", draws), draws)
            if case.normalise:
                image = (image - np.float32(MEAN)) / np.float32(STD)
            yield [row], np.ascontiguousarray(image.transpose(2, 0, 1))[None]
