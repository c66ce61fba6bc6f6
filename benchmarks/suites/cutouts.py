"""Cutouts of a catalogue: 64x64 pixels around each of 100 positions in each image, shuffled."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from astropy.io import fits

from benchmarks.data import Files, Settings, find_files
from benchmarks.measure.race import Table, Way, race
from benchmarks.ways.cutouts import PEERS, Cutouts, Position
from benchmarks.ways.loaders import data_loader_way, loader_of
from benchmarks.ways.peers import MEAN, SEED, STD
from dali_pipelines import FitsReader, Index, fits_pipeline
from readers.fits.file import open_image
from readers.places.opener import LOCAL

SIZE = 64
_EDGE = 4096
"""Pixels of the exposures that are made."""
_BATCH = 50
_BLOCKS: dict[str, Any] = {"shuffle": "blocks", "block_rows": 100}
_NAMES = ("image", "mask", "weight")
_SLOW = {"astropy Cutout2D": 24}
"""Rows a round of those that decode the whole image for each."""


def cutouts_suite(settings: Settings) -> Iterator[Table]:
    """Time them: of one image a file, and of image, mask and weight."""
    files = find_files(settings, "fits", 4 if settings.quick else 16)
    with open_image(LOCAL.at(files.paths[0]), None) as (_, hdu):
        yield _table("Cutouts", files, (hdu,), settings)
    with tempfile.TemporaryDirectory() as folder:
        paths = [
            write_exposure(Path(folder), number) for number in range(2 if settings.quick else 4)
        ]
        survey = Files("fits", Index.from_paths(paths), paths, f"{len(paths)} made exposures")
        yield _table("Image, mask and weight: cutouts", survey, (1, 2, 3), settings)


def write_exposure(folder: Path, number: int) -> str:
    """Write square images as the surveys do: quantised floats, flags, and weights, in RICE_1."""
    random = np.random.default_rng(number)
    image = random.normal(100, 5, (_EDGE, _EDGE)).astype(np.float32)
    flags = (random.random(image.shape) < 1e-3).astype(np.int32) * 4
    weight = random.normal(0.04, 1e-3, image.shape).astype(np.float32)
    floats: dict[str, Any] = {"quantize_level": 16, "quantize_method": 1}
    hdus = [
        fits.CompImageHDU(pixels, name=name, compression_type="RICE_1", **options)
        for name, pixels, options in (
            ("SCI", image, floats),
            ("DQ", flags, {}),
            ("WHT", weight, floats),
        )
    ]
    path = str(folder / f"{number}.fits.fz")
    fits.HDUList([fits.PrimaryHDU(), *hdus]).writeto(path)
    return path


def _table(title: str, files: Files, hdus: tuple[int, ...], settings: Settings) -> Table:
    positions = draw_positions(files, hdus[0], 10 if settings.quick else 100)
    peers = [peer_way(name, positions, hdus, settings) for name in PEERS]
    ways = [*our_ways(positions, hdus, settings), *peers]
    with closing(Cutouts(positions, hdus, SIZE, "astropy section, files kept open")) as right:
        pixels = functools.cache(lambda row, _: right.expected(row))
        results = race(ways, pixels, settings.rounds)
    return Table(
        title=f"{title} of {SIZE}x{SIZE} around the positions of a catalogue",
        baseline="DataLoader, astropy section, files kept open",
        results=results,
        data=f"{len(positions)} positions in {files.described}",
        note=f"{settings.num_read_processes} processes each; batches of {_BATCH}.",
    )


def draw_positions(files: Files, hdu: int, each: int) -> list[Position]:
    """Return random positions in each file."""
    random, reader = np.random.default_rng(SEED), FitsReader(hdu)
    positions = []
    for number, path in enumerate(files.paths):
        peek = reader.peek(files.index.columns().row(number), None)
        y = random.integers(0, peek.height - SIZE, each, endpoint=True)
        x = random.integers(0, peek.width - SIZE, each, endpoint=True)
        positions += [Position(path, *at) for at in zip(y.tolist(), x.tolist(), strict=True)]
    return positions


def our_ways(positions: list[Position], hdus: tuple[int, ...], settings: Settings) -> list[Way]:
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
            hdus=dict(zip(_NAMES, hdus, strict=False)),
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
