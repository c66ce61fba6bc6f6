"""Photographs as networks for images are trained and validated, against the loaders of others.

Three tasks, each of small and of large photographs: random regions resized (RandomResizedCrop), the
shorter side resized and the centre cut out (Resize, CenterCrop), and random windows. CPU time is
that of all processes together. The MCU index is made beforehand, by index --mcu_rows.

Not in the extra ``bench``, because they must fit the installed PyTorch or bring many packages:
``pip install torchvision torchcodec litdata mosaicml-streaming``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks.data import Files, Settings, find_files, small_photographs
from benchmarks.measure.ledger import Ledger, new_ledger
from benchmarks.measure.race import Table, Way, race
from benchmarks.report.tables import Sheet
from benchmarks.ways.containers import webdataset_way, write_tars
from benchmarks.ways.dali import dali_way, read_files
from benchmarks.ways.grain import grain_way
from benchmarks.ways.loaders import expected_pixels, files_way, loader_way, loader_ways
from benchmarks.ways.peers import Case
from benchmarks.ways.spdl import spdl_way
from benchmarks.ways.streaming import pack_shards, streaming_ways

_SIZE = (224, 224)
_BATCH_SIZE = 64
TASKS = {
    "Random regions, resized to 224x224, flipped": Case(
        kind="jpeg",
        batch_size=_BATCH_SIZE,
        random_area=(0.08, 1.0),
        resize=_SIZE,
        flip="h",
    ),
    "Shorter side resized to 256, the centre of 224x224": Case(
        kind="jpeg",
        batch_size=_BATCH_SIZE,
        resize_shorter=256,
        crop=_SIZE,
        window="center",
        flip="",
    ),
    "Random windows of 224x224, flipped": Case(
        kind="jpeg", batch_size=_BATCH_SIZE, crop=_SIZE, flip="h"
    ),
}
_DECODER = "torchvision"
"""Decodes the photographs of loaders that have no decoder of their own."""


@dataclass(frozen=True, kw_only=True)
class _Set:
    """Photographs, also in containers."""

    files: Files
    tars: list[str]
    shards: Path
    passes: int
    """Times that a round reads all of them."""


def photographs_suite(settings: Settings) -> Iterator[Table | Sheet]:
    """Time all of them."""
    count = (1 if settings.quick else 9) * 64
    with tempfile.TemporaryDirectory(prefix="dali-pipelines-") as folder:
        if settings.data is not None:
            sets = {"": find_files(settings, "jpeg", count)}
        else:
            sets = {
                " (small)": small_photographs(settings, Path(folder, "small"), count),
                " (large)": find_files(settings, "jpeg", count),
            }
        for number, (size, files) in enumerate(sets.items()):
            packed = _pack(files, Path(folder, str(number)), 1 if settings.quick else 4)
            for task, case in TASKS.items():
                yield _table(task + size, case, packed, settings, ways)
            if number == 0:
                case = TASKS["Random windows of 224x224, flipped"]
                title = f"Random windows of 224x224, flipped, as JAX arrays{size}"
                yield _table(title, case, packed, settings, jax_ways, "grain, Pillow")
    yield GUARANTEES


def _pack(files: Files, folder: Path, passes: int) -> _Set:
    folder.mkdir()
    pack_shards(files.paths, passes, folder)
    return _Set(files=files, tars=write_tars(files.paths, folder), shards=folder, passes=passes)


def _table(
    title: str,
    case: Case,
    photos: _Set,
    settings: Settings,
    make: Callable[[Case, _Set, Settings, Ledger], list[Way]],
    baseline: str = "DataLoader, Pillow",
) -> Table:
    with new_ledger() as ledger:
        expected = expected_pixels(photos.files.paths, case)
        results = race(make(case, photos, settings, ledger), expected, settings.rounds)
    return Table(
        title=title,
        baseline=baseline,
        results=results,
        data=photos.files.described,
        note=f"{settings.num_read_processes} processes, {settings.num_threads} threads of DALI or "
        f"SPDL; batches of {case.batch_size}, float32 and normalised unless a method has uint8. "
        "The MCU index is made beforehand, by index --mcu_rows. DALI draws its own windows and "
        "regions, and rounds sizes otherwise, so that its pixels are not compared.",
    )


def ways(case: Case, photos: _Set, settings: Settings, ledger: Ledger) -> list[Way]:
    """Return the ways to one task, ours first."""
    files, passes = photos.files, photos.passes
    workers, threads = settings.num_read_processes, settings.num_threads
    as_uint8 = replace(case, dtype="uint8")
    ours = {"num_read_processes": workers, "num_threads": threads, "ledger": ledger}
    of_files = partial(files_way, files.paths, passes=passes, num_workers=workers, ledger=ledger)
    return [
        *loader_ways(files.index, case, passes, **ours),
        loader_way("Loader, uint8", files.index, as_uint8, passes, **ours),
        dali_way(
            "DALI's reader of files",
            partial(read_files, files.paths),
            passes * len(files.paths),
            case,
            threads,
            ledger,
        ),
        *(of_files(case=case, peer=peer) for peer in ("Pillow", "torchvision", "torchcodec")),
        of_files(case=as_uint8, peer="torchcodec", name="DataLoader, torchcodec, uint8"),
        spdl_way(files.paths, case, _DECODER, passes, threads, ledger),
        webdataset_way(photos.tars, case, passes, len(files.paths), workers, ledger, peer=_DECODER),
        *streaming_ways(photos.shards, case, _DECODER, workers, ledger),
        grain_way(files.paths, case, _DECODER, passes, workers, ledger, to_jax=False),
    ]


def jax_ways(case: Case, photos: _Set, settings: Settings, ledger: Ledger) -> list[Way]:
    """Return the ways to arrays of JAX, ours first."""
    workers, passes = settings.num_read_processes, photos.passes
    ours = {
        "num_read_processes": workers,
        "num_threads": settings.num_threads,
        "ledger": ledger,
        "framework": "jax",
    }
    return [
        *(
            replace(way, needs=("jax",))
            for way in loader_ways(photos.files.index, case, passes, **ours)
        ),
        grain_way(photos.files.paths, case, "Pillow", passes, workers, ledger, to_jax=True),
    ]


GUARANTEES = Sheet(
    title="Order, continuing and pixels",
    header=("method", "order", "continues within an epoch", "pixels"),
    lines=(
        (
            "Loader",
            "of all rows, from (seed, epoch), for any number of processes and shards",
            "at the next row, also with another batch size or number of shards",
            "antialiased; within 2 levels of Pillow",
        ),
        ("DALI's reader of files", "shuffled in a buffer", "same shards and batch size", "as ours"),
        ("DataLoader", "of all rows, from a seed", "no (torchdata's does)", "as torchvision"),
        ("SPDL", "as files become ready, unless asked for", "no", "as torchvision"),
        ("webdataset", "of tars, then in a buffer", "no", "as torchvision"),
        ("litData", "of chunks, then in a chunk", "same number of workers", "as torchvision"),
        (
            "MosaicML Streaming",
            "the same for several numbers of nodes",
            "yes, with another number of nodes, too",
            "as torchvision",
        ),
        ("grain", "of all rows, from a seed", "same number of workers", "as torchvision"),
    ),
    data="from the documents and the code of each; not measured",
    note="OpenCV and kornia-rs resize without antialias by default, and were not compared. litData "
    "and MosaicML Streaming read shards of their own formats, which are written before.",
)
