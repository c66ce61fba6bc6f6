"""The Loader against PyTorch's DataLoader: same files, windows and flips."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.data import Settings, find_files
from benchmarks.measure.ledger import Ledger, new_ledger
from benchmarks.measure.race import Table, race
from benchmarks.ways.loaders import expected_pixels, files_way, loader_ways
from benchmarks.ways.peers import Case

CASES = {
    "Whole frames": (Case(kind="fits", batch_size=4), 16),
    "Random 512x512 windows of frames": (Case(kind="fits", batch_size=8, crop=(512, 512)), 64),
    "Random 224x224 windows of photographs": (
        Case(kind="jpeg", batch_size=16, crop=(224, 224)),
        144,
    ),
    "Photographs resized to 224x224": (Case(kind="jpeg", batch_size=16, resize=(224, 224)), 144),
}
"""With the number of files that are read."""


def loader_suite(settings: Settings) -> Iterator[Table]:
    """Time all cases that there are files for."""
    with new_ledger() as ledger:
        for title, (case, most) in CASES.items():
            yield _table(title, case, most, settings, ledger)


def _table(title: str, case: Case, most: int, settings: Settings, ledger: Ledger) -> Table:
    files = find_files(settings, case.kind, 2 * case.batch_size if settings.quick else most)
    passes = 2 if settings.quick else 3
    peers = ("astropy", "fitsio", "torchfits") if case.kind == "fits" else ("Pillow",)
    workers = settings.num_read_processes
    ways = [
        *loader_ways(
            files.index,
            case,
            passes,
            num_read_processes=workers,
            num_threads=settings.num_threads,
            ledger=ledger,
        ),
        *(
            files_way(files.paths, case, peer, passes, num_workers=workers, ledger=ledger)
            for peer in peers
        ),
    ]
    return Table(
        title=title,
        baseline=f"DataLoader, {peers[0]}",
        results=race(ways, expected_pixels(files.paths, case), settings.rounds),
        data=files.described,
        note=f"{workers} processes each; batches of {case.batch_size}.",
    )
