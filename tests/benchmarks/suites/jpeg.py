"""Photographs: a window out of the centre, normalised, against what others read them with.

Rows are noted once, by index.py --mcu_rows.
The window is the centre's, as DALI's own reader of files knows no rows to draw windows by.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.data import Files, Settings, find_files
from benchmarks.measure.ledger import Ledger, new_ledger
from benchmarks.measure.race import Batch, Run, Table, Way, race
from benchmarks.ways.loaders import devices, expected_pixels, files_way, loader_ways
from benchmarks.ways.peers import MEAN, STD, Case
from benchmarks.ways.spdl import spdl_way

_WINDOW = (224, 224)
CASE = Case(kind="jpeg", batch_size=16, crop=_WINDOW, window="center", flip=False)
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
    yield Table(
        title="Centre windows of 224x224 out of photographs",
        baseline="DataLoader, Pillow",
        results=results,
        data=files.described,
        note=f"{settings.num_read_processes} processes, {settings.num_threads} threads of DALI or "
        f"SPDL; batches of {CASE.batch_size}. SPDL's colours are FFmpeg's, which are "
        "not libjpeg's, and it does not turn photographs as their EXIF says. Rows are noted "
        "beforehand, by index.py --mcu_rows.",
    )


def jpeg_ways(files: Files, settings: Settings, ledger: Ledger) -> list[Way]:
    """Give all of them, ours first."""
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
        _dali_way(files, passes, threads, ledger),
        *(
            files_way(files.paths, CASE, peer, passes, num_workers=workers, ledger=ledger)
            for peer in ("Pillow", "torchvision")
        ),
        spdl_way(files.paths, CASE, passes, threads, ledger),
    ]


def _dali_way(files: Files, passes: int, num_threads: int, ledger: Ledger) -> Way:
    """Make the way of DALI's own reader of files, which needs no reader processes."""

    @contextmanager
    def start() -> Iterator[Run]:
        from nvidia.dali import Pipeline, fn, types
        from torch.utils.dlpack import from_dlpack

        (device_id,) = devices(1)
        pipeline = Pipeline(
            batch_size=CASE.batch_size,
            num_threads=num_threads,
            device_id=device_id,
            exec_dynamic=True,
        )
        with pipeline:
            encoded, label = fn.readers.file(
                files=files.paths, labels=list(range(len(files.paths)))
            )
            images = fn.decoders.image_crop(
                encoded,
                device="cpu" if device_id is None else "mixed",
                crop=_WINDOW,
                rounding="truncate",  # of an odd play, as the others
            )
            images = fn.crop_mirror_normalize(
                images, dtype=types.FLOAT, output_layout="CHW", mean=[MEAN] * 3, std=[STD] * 3
            )
            pipeline.set_outputs(images, label)
        pipeline.build()

        batches = _AHEAD + -(-passes * len(files.paths) // CASE.batch_size)

        def run() -> Iterator[Batch]:
            for _ in range(batches):
                image, row = (from_dlpack(one.as_tensor()) for one in pipeline.run())
                yield row[:, 0].tolist(), image

        yield lambda _: run()

    return Way(
        name="DALI's reader of files",
        start=start,
        ahead=_AHEAD,
        ledger=ledger,
        **CASE.agreement(),
    )
