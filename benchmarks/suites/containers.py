"""Photographs in containers, shuffled: against loose files, DALI's own readers and webdataset."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.data import Files, Settings, find_files
from benchmarks.measure.ledger import Ledger, new_ledger
from benchmarks.measure.race import Table, Way, race
from benchmarks.report.tables import Sheet
from benchmarks.sheets.containers import tars_sheet
from benchmarks.ways.containers import Packed, pack, webdataset_way
from benchmarks.ways.dali import dali_way, read_tars, read_tfrecords
from benchmarks.ways.loaders import expected_pixels, loader_way
from benchmarks.ways.peers import Case
from dali_pipelines import Index, with_mcu_rows

CASE = Case(kind="jpeg", batch_size=16, crop=(224, 224), window="center")
_FILES = "Loader, loose files"


def containers_suite(settings: Settings) -> Iterator[Table | Sheet]:
    """Time all of them, and making an Index."""
    files = find_files(settings, "jpeg", (2 if settings.quick else 9) * CASE.batch_size)
    with tempfile.TemporaryDirectory(prefix="dali-pipelines-") as folder, new_ledger() as ledger:
        packed = pack(files.paths, Path(folder))
        results = race(
            [*our_ways(files, packed, settings, ledger), *others(files, packed, settings, ledger)],
            expected_pixels(files.paths, CASE),
            settings.rounds,
        )
        yield Table(
            title="Centre windows of 224x224 from photographs in containers",
            baseline=_FILES,
            results=results,
            data=f"{files.described}; the containers are {len(packed.tars)} tars, as many TFRecord "
            "files, and an LMDB",
            note=f"{settings.num_read_processes} processes, {settings.num_threads} DALI threads; "
            f"batches of {CASE.batch_size}. The Loader shuffles over all photographs, the others "
            "draw from a buffer that holds all. All flip at random; DALI's flips are undone to "
            "compare the pixels. The MCU index is made beforehand, by index --mcu_rows.",
        )
        yield tars_sheet(Path(folder), settings)


def our_ways(files: Files, packed: Packed, settings: Settings, ledger: Ledger) -> list[Way]:
    """Return the Loader's, of each kind of container."""
    tars = Index.scan(packed.tars)
    indexes = {
        _FILES: files.index,
        "Loader, tars": tars,
        "Loader, TFRecord": Index.from_tfrecord(packed.tfrecords),
        "Loader, LMDB": Index.from_lmdb(packed.lmdb),
        f"{_FILES}, MCU index": with_mcu_rows(files.index),
        "Loader, tars, MCU index": with_mcu_rows(tars),
    }
    return [
        loader_way(
            name,
            index,
            CASE,
            _passes(settings),
            num_read_processes=settings.num_read_processes,
            num_threads=settings.num_threads,
            ledger=ledger,
        )
        for name, index in indexes.items()
    ]


def others(files: Files, packed: Packed, settings: Settings, ledger: Ledger) -> list[Way]:
    """Return DALI's own readers, and the library webdataset."""
    fill, passes = len(files.paths), _passes(settings)
    reads = {
        "DALI's reader of tars": functools.partial(read_tars, packed.tars, fill),
        "DALI's reader of TFRecord": functools.partial(
            read_tfrecords, packed.tfrecords, packed.tfrecord_indexes, fill
        ),
    }
    return [
        *(
            dali_way(name, read, passes * fill, CASE, settings.num_threads, ledger)
            for name, read in reads.items()
        ),
        webdataset_way(packed.tars, CASE, passes, fill, settings.num_read_processes, ledger),
    ]


def _passes(settings: Settings) -> int:
    return 2 if settings.quick else 3
