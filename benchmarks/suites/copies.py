"""Random regions of photographs, and of copies of them with a shorter side of 512 pixels.

The copies are made before the timing, as the guide on formats advises. Their pixels are others, so
it is only reported how far they are from those of the photographs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image, ImageOps

from benchmarks.data import Files, Settings, find_files
from benchmarks.measure.ledger import Ledger, new_ledger
from benchmarks.measure.race import Table, Way, race
from benchmarks.ways.loaders import expected_pixels, files_way, loader_way
from benchmarks.ways.peers import Case

REGIONS = Case(kind="jpeg", batch_size=16, random_area=(0.08, 1.0), resize=(224, 224))
SHORTER = 512
"""Pixels of the shorter side of a copy."""


def copies_suite(settings: Settings) -> Iterator[Table]:
    """Time both, by the Loader and by a DataLoader."""
    files = find_files(settings, "jpeg", (2 if settings.quick else 9) * REGIONS.batch_size)
    with TemporaryDirectory() as folder, new_ledger() as ledger:
        paths = [_shrunk(path, Path(folder)) for path in files.paths]
        ways = copies_ways(files, paths, settings, ledger)
        results = race(ways, expected_pixels(files.paths, REGIONS), settings.rounds)
        megabytes = sum(Path(path).stat().st_size for path in paths) / len(paths) / 1e6
    yield Table(
        title="Random regions of photographs and of smaller copies, resized to 224x224 and flipped",
        baseline="Loader",
        results=results,
        data=files.described,
        note=f"{settings.num_read_processes} processes, {settings.num_threads} threads of DALI; "
        f"batches of {REGIONS.batch_size}. Regions have 8 to 100 % of the area. Copies have a "
        f"shorter side of {SHORTER} pixels, and {megabytes:.2f} MB each.",
    )


def copies_ways(files: Files, paths: list[str], settings: Settings, ledger: Ledger) -> list[Way]:
    """Return the ways, ours first; `paths` are the copies of the files."""
    from dali_pipelines import Index

    passes = 2 if settings.quick else 3
    workers = settings.num_read_processes
    peer: dict[str, Any] = {"num_workers": workers, "ledger": ledger}
    ours: dict[str, Any] = {
        "num_read_processes": workers,
        "num_threads": settings.num_threads,
        "ledger": ledger,
    }
    small = Index.from_paths(paths)
    return [
        loader_way("Loader", files.index, REGIONS, passes, **ours),
        _other_pixels(loader_way("Loader, smaller copies", small, REGIONS, passes, **ours)),
        files_way(files.paths, REGIONS, "Pillow", passes, **peer),
        _other_pixels(
            files_way(
                paths, REGIONS, "Pillow", passes, name="DataLoader, Pillow, smaller copies", **peer
            )
        ),
    ]


def _other_pixels(way: Way) -> Way:
    return replace(way, atol=None)


def _shrunk(path: str, folder: Path) -> str:
    """Write a smaller copy of a photograph; return its path."""
    small = folder / Path(path).name
    with Image.open(path) as opened:
        image = ImageOps.exif_transpose(opened).convert("RGB")
        scale = min(1.0, SHORTER / min(image.size))
        width, height = (round(length * scale) for length in image.size)
        image.resize((width, height), Image.Resampling.LANCZOS).save(small, quality=92)
    return str(small)
