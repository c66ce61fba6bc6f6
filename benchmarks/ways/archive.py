"""An archive of made frames on local disk and in a store of objects, and the Loaders over it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from astropy.io import fits

from benchmarks.data import Settings
from benchmarks.ways.apart import ServerApart
from benchmarks.ways.cutouts import Position
from benchmarks.ways.peers import MEAN, SEED, STD
from dali_pipelines import Index, with_tiles
from dali_pipelines.cli.prep.main import main as prep
from readers.places.storage import Storage

_CACHE_BYTES = 8 << 30
_TILES = 128


@dataclass(frozen=True)
class Copy:
    """The frames with tiles of one shape, and a row for each image that is read."""

    local: Index
    remote: Index
    noted: Index
    """The remote Index, with tile offsets."""


@dataclass(frozen=True)
class Archive:
    """What is read of frames: windows, or all."""

    rows: Copy
    """Tiles are rows of pixels, as in most archives."""
    square: Copy
    size: int | None
    """Rows and columns of a window; None for whole frames."""
    edge: int
    """Of a frame, in pixels."""
    described: str

    @property
    def batch_size(self) -> int:
        """Images of a batch."""
        return 8 if self.size else 2


@dataclass(frozen=True)
class Ours:
    """A Loader."""

    name: str
    copy: Copy
    index: Index
    settings: dict[str, Any] = field(default_factory=dict)


def positions(index: Index) -> list[Position]:
    """Return where the windows of an Index begin."""
    columns = (index.table[name].to_pylist() for name in ("path", "y", "x"))
    return [Position(*at) for at in zip(*columns, strict=True)]


def make_archives(
    folder: Path, server: ServerApart, *, frames: int, each: int, edge: int, size: int
) -> tuple[Archive, Archive]:
    """Make frames, and give random windows of them, so many of each, and whole frames."""
    (folder / "rows").mkdir()
    pixels = [_pixels(number, edge) for number in range(2)]
    for number in range(frames):
        hdu = fits.CompImageHDU(pixels[number % 2], compression_type="RICE_1")
        hdus = fits.HDUList([fits.PrimaryHDU(), hdu])
        hdus.writeto(folder / "rows" / f"{number:03}.fits")
    tiles = min(_TILES, edge // 4)
    prep([str(folder / "rows"), "-o", str(folder / "square"), "--tiles", str(tiles)])
    in_rows, square = (_copy(folder / name, server) for name in ("rows", "square"))
    files = np.repeat(np.arange(frames), each)
    corners = np.random.default_rng(SEED).integers(0, edge - size, (2, len(files)), endpoint=True)
    sizes = [sum(path.stat().st_size for path in (folder / name).glob("*.fits")) / frames / 1e6
             for name in ("rows", "square")]  # fmt: skip
    described = (
        f"{frames} synthetic frames of {edge}x{edge} in RICE_1, {sizes[0]:.2f} MB each; in square "
        f"tiles of {tiles}x{tiles}, {sizes[1]:.2f} MB"
    )
    parts = ((files, corners, size), (np.arange(frames), np.zeros((2, frames), np.int64), None))
    windows, whole = (
        Archive(_taken(in_rows, at, corner), _taken(square, at, corner), part, edge, described)
        for at, corner, part in parts
    )
    return windows, whole


def _pixels(number: int, edge: int) -> Any:
    """Return counts of a bright disk with a halo, as AIA has them."""
    y, x = np.mgrid[:edge, :edge].astype(np.float32) / edge - 0.5
    beyond = np.hypot(y, x) - 0.39
    mean = 5 + 400 * np.where(beyond < 0, 1, np.exp(-beyond / 0.073))
    return np.random.default_rng(number).poisson(mean * (1 + 0.2 * np.sin(42 * x))).astype(np.int16)


def _copy(folder: Path, server: ServerApart) -> Copy:
    for path in sorted(folder.glob("*.fits")):
        url = server.put(f"{folder.name}/{path.name}", path)
    storage = server_storage(server)
    remote = Index.scan(f"{url.rpartition('/')[0]}/", storage=storage)
    return Copy(Index.scan(str(folder / "*.fits")), remote, with_tiles(remote, storage=storage))


def _taken(copy: Copy, rows: Any, corners: Any) -> Copy:
    indexes = []
    for index in (copy.local, copy.remote, copy.noted):
        taken = index.select(rows.tolist())
        for name, values in zip(("y", "x"), corners, strict=True):
            taken = taken.with_column(name, values)
        indexes.append(taken)
    return Copy(*indexes)


def server_storage(server: ServerApart) -> Storage:
    """Return how objects of the server are requested."""
    return Storage(anonymous=True, endpoint=server.endpoint)


def our_loaders(
    archive: Archive, server: ServerApart, settings: Settings, cache: Path
) -> list[Ours]:
    """Return all Loaders; `cache` is a folder for the caches."""
    common: dict[str, Any] = {
        "batch_size": archive.batch_size,
        "crop": archive.size,
        "window": "row" if archive.size else "center",
        "mean": MEAN,
        "std": STD,
        "num_read_processes": settings.num_read_processes,
        "num_threads": settings.num_threads,
    }
    remote = {**common, "storage": server_storage(server)}
    rows, square = archive.rows, archive.square
    first, second = [
        Ours(
            f"Loader, cache, {epoch} epoch",
            rows,
            rows.remote,
            {**remote, "cache": str(cache / epoch), "cache_bytes": _CACHE_BYTES},
        )
        for epoch in ("first", "second")
    ]
    # The system goes on writing what a first epoch has stored: those next to it wait for the store.
    return [
        Ours("Loader, local files", rows, rows.local, common),
        second,
        Ours("Loader", rows, rows.remote, remote),
        first,
        Ours("Loader, tile offsets", rows, rows.noted, remote),
        Ours("Loader, square tiles, tile offsets", square, square.noted, remote),
        Ours("Loader, square tiles, local files", square, square.local, common),
    ]
