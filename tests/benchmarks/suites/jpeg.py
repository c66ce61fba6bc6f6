"""Photographs, normalised, against what others read them with: windows, and random regions resized.

Rows are noted once, by index.py --mcu_rows.
Windows are the centre's, as DALI's own reader of files knows no rows to draw them by. Its random
regions are others than those of the rest, and their pixels are not compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.data import Files, Settings, find_files
from benchmarks.measure.ledger import Ledger, new_ledger
from benchmarks.measure.race import Batch, Run, Table, Way, race
from benchmarks.ways.loaders import devices, expected_pixels, files_way, loader_ways
from benchmarks.ways.peers import MEAN, STD, Case
from benchmarks.ways.spdl import spdl_way

_WINDOW = (224, 224)
CASE = Case(kind="jpeg", batch_size=16, crop=_WINDOW, window="center", flip=False)
REGIONS = Case(kind="jpeg", batch_size=16, random_area=(0.08, 1.0), resize=_WINDOW)
_AHEAD = 3
"""Batches: two of DALI's queues, and one in the works."""


def jpeg_suite(settings: Settings) -> Iterator[Table]:
    """Time all of them."""
    files = find_files(settings, "jpeg", (2 if settings.quick else 9) * CASE.batch_size)
    with new_ledger() as ledger:
        results = race(
            jpeg_ways(files, settings, ledger),
            expected_pixels(files.paths, CASE),
            settings.rounds,
        )
    how = (
        f"{settings.num_read_processes} processes, {settings.num_threads} threads of DALI or SPDL; "
        f"batches of {CASE.batch_size}. Rows are noted beforehand, by index.py --mcu_rows."
    )
    yield Table(
        title="Centre windows of 224x224 out of photographs",
        baseline="DataLoader, Pillow",
        results=results,
        data=files.described,
        note=f"{how} SPDL's colours are FFmpeg's, which are not libjpeg's, and it does not turn "
        "photographs as their EXIF says.",
    )
    with new_ledger() as ledger:
        results = race(
            region_ways(files, settings, ledger),
            expected_pixels(files.paths, REGIONS),
            settings.rounds,
        )
    yield Table(
        title="Random regions of photographs, resized to 224x224 and flipped",
        baseline="DataLoader, Pillow",
        results=results,
        data=files.described,
        note=f"{how} Regions have 8 to 100 % of the area, and widths of 3/4 to 4/3 of their "
        "heights. DALI's own draws are others, and its pixels are not compared.",
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


def _dali_way(files: Files, case: Case, passes: int, num_threads: int, ledger: Ledger) -> Way:
    """Make the way of DALI's own reader of files, which needs no reader processes."""

    @contextmanager
    def start() -> Iterator[Run]:
        from nvidia.dali import Pipeline, fn
        from torch.utils.dlpack import from_dlpack

        (device_id,) = devices(1)
        pipeline = Pipeline(
            batch_size=case.batch_size,
            num_threads=num_threads,
            device_id=device_id,
            exec_dynamic=True,
        )
        with pipeline:
            encoded, label = fn.readers.file(
                files=files.paths, labels=list(range(len(files.paths)))
            )
            device = "cpu" if device_id is None else "mixed"
            pipeline.set_outputs(_dali_images(encoded, device, case), label)
        pipeline.build()

        batches = _AHEAD + -(-passes * len(files.paths) // case.batch_size)

        def run() -> Iterator[Batch]:
            for _ in range(batches):
                image, row = (from_dlpack(one.as_tensor()) for one in pipeline.run())
                yield row[:, 0].tolist(), image

        yield lambda _: run()

    agreement = case.agreement() | ({} if case.random_area is None else {"atol": None})
    return Way(name="DALI's reader of files", start=start, ahead=_AHEAD, ledger=ledger, **agreement)


def _dali_images(encoded: Any, device: str, case: Case) -> Any:
    """Add what DALI does with photographs to its graph."""
    from nvidia.dali import fn, types

    finish: dict[str, Any] = {"mean": [MEAN] * 3, "std": [STD] * 3, "output_layout": "CHW"}
    if case.random_area is None:
        # Of an odd play, as the others.
        images = fn.decoders.image_crop(encoded, device=device, crop=case.crop, rounding="truncate")
        return fn.crop_mirror_normalize(images, dtype=types.FLOAT, **finish)
    # The ranges of regions are DALI's by default, too.
    images = fn.decoders.image_random_crop(encoded, device=device, random_area=case.random_area)
    images = fn.resize(images, size=case.resize, interp_type=types.INTERP_LINEAR)
    images = fn.flip(images, horizontal=fn.random.coin_flip(), vertical=fn.random.coin_flip())
    return fn.crop_mirror_normalize(images, dtype=types.FLOAT, **finish)
