"""Cutouts of a catalogue: 64x64 pixels around each of 100 positions in each image, shuffled."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.data import Files, Settings, find_files
from benchmarks.measure.race import Table, Way, race
from benchmarks.ways.cutouts import PEERS, Cutouts, Position
from benchmarks.ways.loaders import data_loader_way, loader_of
from benchmarks.ways.peers import MEAN, SEED, STD
from dali_pipelines import FitsReader, Index, fits_pipeline
from readers.fits.file import open_image

SIZE = 64
_BATCH = 50
_BLOCKS: dict[str, Any] = {"shuffle": "blocks", "block_rows": 100}
_SLOW = {"astropy Cutout2D": 24}
"""Rows a round of those that decode the whole image for each."""


def cutouts_suite(settings: Settings) -> Iterator[Table]:
    """Time them."""
    files = find_files(settings, "fits", 4 if settings.quick else 16)
    positions = draw_positions(files, 10 if settings.quick else 100)
    with open_image(files.paths[0], None) as (_, hdu):
        hdus = (hdu,)
    peers = [peer_way(name, positions, hdus, settings) for name in PEERS]
    expected = Cutouts(positions, hdus, SIZE, "astropy section, files kept open").expected
    yield Table(
        title=f"Cutouts of {SIZE}x{SIZE} around the positions of a catalogue",
        baseline="DataLoader, astropy section, files kept open",
        results=race(
            [*our_ways(files, positions, settings), *peers],
            functools.cache(lambda row, _: expected(row)),
            settings.rounds,
        ),
        data=f"{len(positions)} positions in {files.described}",
        note=f"Each has {settings.num_read_processes} processes; batches of {_BATCH}.",
    )


def draw_positions(files: Files, each: int) -> list[Position]:
    """Return random positions in each file."""
    random, reader = np.random.default_rng(SEED), FitsReader()
    positions = []
    for number, path in enumerate(files.paths):
        peek = reader.peek(files.index.columns().row(number), None)
        y = random.integers(0, peek.height - SIZE, each, endpoint=True)
        x = random.integers(0, peek.width - SIZE, each, endpoint=True)
        positions += [Position(path, *at) for at in zip(y.tolist(), x.tolist(), strict=True)]
    return positions


def our_ways(files: Files, positions: list[Position], settings: Settings) -> list[Way]:
    """Return the Loader's, shuffled over all files, and in blocks."""
    index = Index.from_paths([position.path for position in positions])
    for name, values in zip(("y", "x"), np.array([at[1:] for at in positions]).T, strict=True):
        index = index.with_column(name, values)
    passes = 2 if settings.quick else 3
    shuffles: dict[str, dict[str, Any]] = {"Loader": {}, "Loader, shuffled in blocks": _BLOCKS}
    return [
        loader_of(
            name,
            fits_pipeline,
            index,
            passes,
            agreement={"atol": 1e-4},
            batch_size=_BATCH,
            crop=SIZE,
            window="row",
            mean=MEAN,
            std=STD,
            num_read_processes=settings.num_read_processes,
            num_threads=settings.num_threads,
            **shuffle,
        )
        for name, shuffle in shuffles.items()
    ]


def peer_way(
    name: str, positions: list[Position], hdus: tuple[int, ...], settings: Settings
) -> Way:
    """Return the way of a DataLoader; rows come in a random order."""
    few = min(_SLOW.get(name, len(positions)), len(positions))
    order = np.random.default_rng(SEED).permutation(len(positions))[:few].tolist()
    return data_loader_way(
        f"DataLoader, {name}",
        Cutouts(positions, hdus, SIZE, name),
        order,
        batch_size=max(1, min(_BATCH, few // settings.num_read_processes // 2)),
        num_workers=settings.num_read_processes,
        needs=("fitsio",) if "fitsio" in name else (),
    )
