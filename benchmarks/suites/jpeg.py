"""Photographs, normalised, compared with other loaders: windows, and random regions resized.

The MCU index is made once, by index --mcu_rows.
Windows are in the centre, because DALI's own reader of files has no row numbers to draw them from.
It draws other random regions than the other loaders, so their pixels are not compared. Loaders that
feed JAX draw the same windows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from benchmarks.data import Files, Settings, find_files
from benchmarks.measure.ledger import Ledger, new_ledger
from benchmarks.measure.race import Table, Way, race
from benchmarks.ways.dali import dali_way, read_files
from benchmarks.ways.grain import grain_way
from benchmarks.ways.loaders import expected_pixels, files_way, loader_ways
from benchmarks.ways.peers import Case
from benchmarks.ways.spdl import spdl_way

_WINDOW = (224, 224)
CASE = Case(kind="jpeg", batch_size=16, crop=_WINDOW, window="center", flip=False)
WINDOWS = Case(kind="jpeg", batch_size=16, crop=_WINDOW)
REGIONS = Case(kind="jpeg", batch_size=16, random_area=(0.08, 1.0), resize=_WINDOW)


def jpeg_suite(settings: Settings) -> Iterator[Table]:
    """Time all of them."""
    files = find_files(settings, "jpeg", (2 if settings.quick else 9) * CASE.batch_size)
    yield _table(
        "Centre windows of 224x224 from photographs",
        CASE,
        jpeg_ways,
        files,
        settings,
        note="SPDL's colours are those of FFmpeg, which differ from libjpeg's, and it ignores the "
        "orientation in EXIF.",
    )
    yield _table(
        "Random regions of photographs, resized to 224x224 and flipped",
        REGIONS,
        region_ways,
        files,
        settings,
        note="Regions have 8 to 100 % of the area, and widths of 3/4 to 4/3 of their heights. "
        "DALI draws other regions, so its pixels are not compared.",
    )
    yield _table(
        "Random windows of 224x224, flipped, as JAX arrays",
        WINDOWS,
        jax_ways,
        files,
        settings,
        baseline="grain, Pillow",
        note="Each grain process has one thread.",
    )


def _table(
    title: str,
    case: Case,
    ways: Callable[[Files, Settings, Ledger], list[Way]],
    files: Files,
    settings: Settings,
    *,
    note: str,
    baseline: str = "DataLoader, Pillow",
) -> Table:
    with new_ledger() as ledger:
        expected = expected_pixels(files.paths, case)
        results = race(ways(files, settings, ledger), expected, settings.rounds)
    how = (
        f"{settings.num_read_processes} processes, {settings.num_threads} threads of DALI or SPDL; "
        f"batches of {case.batch_size}. The MCU index is made beforehand, by index --mcu_rows."
    )
    return Table(
        title=title,
        baseline=baseline,
        results=results,
        data=files.described,
        note=f"{how} {note}",
    )


def jpeg_ways(files: Files, settings: Settings, ledger: Ledger) -> list[Way]:
    """Return all of them, ours first."""
    passes = 2 if settings.quick else 3
    workers, threads = settings.num_read_processes, settings.num_threads
    return [
        *loader_ways(
            files.index,
            CASE,
            passes,
            num_read_processes=workers,
            num_threads=threads,
            ledger=ledger,
        ),
        _dali_way(files, CASE, passes, threads, ledger),
        *(
            files_way(files.paths, CASE, peer, passes, num_workers=workers, ledger=ledger)
            for peer in ("Pillow", "torchvision")
        ),
        spdl_way(files.paths, CASE, passes, threads, ledger),
    ]


def region_ways(files: Files, settings: Settings, ledger: Ledger) -> list[Way]:
    """Return the ways to random regions, ours first."""
    passes = 2 if settings.quick else 3
    workers, threads = settings.num_read_processes, settings.num_threads
    return [
        *loader_ways(
            files.index,
            REGIONS,
            passes,
            num_read_processes=workers,
            num_threads=threads,
            ledger=ledger,
        ),
        _dali_way(files, REGIONS, passes, threads, ledger),
        files_way(files.paths, REGIONS, "Pillow", passes, num_workers=workers, ledger=ledger),
    ]


def jax_ways(files: Files, settings: Settings, ledger: Ledger) -> list[Way]:
    """Return the ways to arrays of JAX, ours first."""
    passes = 2 if settings.quick else 3
    workers, threads = settings.num_read_processes, settings.num_threads
    settings_of_ours = {"num_read_processes": workers, "num_threads": threads, "ledger": ledger}
    ours = loader_ways(files.index, WINDOWS, passes, framework="jax", **settings_of_ours)
    return [
        *(replace(way, needs=("jax",)) for way in ours),
        grain_way(files.paths, WINDOWS, passes, workers, ledger),
    ]


def _dali_way(files: Files, case: Case, passes: int, num_threads: int, ledger: Ledger) -> Way:
    read, images = partial(read_files, files.paths), passes * len(files.paths)
    return dali_way("DALI's reader of files", read, images, case, num_threads, ledger)
